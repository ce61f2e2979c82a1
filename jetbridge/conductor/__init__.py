"""What happens next to a server: build, reschedule, delete."""

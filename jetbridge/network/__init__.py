"""Networks guests can be plugged into."""

"""Disk images: the embedded image directory."""

"""Processes: puts the rooms together, starts and stops them."""

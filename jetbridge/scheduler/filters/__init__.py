"""Filters: which hosts can take a server, and why the others can't."""

"""Ordered steps with undo."""

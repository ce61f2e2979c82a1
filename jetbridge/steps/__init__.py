"""Ordered steps that change the world, each with its undo."""

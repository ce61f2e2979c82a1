"""CAST and CALL between services."""

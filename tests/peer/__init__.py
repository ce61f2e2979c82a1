"""Side by side with Nova's released package (docs/tests.md)."""

"""The values that cross seams. Pure."""

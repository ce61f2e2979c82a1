"""The HTTP front doors: one file per noun."""

"""Long runs from a seed: `make test-long`."""

"""The process dies at every moment of every step: `make test-kill`."""

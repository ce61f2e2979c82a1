"""Figures side by side with Nova's released package, taken in one run: `make bench` and docs/performance.md."""

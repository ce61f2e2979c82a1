"""Jetbridge gets a GPU, or any PCI device, into a virtual machine."""

__version__ = "0.1.0"

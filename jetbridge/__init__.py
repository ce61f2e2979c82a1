"""Jetbridge gets a GPU, or any PCI device, into a virtual machine."""

"""PCI devices and the requests for them: pure values and decisions."""

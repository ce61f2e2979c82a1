"""Pure: mediated devices and vendor vGPU types: configuration, capacity, choice."""

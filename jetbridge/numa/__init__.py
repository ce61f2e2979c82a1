"""NUMA: host and guest topologies, and fitting one on the other. Pure."""

"""The agent of a host: inventory, claims, guests."""

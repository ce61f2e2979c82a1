"""Servers that tests need, started by themselves in folders of their own."""

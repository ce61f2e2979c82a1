"""Options, nova.conf and the fleet file."""

"""Our own resources, under /jetbridge/v1: what the Compute API has no place for. The command line speaks to these."""

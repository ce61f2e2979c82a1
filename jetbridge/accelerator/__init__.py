"""Accelerators: device profiles and accelerator requests (ARQs), by an embedded service or a Cyborg elsewhere."""

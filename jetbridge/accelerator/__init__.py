"""Accelerators: device profiles and accelerator requests (ARQs), the client of the service that keeps them, and the embedded one."""

"""A hypervisor that is played: the hardware of a fleet file as node-device documents and sysfs, and domains that only claim to run."""

from jetbridge.virt.simulated.connection import SimulatedConnection, check_fleet_host, open_fleet_host
from jetbridge.virt.simulated.sysfs import SimulatedHostFiles

__all__ = ["SimulatedConnection", "SimulatedHostFiles", "check_fleet_host", "open_fleet_host"]

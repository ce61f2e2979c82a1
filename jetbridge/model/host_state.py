"""What the scheduler knows of one host, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from jetbridge.numa.topology import HostTopology
from jetbridge.pci.pool import Pool


@dataclass(frozen=True)
class HostState:
    """A host at one ``generation``.

    ``vcpus``, ``memory_mb``, ``disk_gb`` are what the host has; ``*_used`` what its servers hold. ``numa`` already
    carries the usage of its servers; None: the host has no NUMA cells. ``pools`` is None when no
    enabled filter needs them (they are not read then).
    """

    compute_node_id: int
    host: str
    hypervisor_hostname: str
    generation: int
    vcpus: int
    memory_mb: int
    disk_gb: int
    vcpus_used: int
    memory_mb_used: int
    disk_gb_used: int
    running_servers: int
    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    disk_allocation_ratio: float
    reserved_memory_mb: int
    reserved_disk_gb: int
    enabled: bool
    alive: bool
    numa: HostTopology | None = None
    pools: tuple[Pool, ...] | None = None
    disabled_reason: str | None = None
    availability_zone: str = "nova"
    networks: frozenset[str] = frozenset()
    devices_known: bool = True  # False: the last discovery failed, so none of the host's devices is offered
    reported: bool = True  # False: its resource providers are not in Placement yet, so no server can be placed on it

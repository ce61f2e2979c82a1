"""A host's own provider: its CPUs, memory and disk. Pure."""

from __future__ import annotations

from jetbridge.model.provider import Inventory, Provider
from jetbridge.numa.topology import HostTopology
from jetbridge.placement.groups import OWNER_TRAIT


def root_provider(
    name: str,
    *,
    vcpus: int,
    numa: HostTopology | None,
    memory_mb: int,
    disk_gb: int,
    reserved_memory_mb: int,
    reserved_disk_gb: int,
    cpu_ratio: float,
    memory_ratio: float,
    disk_ratio: float,
    traits: frozenset[str] = frozenset(),
) -> Provider:
    """Memory in MiB, disk in GiB. CPUs that guests share are VCPU, those that guests may have for themselves PCPU; where no option
    parts them they are both. A class of which the host has nothing is left out."""
    shared = vcpus if numa is None else sum(len(cell.cpus) for cell in numa.cells)
    pinnable = 0 if numa is None else sum(len(cell.pinnable) for cell in numa.cells)
    amounts = (
        ("VCPU", shared, 0, cpu_ratio),
        ("PCPU", pinnable, 0, 1.0),
        ("MEMORY_MB", memory_mb, reserved_memory_mb, memory_ratio),
        ("DISK_GB", disk_gb, reserved_disk_gb, disk_ratio),
    )
    own = {"COMPUTE_NODE", OWNER_TRAIT}
    if numa is not None:
        own.add("COMPUTE_SOCKET_PCI_NUMA_AFFINITY")
    return Provider(
        name=name,
        inventories={
            resource_class: Inventory(
                total=total, max_unit=total, reserved=min(reserved, total), allocation_ratio=ratio
            )
            for resource_class, total, reserved, ratio in amounts
            if total > 0
        },
        traits=traits | own,
    )

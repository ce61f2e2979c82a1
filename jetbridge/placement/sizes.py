"""What every server takes of its host's own provider. Pure."""

from __future__ import annotations

from jetbridge.model.capacity import disk_gb
from jetbridge.model.flavor import Flavor
from jetbridge.numa.topology import GuestTopology


def server_resources(flavor: Flavor, topology: GuestTopology | None) -> dict[str, int]:
    """Amounts by class, none of 0. CPUs that the guest has for itself count as PCPU, the others as VCPU; memory in MiB, disk in GiB."""
    pinned = 0 if topology is None else sum(len(cell.pinned_cpus) for cell in topology.cells)
    amounts = {
        "VCPU": flavor.vcpus - pinned,
        "PCPU": pinned,
        "MEMORY_MB": flavor.memory_mb,
        "DISK_GB": disk_gb(flavor),
    }
    return {name: amount for name, amount in amounts.items() if amount > 0}

"""Does a server fit a host's CPUs, memory and disk? Asked by the scheduler's filter and again by the claim."""

from __future__ import annotations

import math

from jetbridge.model.flavor import Flavor
from jetbridge.model.host_state import HostState
from jetbridge.numa.topology import GuestTopology
from jetbridge.reasons import Reason


def disk_gb(flavor: Flavor) -> int:
    """GiB of local disk a server holds: root, ephemeral and swap, swap rounded up."""
    return flavor.root_gb + flavor.ephemeral_gb + math.ceil(flavor.swap_mb / 1024)


def capacity_refusals(state: HostState, flavor: Flavor, topology: GuestTopology | None = None) -> tuple[Reason, ...]:
    """What of the host is too little for the flavor; empty when all of it fits. CPUs that the guest has for itself are the fit's to judge; where
    options part them from those that guests share, the others must be among the shared ones.

    The capacity is (total - reserved) x allocation ratio, and no single server may be larger than the
    hardware, whatever the ratio: as Placement counts (its inventories' ``max_unit``).
    """
    asked = [
        ("cpu", "VCPUs", flavor.vcpus, state.vcpus, 0, state.vcpus_used, state.cpu_allocation_ratio),
        (
            "ram",
            "MiB of memory",
            flavor.memory_mb,
            state.memory_mb,
            state.reserved_memory_mb,
            state.memory_mb_used,
            state.ram_allocation_ratio,
        ),
        (
            "disk",
            "GiB of disk",
            disk_gb(flavor),
            state.disk_gb,
            state.reserved_disk_gb,
            state.disk_gb_used,
            state.disk_allocation_ratio,
        ),
    ]
    if (parted := _shared_cpus(state)) is not None:
        total, used = parted
        wanted = flavor.vcpus - _pinned(topology)
        asked.append(("cpu", "shared VCPUs", wanted, total, 0, used, state.cpu_allocation_ratio))
    reasons = []
    for rule, unit, wanted, total, reserved, used, ratio in asked:
        free = int((total - reserved) * ratio) - used
        if wanted == 0:
            continue
        if wanted > total:
            reasons.append(Reason(rule, f"{wanted} {unit} wanted, the host has {total} in all", before=total, after=0))
        elif wanted > free:
            reasons.append(
                Reason(
                    rule,
                    f"{wanted} {unit} wanted, {max(free, 0)} free"
                    f" ({total} in all, {reserved} reserved, allocation ratio {ratio:g}, {used} used)",
                    before=max(free, 0),
                    after=0,
                )
            )
    return tuple(reasons)


def _shared_cpus(state: HostState) -> tuple[int, int] | None:
    """How many CPUs guests share and how many of them are used; None: nothing parts them from those that guests have for themselves."""
    if state.numa is None:
        return None
    shared = sum(len(cell.cpus) for cell in state.numa.cells)
    if shared == state.vcpus:
        return None
    pinned = sum(len(cell.pinned) for cell in state.numa.cells)
    return shared, max(state.vcpus_used - pinned, 0)


def _pinned(topology: GuestTopology | None) -> int:
    return 0 if topology is None else sum(len(cell.pinned_cpus) for cell in topology.cells)

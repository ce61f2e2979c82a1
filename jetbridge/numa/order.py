"""In which order host cells are tried for a guest (docs/models.md, Guest topology)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jetbridge.numa.topology import CpuPolicy, GuestTopology, HostCell, HostTopology
from jetbridge.pci.pool import Pool


def ordered_cells(
    host: HostTopology,
    guest: GuestTopology,
    pools: Sequence[Pool],
    requested: Sequence[Pool] | None,
    packing: bool,
) -> tuple[HostCell, ...]:
    """Host cells, the best first. ``requested``: the pools that could serve the guest's device requests; None: it has none.

    A guest without devices keeps away from cells with devices while another fits, a guest with devices goes
    to them, whatever ``packing`` says of memory and CPUs. With no cell to spare the order stays the host's.
    """
    if len(host.cells) <= len(guest.cells):
        return host.cells
    devices = _per_node(pools)
    wanted = _per_node(requested or ())
    shared = guest.cpu_policy in (None, CpuPolicy.SHARED)

    def rank(cell: HostCell) -> tuple[int, ...]:
        free_memory = cell.memory_mb - cell.memory_usage_mb
        free_cpus = -cell.cpu_usage if shared else len(cell.pinnable - cell.pinned)
        room = (free_cpus, free_memory) if packing else (-free_cpus, -free_memory)
        any_kind = devices[cell.id]
        if requested is None:
            return (any_kind, *room)
        # The requested kind first: a NIC's many VFs on another node must not draw a GPU guest away from its GPU.
        return (-wanted[cell.id], -any_kind, *room)

    return tuple(sorted(host.cells, key=rank))


def _per_node(pools: Sequence[Pool]) -> Counter[int | None]:
    """Free devices by NUMA node; None: unknown."""
    nodes: Counter[int | None] = Counter()
    for pool in pools:
        nodes[pool.numa_node] += pool.count
    return nodes

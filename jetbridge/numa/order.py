"""In which order host cells are tried for a guest (docs/models.md, Guest topology)."""

from __future__ import annotations

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
    direction = 1 if packing else -1
    shared = guest.cpu_policy in (None, CpuPolicy.SHARED)

    def rank(cell: HostCell) -> tuple[int, ...]:
        free_memory = direction * (cell.memory_mb - cell.memory_usage_mb)
        cpus = -direction * cell.cpu_usage if shared else direction * len(cell.pinnable - cell.pinned)
        any_kind = devices.get(cell.id, 0)
        if requested is None:
            return (any_kind, cpus, free_memory)
        # The requested kind first: a NIC's many VFs on another node must not draw a GPU guest away from its GPU.
        return (-wanted.get(cell.id, 0), -any_kind, cpus, free_memory)

    return tuple(sorted(host.cells, key=rank))


def _per_node(pools: Sequence[Pool]) -> dict[int, int]:
    """Free devices by NUMA node."""
    nodes: dict[int, int] = {}
    for pool in pools:
        if pool.numa_node is not None:
            nodes[pool.numa_node] = nodes.get(pool.numa_node, 0) + pool.count
    return nodes

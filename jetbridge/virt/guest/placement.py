"""Where a guest's CPUs and memory lie: a fitted topology as pinning, memory nodes, huge pages and guest cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jetbridge.numa.topology import GuestCell, GuestTopology
from jetbridge.virt.guest.spec import CellMemory, CpuCell, CpuTopology, HugePages, VcpuPin


@dataclass(frozen=True)
class Placement:
    """Empty where nothing is asked for: the guest then floats over all of the host."""

    vcpu_pins: tuple[VcpuPin, ...] = ()
    emulator_cpus: frozenset[int] | None = None
    memory_nodes: frozenset[int] | None = None
    cell_memory: tuple[CellMemory, ...] = ()
    hugepages: tuple[HugePages, ...] = ()
    cells: tuple[CpuCell, ...] = ()


def placement(
    topology: GuestTopology,
    host_cpus: Mapping[int, frozenset[int]],
    shared_cpus: frozenset[int] | None,
    small_page_kb: int = 4,
) -> Placement:
    """``topology`` as fitted by the claim.

    ``host_cpus`` are the CPUs for shared guests of each host cell: guest CPUs that aren't dedicated float over those of
    their cell (a cell missing there leaves them unbound). ``shared_cpus`` is all of them, for emulator threads that
    are asked to share. ``small_page_kb`` is the host's ordinary page size, which needs no backing by huge pages.
    """
    pins = tuple(
        VcpuPin(vcpu, cpus)
        for vcpu, cpus in sorted(
            (vcpu, _host_cpus_of(cell, vcpu, host_cpus))
            for cell in topology.cells
            for vcpu in cell.cpus | cell.pinned_cpus
        )
        if cpus
    )
    nodes = frozenset(cell.host_cell for cell in topology.cells if cell.host_cell is not None)
    return Placement(
        vcpu_pins=pins,
        emulator_cpus=_emulator_cpus(topology, pins, shared_cpus),
        memory_nodes=nodes or None,
        cell_memory=tuple(
            CellMemory(cell=cell.id, host_nodes=frozenset({cell.host_cell}))
            for cell in topology.cells
            if cell.host_cell is not None
        ),
        hugepages=_hugepages(topology, small_page_kb),
        cells=tuple(CpuCell(cell.id, cell.cpus | cell.pinned_cpus, cell.memory_mb * 1024) for cell in topology.cells),
    )


def _host_cpus_of(cell: GuestCell, vcpu: int, host_cpus: Mapping[int, frozenset[int]]) -> frozenset[int]:
    if vcpu in cell.pinning:
        return frozenset({cell.pinning[vcpu]})
    return host_cpus.get(cell.host_cell, frozenset()) if cell.host_cell is not None else frozenset()


def _emulator_cpus(
    topology: GuestTopology, pins: tuple[VcpuPin, ...], shared_cpus: frozenset[int] | None
) -> frozenset[int] | None:
    if topology.emulator_isolate:
        return frozenset().union(*(cell.reserved_cpus for cell in topology.cells)) or None
    if topology.emulator_share and shared_cpus:
        return shared_cpus
    # QEMU's own threads stay beside the guest's, so that they steal from no other guest.
    return frozenset().union(*(pin.host_cpus for pin in pins)) or None


def _hugepages(topology: GuestTopology, small_page_kb: int) -> tuple[HugePages, ...]:
    sizes: dict[int, set[int]] = {}
    for cell in topology.cells:
        if cell.page_size_kb is not None and cell.page_size_kb != small_page_kb:
            sizes.setdefault(cell.page_size_kb, set()).add(cell.id)
    return tuple(HugePages(size_kib=size, cells=frozenset(cells)) for size, cells in sorted(sizes.items()))


def cpu_topology(vcpus: int, wishes: Mapping[str, str], cells: int = 1) -> tuple[CpuTopology, str | None]:
    """Sockets, cores and threads whose product is ``vcpus``, and a warning when ``wishes`` can't be met.

    ``wishes`` may hold sockets, cores, threads as text; what is missing is filled in. Without any, every CPU is a socket
    (guests with several cells: every cell is one, as operating systems expect no socket to span two).
    """
    try:
        wanted = {name: int(text) for name, text in wishes.items()}
    except ValueError:
        wanted = {"sockets": 0}
    threads = wanted.get("threads", 1)
    if not wanted and cells > 1 and vcpus % cells == 0:
        return CpuTopology(cells, vcpus // cells, 1), None
    if all(number > 0 for number in wanted.values()):
        if "sockets" in wanted:
            sockets = wanted["sockets"]
            cores = wanted.get("cores", max(1, vcpus // (sockets * threads)))
        else:
            cores = wanted.get("cores", 1)
            sockets = max(1, vcpus // (cores * threads))
        if sockets * cores * threads == vcpus:
            return CpuTopology(sockets, cores, threads), None
    asked = ", ".join(f"{name}={text}" for name, text in wishes.items())
    return CpuTopology(vcpus, 1, 1), f"CPU topology {asked} does not give {vcpus} CPUs: every CPU is a socket instead"

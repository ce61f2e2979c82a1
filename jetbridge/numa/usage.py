"""What running servers hold of a host's cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jetbridge.numa.topology import GuestCell, GuestTopology, HostCell, HostTopology, PagePool

KIB_PER_MIB = 1024


def with_usage(topology: HostTopology, guests: Iterable[GuestTopology]) -> HostTopology:
    """``topology`` with the usage of ``guests`` added; everything else of a cell, its socket included, stays.

    Guest cells that no host cell carries (not fitted yet, or the hardware changed since) add nothing.
    """
    held: dict[int, list[GuestCell]] = {}
    for guest in guests:
        for cell in guest.cells:
            if cell.host_cell is not None:
                held.setdefault(cell.host_cell, []).append(cell)
    if not held:
        return topology
    return HostTopology(cells=tuple(_used(cell, held.get(cell.id, ())) for cell in topology.cells))


def pages_needed(memory_mb: int, size_kb: int) -> int:
    """Pages of ``size_kb`` that hold ``memory_mb``, rounded up."""
    return -(-memory_mb * KIB_PER_MIB // size_kb)


def smallest_page(cell: HostCell) -> int | None:
    """The size in KiB of the cell's smallest pages: the memory of guests that ask for no page size. None: unknown."""
    return min((pool.size_kb for pool in cell.pages), default=None)


def _used(cell: HostCell, guests: Iterable[GuestCell]) -> HostCell:
    guests = tuple(guests)
    if not guests:
        return cell
    taken = [cpus for guest in guests for cpus in (frozenset(guest.pinning.values()), guest.reserved_cpus)]
    return replace(
        cell,
        cpu_usage=cell.cpu_usage + sum(len(guest.cpus) for guest in guests),
        memory_usage_mb=cell.memory_usage_mb + sum(guest.memory_mb for guest in guests),
        pinned=cell.pinned.union(*taken),
        pages=tuple(_used_pages(pool, smallest_page(cell), guests) for pool in cell.pages),
    )


def _used_pages(pool: PagePool, smallest: int | None, guests: Iterable[GuestCell]) -> PagePool:
    # Memory without a page size lies in the smallest pages: counted there, a pinned guest can't be promised it again.
    used = sum(
        pages_needed(guest.memory_mb, pool.size_kb)
        for guest in guests
        if (guest.page_size_kb or smallest) == pool.size_kb
    )
    return replace(pool, used=pool.used + used)

"""Host cells, guest cells, and what of a host is used."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class CpuPolicy(enum.StrEnum):
    SHARED = "shared"
    DEDICATED = "dedicated"
    MIXED = "mixed"


class ThreadPolicy(enum.StrEnum):
    PREFER = "prefer"
    ISOLATE = "isolate"
    REQUIRE = "require"


@dataclass(frozen=True)
class PagePool:
    """Memory pages of one size in one cell, counted in pages."""

    size_kb: int
    total: int
    used: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        return self.total - self.used - self.reserved


@dataclass(frozen=True)
class HostCell:
    """A NUMA node. ``siblings`` are the thread groups of its cores (each a set of CPU numbers);
    ``pinned`` and ``*_usage`` tell what running servers hold of it."""

    id: int
    cpus: frozenset[int]  # CPUs for shared guests
    pinnable: frozenset[int]  # CPUs for dedicated guests
    memory_mb: int
    siblings: tuple[frozenset[int], ...] = ()
    socket: int | None = None
    pages: tuple[PagePool, ...] = ()
    pinned: frozenset[int] = frozenset()
    cpu_usage: int = 0
    memory_usage_mb: int = 0


@dataclass(frozen=True)
class HostTopology:
    cells: tuple[HostCell, ...]


@dataclass(frozen=True)
class GuestCell:
    """A guest's NUMA node. ``id`` is the guest's cell number; ``host_cell``, ``pinning`` (guest CPU to
    host CPU) and ``page_size_kb`` are filled in by the fit. ``cpus`` are shared guest CPUs, ``pinned_cpus``
    dedicated ones. ``page_request`` is small, large, any, or a size in KiB as text."""

    id: int
    cpus: frozenset[int]
    pinned_cpus: frozenset[int]
    memory_mb: int
    page_request: str | None = None
    host_cell: int | None = None
    page_size_kb: int | None = None
    pinning: Mapping[int, int] = field(default_factory=dict)
    reserved_cpus: frozenset[int] = frozenset()  # host CPUs taken for emulator threads


@dataclass(frozen=True)
class GuestTopology:
    cells: tuple[GuestCell, ...]
    cpu_policy: CpuPolicy | None = None
    thread_policy: ThreadPolicy | None = None
    emulator_isolate: bool = False  # one host CPU of its own for the emulator threads
    emulator_share: bool = False  # emulator threads float over the host's shared CPUs


@dataclass(frozen=True)
class NumaLimits:
    cpu_allocation_ratio: float
    ram_allocation_ratio: float

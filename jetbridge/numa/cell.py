"""Does one guest cell fit on one host cell, and on which CPUs and pages? (docs/models.md, Guest topology)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jetbridge.numa.topology import CpuPolicy, GuestCell, HostCell, NumaLimits, PagePool, ThreadPolicy
from jetbridge.numa.usage import KIB_PER_MIB, pages_needed
from jetbridge.reasons import counted

CpuGroups = Sequence[Sequence[int]]


@dataclass(frozen=True)
class CellNeed:
    """What a guest cell wants of a host cell: equal needs fit equally. ``reserved`` counts host CPUs for emulator threads."""

    shared: int
    pinned: int
    reserved: int
    memory_mb: int
    page_request: str | None
    cpu_policy: CpuPolicy | None
    thread_policy: ThreadPolicy | None


@dataclass(frozen=True)
class CellPlan:
    """How a need is met: the host CPUs in the order of the guest's pinned CPUs, and the page size."""

    page_size_kb: int | None
    pins: tuple[int, ...]
    reserved: frozenset[int]

    def place(self, guest: GuestCell, host_cell: int) -> GuestCell:
        return replace(
            guest,
            host_cell=host_cell,
            page_size_kb=self.page_size_kb,
            pinning={cpu: self.pins[at] for at, cpu in enumerate(sorted(guest.pinned_cpus))},
            reserved_cpus=self.reserved,
        )


@dataclass(frozen=True)
class Shortage:
    """Why a cell doesn't fit. ``text`` tells the need alone, so that host cells with the same want group together;
    ``available`` is what the host cell has of it."""

    rule: str
    text: str
    hint: str
    available: int = 0


def plan_cell(host: HostCell, need: CellNeed, limits: NumaLimits | None) -> CellPlan | Shortage:
    page = _page_size(host, need)
    if isinstance(page, Shortage):
        return page
    short = _shared_shortage(host, need) or (limits and _limit_shortage(host, need, limits))
    if short:
        return short
    cpus = _pins(host, need)
    if isinstance(cpus, Shortage):
        return cpus
    return CellPlan(page, tuple(cpus[: need.pinned]), frozenset(cpus[need.pinned :]))


# --- memory -----------------------------------------------------------------------------------


def _page_size(host: HostCell, need: CellNeed) -> int | Shortage | None:
    """The page size for a request of one, else None when the memory fits."""
    if need.page_request is not None:
        return _requested_page_size(host, need, need.page_request)
    dedicated = _is_dedicated(need)
    if host.pages:
        smallest = min(host.pages, key=lambda pool: pool.size_kb)
        pages = smallest.free if dedicated else smallest.total
        if pages_needed(need.memory_mb, smallest.size_kb) <= pages:
            return None
        return _memory_shortage(need, max(pages, 0) * smallest.size_kb // KIB_PER_MIB)
    memory = host.memory_mb - host.memory_usage_mb if dedicated else host.memory_mb
    return None if need.memory_mb <= memory else _memory_shortage(need, max(memory, 0))


def _is_dedicated(need: CellNeed) -> bool:
    """Whether the guest's memory is never overcommitted: that goes by its policy, also in a cell whose CPUs are all shared."""
    return need.cpu_policy in (CpuPolicy.DEDICATED, CpuPolicy.MIXED)


def _memory_shortage(need: CellNeed, available: int) -> Shortage:
    kind = "free " if _is_dedicated(need) else ""
    return Shortage(
        "numa.memory",
        f"a guest cell wants {need.memory_mb} MiB of {kind}memory in one host cell",
        f"the most in one host cell is {available} MiB: use more NUMA nodes or a smaller flavor",
        available,
    )


def _requested_page_size(host: HostCell, need: CellNeed, request: str) -> int | Shortage:
    candidates = _candidate_pages(host, request)
    wanted = f"a guest cell wants {need.memory_mb} MiB in pages of size {_named(request)}"
    if not candidates:
        sizes = ", ".join(str(size) for size in sorted(pool.size_kb for pool in host.pages)) or "none"
        return Shortage(
            "numa.pages",
            f"{wanted}, and the host cell has no such pages",
            f"page sizes of the host cell in KiB: {sizes}; reserve huge pages on the host or change hw:mem_page_size",
        )
    dividing = [pool for pool in candidates if need.memory_mb * KIB_PER_MIB % pool.size_kb == 0]
    for pool in dividing:
        if pages_needed(need.memory_mb, pool.size_kb) <= pool.free:
            return pool.size_kb
    if not dividing:
        size = min(pool.size_kb for pool in candidates)
        return Shortage(
            "numa.pages",
            f"{wanted}, and its memory is not a multiple of the page size",
            f"make the memory of every guest cell a multiple of {max(size // KIB_PER_MIB, 1)} MiB",
        )
    free = max(max(pool.free, 0) * pool.size_kb // KIB_PER_MIB for pool in dividing)
    return Shortage("numa.pages", f"{wanted}, and too few are free", f"the most in one host cell is {free} MiB", free)


def _candidate_pages(host: HostCell, request: str) -> list[PagePool]:
    """The page sizes allowed by a request, the preferred first."""
    largest_first = sorted(host.pages, key=lambda pool: -pool.size_kb)
    if request == "small":
        return largest_first[-1:]
    if request == "large":
        return largest_first[:-1]
    if request == "any":
        return largest_first
    return [pool for pool in largest_first if str(pool.size_kb) == request]


def _named(request: str) -> str:
    return f"{request} KiB" if request.isdigit() else request


# --- CPUs -------------------------------------------------------------------------------------


def _shared_cpus(host: HostCell) -> int:
    """CPUs for shared guests. Where the host divides nothing (no cpu_dedicated_set) pinning takes CPUs away from them."""
    return len(host.cpus - host.pinned)


def _shared_shortage(host: HostCell, need: CellNeed) -> Shortage | None:
    available = _shared_cpus(host)
    if need.shared <= available:
        return None
    return Shortage(
        "numa.cpu",
        f"a guest cell wants {counted(need.shared, 'shared CPU')} in one host cell",
        f"the most in one host cell is {available}: use more NUMA nodes, or a larger [compute]cpu_shared_set",
        available,
    )


def _limit_shortage(host: HostCell, need: CellNeed, limits: NumaLimits) -> Shortage | None:
    """Overcommit of what isn't dedicated. A dedicated guest's CPUs and memory are never overcommitted."""
    if need.cpu_policy is CpuPolicy.DEDICATED:
        return None
    free_cpus = int(_shared_cpus(host) * limits.cpu_allocation_ratio) - host.cpu_usage
    if need.shared > free_cpus:
        return Shortage(
            "numa.cpu",
            f"a guest cell wants {counted(need.shared, 'shared CPU')} within the CPU allocation ratio",
            f"the most left in one host cell is {max(free_cpus, 0)} at cpu_allocation_ratio {limits.cpu_allocation_ratio:g}",
            free_cpus,
        )
    free_memory = int(host.memory_mb * limits.ram_allocation_ratio) - host.memory_usage_mb
    if need.memory_mb > free_memory:
        return Shortage(
            "numa.memory",
            f"a guest cell wants {need.memory_mb} MiB within the memory allocation ratio",
            f"the most left in one host cell is {max(free_memory, 0)} MiB"
            f" at ram_allocation_ratio {limits.ram_allocation_ratio:g}",
            free_memory,
        )
    return None


def _pins(host: HostCell, need: CellNeed) -> Sequence[int] | Shortage:
    """Host CPUs for the pinned guest CPUs, then those reserved for emulator threads."""
    count = need.pinned + need.reserved
    if count == 0:
        return ()
    free = host.pinnable - host.pinned
    if count > len(free):
        hint = f"the most free in one host cell is {len(free)} of {len(host.pinnable)}"
        if not host.pinnable:
            hint = "set [compute]cpu_dedicated_set on the host to offer CPUs for pinning"
        return Shortage("numa.cpu", f"a guest cell wants {_pinned(need)} in one host cell", hint, len(free))
    threaded = any(len(group) > 1 for group in host.siblings)
    if need.thread_policy is ThreadPolicy.ISOLATE and threaded:
        # Its siblings would have to stay idle, and nothing keeps other guests of a dedicated set off them.
        return Shortage(
            "numa.pinning",
            "thread policy isolate doesn't fit on a host with hyper-threads",
            "use a host without hyper-threads, or hw:cpu_thread_policy=prefer or require",
        )
    if need.thread_policy is ThreadPolicy.REQUIRE and not threaded:
        return Shortage(
            "numa.pinning",
            "thread policy require doesn't fit on a host without hyper-threads",
            "use a host with hyper-threads, or hw:cpu_thread_policy=prefer",
        )
    groups = _free_cores(host, free)
    packed = _pack(groups, count, 2 if need.thread_policy is ThreadPolicy.REQUIRE else 1)
    if packed is not None:
        return packed
    if need.thread_policy is ThreadPolicy.REQUIRE:
        whole = sum(len(group) for group in groups if len(group) > 1)
        return Shortage(
            "numa.pinning",
            f"a guest cell wants {_pinned(need)} on cores with at least two free threads",
            f"the most of them free in one host cell is {whole}",
            whole,
        )
    return sorted(free)[:count]


def _pinned(need: CellNeed) -> str:
    emulator = f" and {counted(need.reserved, 'CPU')} for emulator threads" if need.reserved else ""
    return counted(need.pinned, "free dedicated CPU") + emulator


def _free_cores(host: HostCell, free: frozenset[int]) -> CpuGroups:
    """The free threads of every core, cores in the order of their first thread."""
    grouped = frozenset[int]().union(*host.siblings)
    cores = [sorted(group & free) for group in host.siblings] + [[cpu] for cpu in free - grouped]
    return sorted(cores)


def _pack(cores: CpuGroups, count: int, fewest: int) -> list[int] | None:
    """``count`` CPUs, as many threads of a core as possible, the same number on each but the last; None: too few ``cores``
    have ``fewest`` threads. There is at least one core."""
    for threads in range(max(len(core) for core in cores), fewest - 1, -1):
        packed = [cpu for core in cores if len(core) >= threads for cpu in core[:threads]]
        if len(packed) >= count:
            return packed[:count]
    return None

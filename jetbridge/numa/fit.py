"""The one NUMA fit: can this server lie on this host, with its devices near enough? Asked by filter and claim alike."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from jetbridge.numa.cell import CellNeed, CellPlan, Shortage, plan_cell
from jetbridge.numa.order import ordered_cells
from jetbridge.numa.search import SearchBound, find_placement
from jetbridge.numa.topology import GuestCell, GuestTopology, HostCell, HostTopology, NumaLimits
from jetbridge.pci.device import VIRTUAL, DeviceType
from jetbridge.pci.fit import AffinityCells, Choice, Refusal, fit
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import NumaPolicy, PciRequest, ProviderChoice
from jetbridge.pci.wanted import Wanted
from jetbridge.reasons import Reason, counted


@dataclass(frozen=True)
class ServerFit:
    """``guest`` is the topology as placed (host cells, pinning, page sizes filled in), None without one;
    ``choice`` what is taken of the pools."""

    guest: GuestTopology | None
    choice: Choice = field(default_factory=Choice)


def fit_server(
    host: HostTopology | None,
    guest: GuestTopology | None,
    pools: Sequence[Pool],
    requests: Sequence[PciRequest],
    providers: ProviderChoice | None = None,
    limits: NumaLimits | None = None,
    packing: bool = False,
) -> ServerFit | Refusal:
    """Whether all of it fits jointly, and how; nothing passed in is changed.

    ``pools`` must be the host's, also for a guest without requests: the order of the host cells depends
    on them, and scheduler and claim have to come to the same cells. Without a guest topology the NUMA
    policies of the requests have no meaning. The answer is that of trying every permutation of host cells,
    except when the bound of the search is reached; then the refusal says so (rule ``numa.search``).
    """
    if guest is None:
        devices = fit(pools, requests, None, providers)
        return devices if isinstance(devices, Refusal) else ServerFit(None, devices)
    if host is None or not host.cells:
        return _refusal(
            "numa.cells",
            "the server wants a guest topology and the host has no NUMA cells",
            "use a host that reports NUMA cells, or a flavor without hw:numa_nodes, page size and pinned CPUs",
        )
    if len(host.cells) < len(guest.cells):
        return _refusal(
            "numa.cells",
            f"the server wants {counted(len(guest.cells), 'NUMA cell')}, the host has {len(host.cells)}",
            f"use hw:numa_nodes={len(host.cells)} or less",
        )
    return _fit_cells(host, guest, pools, requests, providers, limits, packing)


def _fit_cells(
    host: HostTopology,
    guest: GuestTopology,
    pools: Sequence[Pool],
    requests: Sequence[PciRequest],
    providers: ProviderChoice | None,
    limits: NumaLimits | None,
    packing: bool,
) -> ServerFit | Refusal:
    devices = _Devices(pools, requests, providers)
    cells = ordered_cells(host, guest, pools, devices.pools if requests else None, packing)
    plans = _plans(cells, guest, limits)
    fits = [[isinstance(plan, CellPlan) for plan in row] for row in plans]
    for row in plans:
        shortages = [plan for plan in row if isinstance(plan, Shortage)]
        if len(shortages) == len(row):
            return _shortage_refusal(shortages)
    sockets = {cell.id: cell.socket for cell in host.cells}
    usable = frozenset(cell.id for at, cell in enumerate(cells) if any(row[at] for row in fits))
    refusals: list[Refusal] = []

    def accept(placed: Sequence[int]) -> Choice | Refusal | None:
        near = fit(pools, requests, AffinityCells(frozenset(cells[at].id for at in placed), sockets), providers)
        if isinstance(near, Choice):
            return near
        refusals.append(near)
        # The first no is the time to ask whether any place could do: more cells, or no cells at all, never fit worse.
        return refused_anywhere() if len(refusals) == 1 and devices.order_free else None

    def refused_anywhere() -> Refusal | None:
        answers = (fit(pools, requests, near, providers) for near in (None, AffinityCells(usable, sockets)))
        return next((answer for answer in answers if isinstance(answer, Refusal)), None)

    classes = [(tuple(row[at] for row in fits), devices.looks_of(cell)) for at, cell in enumerate(cells)]
    groups = [cell.socket for cell in cells] if devices.by_socket else None
    try:
        found: tuple[tuple[int, ...], Choice | Refusal] | None = find_placement(fits, classes, accept, groups=groups)
    except SearchBound as bound:
        return _refusal(
            "numa.search",
            f"no placement found among the first {bound.facts['placements']} looked at; the search stops there",
            "use fewer NUMA nodes, or a PCI NUMA policy that is less strict",
        )
    if found is not None:
        placed, answer = found
        if isinstance(answer, Refusal):
            return devices.explained(answer)
        return ServerFit(_placed(guest, [(cells[at], plans[row][at]) for row, at in enumerate(placed)]), answer)
    if refusals:
        return devices.explained(refusals[0])
    one_by_one = _refusal(
        "numa.cells",
        f"the {len(guest.cells)} guest cells fit on host cells one by one, not all at once",
        "use fewer or smaller NUMA nodes",
    )
    return Refusal((*one_by_one.reasons, *_cells_left_out(cells, plans)))


def _plans(
    cells: Sequence[HostCell], guest: GuestTopology, limits: NumaLimits | None
) -> list[list[CellPlan | Shortage]]:
    """Per guest cell and host cell. Guest cells with the same need share one row."""
    rows: dict[CellNeed, list[CellPlan | Shortage]] = {}
    table = []
    for number, guest_cell in enumerate(guest.cells):
        need = _need(guest, guest_cell, first=number == 0)
        if need not in rows:
            rows[need] = [plan_cell(cell, need, limits) for cell in cells]
        table.append(rows[need])
    return table


def _need(guest: GuestTopology, cell: GuestCell, *, first: bool) -> CellNeed:
    return CellNeed(
        shared=len(cell.cpus),
        pinned=len(cell.pinned_cpus),
        reserved=1 if guest.emulator_isolate and first else 0,
        memory_mb=cell.memory_mb,
        page_request=cell.page_request,
        cpu_policy=guest.cpu_policy,
        thread_policy=guest.thread_policy,
    )


def _placed(guest: GuestTopology, pairs: Sequence[tuple[HostCell, CellPlan | Shortage]]) -> GuestTopology:
    cells = []
    for guest_cell, (host_cell, plan) in zip(guest.cells, pairs, strict=True):
        assert isinstance(plan, CellPlan)
        cells.append(plan.place(guest_cell, host_cell.id))
    return replace(guest, cells=tuple(cells))


class _Devices:
    """What the search has to know about the devices that could serve the requests."""

    def __init__(self, pools: Sequence[Pool], requests: Sequence[PciRequest], providers: ProviderChoice | None) -> None:
        self._requests = requests
        self._providers = providers
        self._wanted = Wanted(requests)
        self.pools = tuple(pool for pool in pools if self._users(pool))
        self.order_free = self._is_order_free()
        self.by_socket = any(request.policy is NumaPolicy.SOCKET for request in requests)

    def _users(self, pool: Pool) -> frozenset[int]:
        """The requests that may have a device of the pool."""
        users = self._wanted.users(pool)
        if self._providers is None:
            return users
        return frozenset(at for at in users if self._providers.allows(self._requests[at], pool.rp_uuid))

    def _is_order_free(self) -> bool:
        """Whether only counts decide, not which of several fitting pools an earlier request takes first.

        So it is when requests share all their pools and their policy, or none, and no card is wanted whole and in parts.
        Then more host cells never fit worse, and cells with equal devices can change places.
        """
        whole = {pool.address for pool in self.pools if pool.dev_type is DeviceType.PF}
        in_parts = {pool.address for pool in self.pools if pool.dev_type in VIRTUAL}
        sharing = {self._users(pool) for pool in self.pools}
        share_policy = all(len({self._requests[at].policy for at in users}) == 1 for users in sharing)
        share_all_or_none = sum(len(users) for users in sharing) == len(frozenset[int]().union(*sharing))
        return whole.isdisjoint(in_parts) and share_policy and share_all_or_none

    def looks_of(self, cell: HostCell) -> Hashable:
        """What the device fit can see of a host cell: cells with equal answers can change places, within a socket where sockets
        count."""
        here = [pool for pool in self.pools if pool.numa_node == cell.id]
        if here and not self.order_free:
            return cell.id
        return tuple(sorted(self._looks(pool) for pool in here))

    def _looks(self, pool: Pool) -> str:
        bound = self._providers is not None and self._providers.by_request
        return repr((sorted(self._users(pool)), pool.count, pool.rp_uuid if bound else None))

    def explained(self, refusal: Refusal) -> Refusal:
        """Names the devices that only the policy required keeps away, because their host reports no node for them: first of all
        where the refused request has no others."""
        first, last = [], []
        decisive = refusal.reasons[0]
        for at, request in enumerate(self._requests):
            usable = [pool for pool in self.pools if at in self._users(pool)]
            without = sorted(pool.address for pool in usable if pool.numa_node is None)
            if request.policy is NumaPolicy.REQUIRED and without:
                name = request.alias_name or request.requester_id
                reason = Reason(
                    "pci.numa",
                    f"policy required refuses devices without a NUMA node: {', '.join(without)}",
                    request=name,
                    hint="use the policy legacy or preferred, or a firmware that reports the device's node",
                )
                if len(without) == len(usable) and (decisive.rule, decisive.request) == (reason.rule, name):
                    first.append(replace(reason, before=decisive.before, after=decisive.after))
                else:
                    last.append(reason)
        return Refusal((*first, *refusal.reasons, *last))


# --- refusals ---------------------------------------------------------------------------------


def _refusal(rule: str, text: str, hint: str) -> Refusal:
    return Refusal((Reason(rule=rule, text=text, hint=hint),))


def _cells_left_out(cells: Sequence[HostCell], plans: Sequence[Sequence[CellPlan | Shortage]]) -> tuple[Reason, ...]:
    """What kept host cells out, such as having no CPU of [compute]cpu_shared_set: it is what a person can change."""
    out: dict[tuple[str, str], set[int]] = {}
    for row in plans:
        for cell, plan in zip(cells, row, strict=True):
            if isinstance(plan, Shortage):
                out.setdefault((plan.rule, plan.text), set()).add(cell.id)
    return tuple(
        Reason(rule, f"host cell{'s' if len(ids) > 1 else ''} {', '.join(map(str, sorted(ids)))} left out: {text}")
        for (rule, text), ids in out.items()
    )


def _shortage_refusal(shortages: Sequence[Shortage]) -> Refusal:
    """One reason per want, with the hint of the host cell that came nearest."""
    nearest: dict[tuple[str, str], Shortage] = {}
    for shortage in shortages:
        known = nearest.get((shortage.rule, shortage.text))
        if known is None or shortage.available > known.available:
            nearest[shortage.rule, shortage.text] = shortage
    return Refusal(tuple(Reason(short.rule, short.text, hint=short.hint) for short in nearest.values()))

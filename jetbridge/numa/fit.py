"""The one NUMA fit: can this server lie on this host, with its devices near enough? Asked by filter and claim alike."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from jetbridge.numa.cell import CellNeed, CellPlan, Shortage, plan_cell
from jetbridge.numa.order import ordered_cells
from jetbridge.numa.search import SearchBound, find_placement
from jetbridge.numa.topology import GuestCell, GuestTopology, HostCell, HostTopology, NumaLimits
from jetbridge.pci.fit import AffinityCells, Choice, Refusal, fit
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import NumaPolicy, PciRequest, ProviderChoice
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
    # Affinity only ever takes devices away: what doesn't fit without it needs no search.
    anywhere = fit(pools, requests, None, providers)
    if isinstance(anywhere, Refusal):
        return anywhere
    return _fit_cells(host, guest, pools, requests, providers, limits, packing)


def requested_pools(pools: Sequence[Pool], requests: Sequence[PciRequest]) -> tuple[Pool, ...]:
    """The pools a device of which could serve at least one of the requests, NUMA policies aside."""
    singles = [replace(request, count=1) for request in requests]
    return tuple(pool for pool in pools if any(isinstance(fit((pool,), (request,)), Choice) for request in singles))


def _fit_cells(
    host: HostTopology,
    guest: GuestTopology,
    pools: Sequence[Pool],
    requests: Sequence[PciRequest],
    providers: ProviderChoice | None,
    limits: NumaLimits | None,
    packing: bool,
) -> ServerFit | Refusal:
    wanted = requested_pools(pools, requests) if requests else ()
    cells = ordered_cells(host, guest, pools, wanted if requests else None, packing)
    plans = _plans(cells, guest, limits)
    fits = [[isinstance(plan, CellPlan) for plan in row] for row in plans]
    for row in plans:
        if all(isinstance(plan, Shortage) for plan in row):
            return _shortage_refusal([plan for plan in row if isinstance(plan, Shortage)])
    sockets = {cell.id: cell.socket for cell in host.cells}
    refusals: list[Refusal] = []

    def accept(placed: Sequence[int]) -> Choice | None:
        answer = fit(pools, requests, AffinityCells(frozenset(cells[at].id for at in placed), sockets), providers)
        if isinstance(answer, Refusal):
            refusals.append(answer)
            return None
        return answer

    columns = list(zip(*fits, strict=True))
    classes = [
        (column, _devices_of(cell, wanted, requests, providers)) for cell, column in zip(cells, columns, strict=True)
    ]
    try:
        found = find_placement(fits, classes, accept)
    except SearchBound as bound:
        return _refusal(
            "numa.search",
            f"no placement found among the first {bound.facts['placements']} looked at; the search stops there",
            "use fewer NUMA nodes, or a PCI NUMA policy that is less strict",
        )
    if found is not None:
        placed, choice = found
        return ServerFit(_placed(guest, [(cells[at], plans[row][at]) for row, at in enumerate(placed)]), choice)
    if refusals:
        return Refusal((*refusals[0].reasons, *_nodeless(wanted, requests)))
    return _refusal(
        "numa.cells",
        f"the {len(guest.cells)} guest cells fit on host cells one by one, not all at once",
        "use fewer or smaller NUMA nodes",
    )


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


def _devices_of(
    cell: HostCell, wanted: Sequence[Pool], requests: Sequence[PciRequest], providers: ProviderChoice | None
) -> Hashable:
    """What the device fit can see of a host cell: equal values mean that two cells can change places.

    Pools of one card are linked by their address (a PF excludes its VFs), so they are described together; a card
    whose pools lie on several nodes makes its nodes unlike all others.
    """
    here = {pool.address for pool in wanted if pool.numa_node == cell.id}
    cards: list[str] = []
    for address in here:
        card = [pool for pool in wanted if pool.address == address]
        if any(pool.numa_node != cell.id for pool in card):
            cards.append(f"shared {address}")
            continue
        cards.append(repr(sorted(_looks(pool, providers) for pool in card)))
    by_socket = any(request.policy is NumaPolicy.SOCKET for request in requests)
    return (tuple(sorted(cards)), cell.socket if by_socket else None)


def _looks(pool: Pool, providers: ProviderChoice | None) -> str:
    provider = pool.rp_uuid if providers is not None else None
    tags = sorted(pool.tags.items())
    return repr((pool.vendor_id, pool.product_id, pool.dev_type, pool.count, pool.parent_ifname, provider, tags))


# --- refusals ---------------------------------------------------------------------------------


def _refusal(rule: str, text: str, hint: str) -> Refusal:
    return Refusal((Reason(rule=rule, text=text, hint=hint),))


def _shortage_refusal(shortages: Sequence[Shortage]) -> Refusal:
    """One reason per want, with the hint of the host cell that came nearest."""
    nearest: dict[tuple[str, str], Shortage] = {}
    for shortage in shortages:
        known = nearest.get((shortage.rule, shortage.text))
        if known is None or shortage.available > known.available:
            nearest[shortage.rule, shortage.text] = shortage
    return Refusal(tuple(Reason(short.rule, short.text, hint=short.hint) for short in nearest.values()))


def _nodeless(wanted: Sequence[Pool], requests: Sequence[PciRequest]) -> tuple[Reason, ...]:
    """Names the devices that only the policy required keeps away, because their host reports no node for them."""
    reasons = []
    for request in requests:
        if request.policy is not NumaPolicy.REQUIRED:
            continue
        without = [pool.address for pool in requested_pools(wanted, (request,)) if pool.numa_node is None]
        if without:
            reasons.append(
                Reason(
                    "pci.numa",
                    f"policy required refuses devices without a NUMA node: {', '.join(sorted(without))}",
                    request=request.alias_name or request.requester_id,
                    hint="use the policy legacy or preferred, or a firmware that reports the device's node",
                )
            )
    return tuple(reasons)

"""The one fit: do these requests fit these pools, and with which devices? Used by filters, dry runs and the claim.

Requests are served in order, each through the same steps: properties, device types that have to be asked for by name,
what the requests before it left, Placement's providers, PF-VF exclusion, and NUMA last, so that it judges only devices
that could really be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jetbridge.errors import PciDeviceRequestFailed
from jetbridge.pci import eligible, explain
from jetbridge.pci.choose import choose, described, first
from jetbridge.pci.device import VIRTUAL, DeviceType, PciDevice
from jetbridge.pci.eligible import AffinityCells, Candidate, Candidates, Situation, total
from jetbridge.pci.pool import Pool, is_free, pool_key, tag_count
from jetbridge.pci.request import PciRequest, ProviderChoice
from jetbridge.reasons import Reason

__all__ = ["AffinityCells", "Choice", "Refusal", "Take", "acceptable", "explained", "fit", "pick_devices"]


@dataclass(frozen=True)
class Take:
    """``count`` devices out of one pool (as it was given to ``fit``: its count is that of the beginning)."""

    pool: Pool
    count: int


@dataclass(frozen=True)
class Choice:
    """Per request id, what is taken, in order."""

    takes: Mapping[str, tuple[Take, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """The first reason decided; the others tell which steps took devices away before it, in their order."""

    reasons: tuple[Reason, ...]


def fit(
    pools: Sequence[Pool],
    requests: Sequence[PciRequest],
    cells: AffinityCells | None = None,
    providers: ProviderChoice | None = None,
) -> Choice | Refusal:
    """All requests jointly, in order; nothing passed in is changed.

    ``pools`` are one host's, in ``pool_order``. ``cells`` None: the guest has no NUMA topology and no policy holds. A request's
    providers must all be served, each with as many devices as it is named. Of the devices that a request may take it gets those
    that ``pci/choose.py`` prefers; where they would leave too few to a later request, those that come first in the order.
    """
    answer = _attempt(pools, requests, cells, providers, by_preference=True)
    if isinstance(answer, Refusal) and len(requests) > 1:
        in_order = _attempt(pools, requests, cells, providers, by_preference=False)
        return answer if isinstance(in_order, Refusal) else in_order
    return answer


def acceptable(
    pools: Sequence[Pool], request: PciRequest, cells: AffinityCells | None = None
) -> tuple[Pool, ...] | None:
    """The pools that a request could be served from, if it were alone; None: not at all."""
    stock = _Stock(pools)
    kept = _narrowed(Situation(request, cells, (), stock.left, stock.takers, stock.blockers), stock.all)
    return None if isinstance(kept, Refusal) else tuple(candidate.pool for candidate in kept)


def explained(requests: Sequence[PciRequest], choice: Choice) -> str:
    """Which devices each request gets, and why those."""
    names = {request.request_id: explain.label(request) for request in requests}
    return "; ".join(
        f"{names[request_id]} gets {described([(take.pool, take.count) for take in takes])}"
        for request_id, takes in choice.takes.items()
    )


def pick_devices(devices: Iterable[PciDevice], choice: Choice) -> dict[str, tuple[PciDevice, ...]]:
    """Concrete devices for what ``fit`` chose, per request id; within a pool those with the highest addresses.

    ``choice`` must have been made from ``pools_of`` the same devices; ``PciDeviceRequestFailed`` when a pool has too few.
    """
    members: dict[Hashable, list[PciDevice]] = {}
    for device in sorted(devices, key=lambda device: device.address):
        if is_free(device):
            members.setdefault(pool_key(device), []).append(device)
    picked: dict[str, tuple[PciDevice, ...]] = {}
    for request_id, takes in choice.takes.items():
        taken: list[PciDevice] = []
        for take in takes:
            group = members.get(pool_key(take.pool), [])
            if len(group) < take.count:
                raise PciDeviceRequestFailed(requests=request_id)
            taken += [group.pop() for _ in range(take.count)]
        picked[request_id] = tuple(taken)
    return picked


def _attempt(
    pools: Sequence[Pool],
    requests: Sequence[PciRequest],
    cells: AffinityCells | None,
    providers: ProviderChoice | None,
    *,
    by_preference: bool,
) -> Choice | Refusal:
    stock = _Stock(pools)
    takes: dict[str, tuple[Take, ...]] = {}
    for number, request in enumerate(requests, start=1):
        situation = Situation(
            request=request,
            cells=cells,
            providers=_providers_of(request, providers),
            left=stock.left,
            takers=stock.takers,
            blockers=stock.blockers,
            allowed=None if providers is None else providers.allowed.get(request.request_id),
            apart=providers is not None and providers.apart,
        )
        tiers = _tiers(situation, requests[number:], providers or ProviderChoice()) if by_preference else None
        outcome = _serve(situation, stock.all, tiers)
        if isinstance(outcome, Refusal):
            return outcome
        stock.take(outcome, explain.label(request), apart=situation.apart)
        taken = tuple(Take(pool=candidate.pool, count=candidate.count) for candidate in outcome)
        takes[request.request_id] = takes.get(request.request_id, ()) + taken
    return Choice(takes=takes)


_NOBODY: frozenset[str] = frozenset()


class _Stock:
    """What is left of the pools while requests are served one after the other."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self.all = [Candidate(index, pool, pool.count) for index, pool in enumerate(pools)]
        self.left = [pool.count for pool in pools]
        self.takers: dict[int, frozenset[str]] = {}
        self.blockers: dict[int, frozenset[str]] = {}
        self._pfs: dict[str, list[int]] = {}
        self._vfs: dict[str, list[int]] = {}
        for index, pool in enumerate(pools):
            if pool.dev_type is DeviceType.PF:
                self._pfs.setdefault(pool.address, []).append(index)
            elif pool.dev_type in VIRTUAL:
                self._vfs.setdefault(pool.address, []).append(index)

    def take(self, taken: Candidates, label: str, *, apart: bool) -> None:
        for candidate in taken:
            self.left[candidate.index] -= candidate.count
            if apart and candidate.pool.rp_uuid is not None:
                self.left[candidate.index] = 0
            self.takers[candidate.index] = self.takers.get(candidate.index, _NOBODY) | {label}
            for relative in self._relatives(candidate.pool):
                self.left[relative] = 0
                self.blockers[relative] = self.blockers.get(relative, _NOBODY) | {label}

    def _relatives(self, pool: Pool) -> list[int]:
        if pool.dev_type is DeviceType.PF:
            return self._vfs.get(pool.address, [])
        return self._pfs.get(pool.address, []) if pool.dev_type in VIRTUAL else []


_Keep = Callable[[Situation, Candidates], Candidates]
_Explain = Callable[[Situation, Candidates, Candidates], Reason]

STEPS: tuple[tuple[_Keep, _Explain], ...] = (
    (eligible.with_properties, explain.properties),
    (eligible.without_unasked_pfs, explain.pfs),
    (eligible.without_unasked_vdpa, explain.vdpa),
    (eligible.without_unasked_remote_managed, explain.remote_managed),
    (eligible.left_over, explain.taken),
    (eligible.among_allowed, explain.allowed),
    (eligible.of_providers, explain.providers),
    (eligible.together, explain.dependency),
    (eligible.near, explain.numa),
)


_Tier = Callable[[Candidate], tuple[int, ...]]


def _tiers(situation: Situation, later: Sequence[PciRequest], providers: ProviderChoice) -> _Tier:
    """What comes before all nearness of devices to each other: policy prefers them, no later request of the server needs them,
    and no tag keeps them for others."""

    def tier(candidate: Candidate) -> tuple[int, ...]:
        rivals = sum(
            eligible.has_properties(candidate.pool, request) and providers.allows(request, candidate.pool.rp_uuid)
            for request in later
        )
        return eligible.is_far(situation, candidate), rivals, tag_count(candidate.pool)

    return tier


def _serve(situation: Situation, candidates: Candidates, tier: _Tier | None) -> list[Candidate] | Refusal:
    """The devices of one request: candidates whose counts are what to take; without ``tier`` the first ones."""
    kept = _narrowed(situation, candidates)
    if isinstance(kept, Refusal):
        return kept
    count = situation.request.count
    return first(kept, count) if tier is None else choose(kept, count, tier)


def _narrowed(situation: Situation, candidates: Candidates) -> Candidates | Refusal:
    """The devices that the request may take, at least as many as it wants."""
    count = situation.request.count
    if count < 1:
        return Refusal(reasons=(explain.bad_count(situation.request),))
    earlier: list[Reason] = []
    before = total(candidates)
    for keep, why in STEPS:
        kept = keep(situation, candidates)
        after = total(kept)
        if after < count:
            return Refusal(reasons=(why(situation, candidates, kept), *earlier))
        # Devices of other kinds are no reason: every host has some, and telling them hides what decided.
        if after < before and keep is not eligible.with_properties:
            earlier.append(why(situation, candidates, kept))
        candidates, before = kept, after
    return candidates


def _providers_of(request: PciRequest, providers: ProviderChoice | None) -> tuple[str, ...]:
    """Ports are never in Placement, whatever is listed under their id."""
    chosen = ProviderChoice() if providers is None or request.from_port else providers
    return chosen.by_request.get(request.request_id, ())

"""The steps that decide which devices a request may take. Each keeps some of the candidates it is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jetbridge.pci.device import VIRTUAL, DeviceType
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import NumaPolicy, PciRequest, Properties
from jetbridge.pci.words import lenient_bool

NOT_COMPARED = frozenset({"resource_class", "traits", "rp_uuid", "rp_uuids"})
"""Properties that speak to Placement; pools don't carry them."""

_POOL_FACTS = frozenset({"vendor_id", "product_id", "numa_node", "dev_type", "address", "parent_ifname"})


@dataclass(frozen=True)
class AffinityCells:
    """Where a guest lies: the host cells its cells are on, and the socket of every host cell (None: unknown)."""

    chosen: frozenset[int]
    sockets: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """``count`` devices of a pool that are still in the running; ``index`` is the pool's place in the list given to ``fit``."""

    index: int
    pool: Pool
    count: int


Candidates = Sequence[Candidate]


@dataclass(frozen=True)
class Situation:
    """One request, and what it meets: the guest's place, the providers chosen for it (empty: unrestricted) and those it may choose among
    (None: any), and by pool index how many devices are left and who of the same server's requests took devices or their relatives.
    ``apart``: no provider gives two devices."""

    request: PciRequest
    cells: AffinityCells | None
    providers: Sequence[str]
    left: Sequence[int]
    takers: Mapping[int, frozenset[str]]
    blockers: Mapping[int, frozenset[str]]
    allowed: frozenset[str] | None = None
    apart: bool = False


def total(candidates: Candidates) -> int:
    return sum(candidate.count for candidate in candidates)


def mismatches(pool: Pool, properties: Properties, *, from_port: bool) -> list[str]:
    """The names of the properties that the pool doesn't have as wanted. Letter case doesn't matter.

    A port on a network without physical network wants None, and means pools offered for such networks: those that carry
    the key. Otherwise it would take any untagged VF, a GPU's too.
    """
    wrong = []
    for name, wanted in properties.items():
        if name in NOT_COMPARED:
            continue
        missing = from_port and name == "physical_network" and name not in pool.tags
        if missing or _folded(wanted) != _folded(pool_value(pool, name)):
            wrong.append(name)
    return wrong


def pool_value(pool: Pool, name: str) -> str | None:
    """What a pool answers to a property's name; None when it has no such key."""
    value = getattr(pool, name) if name in _POOL_FACTS else pool.tags.get(name)
    return None if value is None else str(value)


def with_properties(situation: Situation, candidates: Candidates) -> Candidates:
    return [candidate for candidate in candidates if has_properties(candidate.pool, situation.request)]


def has_properties(pool: Pool, request: PciRequest) -> bool:
    """Of any of the alternatives."""
    return any(not mismatches(pool, properties, from_port=request.from_port) for properties in request.spec)


def without_unasked_pfs(situation: Situation, candidates: Candidates) -> Candidates:
    """A PF takes all its VFs with it, so it is only given to those who name its type."""
    return _without_type(DeviceType.PF, situation, candidates)


def without_unasked_vdpa(situation: Situation, candidates: Candidates) -> Candidates:
    return _without_type(DeviceType.VDPA, situation, candidates)


def without_unasked_remote_managed(situation: Situation, candidates: Candidates) -> Candidates:
    if any(lenient_bool(properties.get("remote_managed")) for properties in situation.request.spec):
        return candidates
    return [candidate for candidate in candidates if not lenient_bool(candidate.pool.tags.get("remote_managed"))]


def left_over(situation: Situation, candidates: Candidates) -> Candidates:
    """What the server's earlier requests didn't take, and didn't block by taking a relative."""
    kept = []
    for candidate in candidates:
        left = situation.left[candidate.index]
        if left > 0:
            kept.append(candidate if left == candidate.count else replace(candidate, count=left))
    return kept


def among_allowed(situation: Situation, candidates: Candidates) -> Candidates:
    """What Placement could give. A provider with two pools is left out: the claim, who is told the provider alone, could not tell
    which of them was meant."""
    allowed = situation.allowed
    if allowed is None:
        return candidates
    pools_per_provider = Counter(candidate.pool.rp_uuid for candidate in candidates)
    return [
        replace(candidate, count=1) if situation.apart else candidate
        for candidate in candidates
        if candidate.pool.rp_uuid in allowed and pools_per_provider[candidate.pool.rp_uuid] == 1
    ]


def of_providers(situation: Situation, candidates: Candidates) -> Candidates:
    """Exactly what Placement allocated: each listed provider gives as many devices as it is listed, or nothing is kept of it.

    A list of another length than the request's count, or a provider with two pools, can't be followed: nothing is kept.
    """
    wanted = Counter(situation.providers)
    if not wanted:
        return candidates
    listed = [candidate for candidate in candidates if candidate.pool.rp_uuid in wanted]
    pools_per_provider = Counter(candidate.pool.rp_uuid for candidate in listed)
    if wanted.total() != situation.request.count or any(count > 1 for count in pools_per_provider.values()):
        return []
    return [
        replace(candidate, count=wanted[candidate.pool.rp_uuid])
        for candidate in listed
        if candidate.pool.rp_uuid and candidate.count >= wanted[candidate.pool.rp_uuid]
    ]


def together(situation: Situation, candidates: Candidates) -> Candidates:
    """A PF and its VFs can't both be given: where both are candidates the VFs stay, for they are at least as many."""
    with_vfs = {candidate.pool.address for candidate in candidates if candidate.pool.dev_type in VIRTUAL}
    return [
        candidate
        for candidate in candidates
        if candidate.pool.dev_type is not DeviceType.PF or candidate.pool.address not in with_vfs
    ]


def near(situation: Situation, candidates: Candidates) -> Candidates:
    if situation.cells is None:
        return candidates
    return allowed_by(situation.request.policy, candidates, situation.cells, situation.request.count)


def allowed_by(policy: NumaPolicy, candidates: Candidates, cells: AffinityCells, wanted: int) -> Candidates:
    """The candidates that a NUMA policy allows, in the order to take them."""
    affine = [candidate for candidate in candidates if candidate.pool.numa_node in cells.chosen]
    if policy is NumaPolicy.REQUIRED or total(affine) >= wanted:
        return affine
    if policy is NumaPolicy.SOCKET:
        nodes = socket_nodes(cells)
        return [candidate for candidate in candidates if candidate.pool.numa_node in nodes]
    allowed = cells.chosen | {None}
    acceptable = [candidate for candidate in candidates if candidate.pool.numa_node in allowed]
    if policy is NumaPolicy.LEGACY or total(acceptable) >= wanted:
        return acceptable
    return acceptable + [candidate for candidate in candidates if candidate.pool.numa_node not in allowed]


def is_far(situation: Situation, candidate: Candidate) -> bool:
    """Whether policy preferred takes the device only after others: it is not on the guest's host cells, nor may it be."""
    if situation.cells is None or situation.request.policy is not NumaPolicy.PREFERRED:
        return False
    return candidate.pool.numa_node not in situation.cells.chosen | {None}


def socket_nodes(cells: AffinityCells) -> frozenset[int]:
    """All host nodes on the sockets that the guest lies on; empty when the host doesn't tell every node's socket."""
    if None in cells.sockets.values():
        return frozenset()
    sockets = {cells.sockets[cell] for cell in cells.chosen if cell in cells.sockets}
    return frozenset(node for node, socket in cells.sockets.items() if socket in sockets)


def _without_type(dev_type: DeviceType, situation: Situation, candidates: Candidates) -> Candidates:
    if any(properties.get("dev_type") == dev_type for properties in situation.request.spec):
        return candidates
    return [candidate for candidate in candidates if candidate.pool.dev_type is not dev_type]


def _folded(value: str | None) -> str | None:
    return None if value is None else value.lower()

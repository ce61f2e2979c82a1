"""Which of the devices that a request may take: near each other, and so that what is left stays whole (F13).

Devices that can be given together form groups within groups: an NVLink or similar fabric, a NUMA node, a PCIe switch, a card's
virtual functions. A request takes the smallest group that holds all it wants, a group that is broken already before one that is
whole, and more than one group only when none holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from jetbridge.pci.eligible import Candidate, Candidates, total
from jetbridge.pci.pool import Group, Level, Pool

LEVELS = (Level.FABRIC, Level.NODE, Level.SWITCH, Level.CARD)
"""From the widest to the narrowest."""

_NEARNESS = frozenset({Level.FABRIC, Level.NODE, Level.SWITCH})
"""Levels that make devices work better together. To be of one card only leaves other cards whole."""


def choose(candidates: Candidates, count: int, tier: Callable[[Candidate], Hashable]) -> list[Candidate]:
    """Candidates whose counts are what to take, ``count`` in all; there must be so many. Lower tiers (any values that can be
    ordered) are used up before higher ones; in a tier the groups decide, and between equals the order given."""
    tiers: dict[Hashable, list[Candidate]] = {}
    for candidate in candidates:
        tiers.setdefault(tier(candidate), []).append(candidate)
    chosen: list[Candidate] = []
    for key in sorted(tiers):  # type: ignore[type-var]  # the caller's promise
        wanted = count - total(chosen)
        if wanted > 0:
            chosen += _pick(tiers[key], wanted, 0)
    places = {candidate.index: place for place, candidate in enumerate(candidates)}
    return sorted(chosen, key=lambda candidate: places[candidate.index])


def described(taken: Sequence[tuple[Pool, int]]) -> str:
    """Which devices, and what they have in common: pools and how many of each."""
    count = sum(took for _, took in taken)
    common = _common([pool for pool, _ in taken])
    devices = ", ".join(f"{took} of {pool.address}" if pool.count > 1 else pool.address for pool, took in taken)
    if common is None:
        return devices if count == 1 else f"{devices} (no group holds {count})"
    return f"{devices} ({count} of {common.size} on {_WORDS[common.level]} {common.name})"


_WORDS: Mapping[Level, str] = {
    Level.FABRIC: "fabric",
    Level.NODE: "NUMA node",
    Level.SWITCH: "PCIe switch",
    Level.CARD: "card",
}


def _common(pools: Sequence[Pool]) -> Group | None:
    """The narrowest group that all belong to."""
    for level in reversed(LEVELS):
        groups = {_group(pool, level) for pool in pools}
        if len(groups) == 1 and (group := groups.pop()) is not None and group.size > 1:
            return group
    return None


def _group(pool: Pool, level: Level) -> Group | None:
    return next((group for group in pool.groups if group.level is level), None)


@dataclass(frozen=True)
class _Members:
    """Candidates of one group; ``size`` counts its devices of their kinds, given away or not. ``name`` None: of no group."""

    name: str | None
    candidates: tuple[Candidate, ...]
    size: int

    @property
    def free(self) -> int:
        return total(self.candidates)

    def is_broken_by(self, count: int) -> bool:
        """Whether the group is whole, and would not be whole or gone afterwards."""
        return self.name is not None and count < self.free == self.size


def _pick(candidates: Candidates, count: int, depth: int) -> list[Candidate]:
    if count >= total(candidates):
        return list(candidates)
    if depth == len(LEVELS):
        return first(candidates, count)
    groups = _divided(candidates, LEVELS[depth])
    if all(group.name is None for group in groups):
        return _pick(candidates, count, depth + 1)
    real = [group for group in groups if group.name is not None]
    # One device may as well be of no group at all, but several of no group are not together.
    holding = [group for group in (groups if count == 1 else real) if group.free >= count]
    if holding:

        def rank(group: _Members) -> tuple[int, ...]:
            return -_nearness(group.candidates, count, depth + 1), group.is_broken_by(count), group.free

        return _pick(min(holding, key=rank).candidates, count, depth + 1)
    largest = max(real, key=lambda group: group.free)
    rest = [candidate for candidate in candidates if candidate not in largest.candidates]
    return [*largest.candidates, *_pick(rest, count - largest.free, depth)]


def _nearness(candidates: Candidates, count: int, depth: int) -> int:
    """On how many of the levels from ``depth`` on one group could hold so many."""
    if count == 1:
        return 0
    best = 0
    for at in range(depth, len(LEVELS)):
        if LEVELS[at] in _NEARNESS:
            for group in _divided(candidates, LEVELS[at]):
                if group.name is not None and group.free >= count:
                    best = max(best, 1 + _nearness(group.candidates, count, at + 1))
    return best


def _divided(candidates: Candidates, level: Level) -> list[_Members]:
    members: dict[str | None, list[Candidate]] = {}
    sizes: dict[str | None, dict[Hashable, int]] = {}
    for candidate in candidates:
        group = _group(candidate.pool, level)
        name = None if group is None else group.name
        members.setdefault(name, []).append(candidate)
        sizes.setdefault(name, {})[candidate.pool.kind] = 0 if group is None else group.size
    return [_Members(name, tuple(found), sum(sizes[name].values())) for name, found in members.items()]


def first(candidates: Candidates, count: int) -> list[Candidate]:
    taken: list[Candidate] = []
    for candidate in candidates:
        if count > 0:
            took = min(count, candidate.count)
            taken.append(replace(candidate, count=took))
            count -= took
    return taken

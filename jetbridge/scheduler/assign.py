"""Which provider serves which request group, where devices don't decide it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MOST_STEPS = 10_000
"""How many dead ends a search may meet: whether groups of several sizes fit is a packing problem."""


def assigned(eligible: Sequence[Sequence[str]], places: Mapping[str, int]) -> tuple[str, ...] | None:
    """A provider for each group, of those eligible for it; each provider serves at most as many groups as it has ``places``. None: there
    is no way. A maximum matching by augmenting paths (Kuhn's algorithm)."""
    holders: dict[str, list[int]] = {}

    def place(group: int, seen: set[str]) -> bool:
        for provider in eligible[group]:
            if provider in seen:
                continue
            seen.add(provider)
            held = holders.setdefault(provider, [])
            if len(held) < places.get(provider, 0):
                held.append(group)
                return True
            for at, other in enumerate(held):
                if place(other, seen):
                    held[at] = group
                    return True
        return False

    if not all(place(group, set()) for group in range(len(eligible))):
        return None
    provider_of = {group: provider for provider, groups in holders.items() for group in groups}
    return tuple(provider_of[group] for group in range(len(eligible)))


def packed(
    wanted: Sequence[Mapping[str, int]], eligible: Sequence[Sequence[str]], free: Mapping[str, Mapping[str, int]]
) -> tuple[str, ...] | None:
    """A provider for each group, which may share one as long as it has enough ``free`` of every class for all of its groups.
    None: there is no way, or none was found within ``MOST_STEPS``.

    The groups that want most choose first; what was tried and led nowhere is not tried again.
    """
    order = sorted(range(len(wanted)), key=lambda group: -sum(wanted[group].values()))
    room = {provider: dict(classes) for provider, classes in free.items()}
    chosen: dict[int, str] = {}
    dead: set[object] = set()

    def place(at: int) -> bool:
        if at == len(order):
            return True
        state = (at, frozenset((provider, frozenset(classes.items())) for provider, classes in room.items()))
        if state in dead or len(dead) >= MOST_STEPS:
            return False
        group = order[at]
        for provider in eligible[group]:
            has = room.get(provider, {})
            if any(has.get(name, 0) < amount for name, amount in wanted[group].items()):
                continue
            before = dict(has)
            room[provider] = {name: left - wanted[group].get(name, 0) for name, left in has.items()}
            chosen[group] = provider
            if place(at + 1):
                return True
            room[provider] = before
        dead.add(state)
        return False

    return tuple(chosen[group] for group in range(len(wanted))) if place(0) else None


def split(amount: int, free: Mapping[str, int]) -> dict[str, int] | None:
    """Amounts that add up to ``amount``, of as few providers as can be: those with the most free first. None: there isn't enough."""
    taken: dict[str, int] = {}
    for provider, available in sorted(free.items(), key=lambda item: -item[1]):
        if amount > 0 and available > 0:
            taken[provider] = min(amount, available)
            amount -= taken[provider]
    return taken if amount <= 0 else None

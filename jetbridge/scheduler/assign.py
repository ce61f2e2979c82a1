"""Which provider serves which request group, where devices don't decide it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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


def split(amount: int, free: Mapping[str, int]) -> dict[str, int] | None:
    """Amounts that add up to ``amount``, of as few providers as can be: those with the most free first. None: there isn't enough."""
    taken: dict[str, int] = {}
    for provider, available in sorted(free.items(), key=lambda item: -item[1]):
        if amount > 0 and available > 0:
            taken[provider] = min(amount, available)
            amount -= taken[provider]
    return taken if amount <= 0 else None

"""Placing guest cells on host cells without walking through every permutation.

Host cells that can carry the same guest cells and whose devices look alike form a class. Whether a placement works
depends only on how many cells of each class it takes, so what failed once is not tried again under another
arrangement, and a matching over the cells still open cuts what can't be finished. Groups of cells (sockets) that hold
the same classes can change places as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from jetbridge.errors import JetbridgeError

Answer = TypeVar("Answer")

MAX_PLACEMENTS = 512
"""Placements whose devices are looked at before the search gives up: far more classes than real hosts have."""


class SearchBound(JetbridgeError):
    """The search reached its bound without an answer."""

    template = "no answer after {placements} placements"


def find_placement(
    fits: Sequence[Sequence[bool]],
    classes: Sequence[Hashable],
    accept: Callable[[Sequence[int]], Answer | None],
    max_placements: int = MAX_PLACEMENTS,
    *,
    groups: Sequence[Hashable] | None = None,
) -> tuple[tuple[int, ...], Answer] | None:
    """The first placement in lexicographic order that ``accept`` takes, with its answer; None: there is none.

    ``fits[guest][host]`` says which pairs work. A placement is the host of each guest, all different. ``accept`` must
    answer alike for placements that take equally many hosts of each class, group by group (``groups``: every host's; None:
    they are one), whichever of the groups that hold equally many of each class it is. Raises ``SearchBound``.
    """
    guests, hosts = len(fits), len(classes)
    kinds = list(zip(groups or [None] * hosts, classes, strict=True))
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    class_of = [numbers[kind] for kind in kinds]
    shapes = _shapes(kinds, numbers)
    dead: set[Hashable] = set()
    looked_at = 0

    def descend(placed: tuple[int, ...]) -> tuple[tuple[int, ...], Answer] | None:
        nonlocal looked_at
        taken = Counter(class_of[host] for host in placed)
        state = tuple(sorted(tuple((look, size, taken[kind]) for look, size, kind in shape) for shape in shapes))
        if state in dead:
            return None
        if len(placed) == guests:
            looked_at += 1
            if looked_at > max_placements:
                raise SearchBound(placements=max_placements)
            answer = accept(placed)
            if answer is not None:
                return placed, answer
        else:
            tried: set[int] = set()
            for host in range(hosts):
                kind = class_of[host]
                if host in placed or kind in tried or not fits[len(placed)][host]:
                    continue
                tried.add(kind)
                deeper = (*placed, host)
                if not matchable(fits[len(deeper) :], frozenset(deeper)):
                    continue
                found = descend(deeper)
                if found is not None:
                    return found
        # How many cells are placed is the sum of what is taken: the counts alone name the state.
        dead.add(state)
        return None

    if not matchable(fits, frozenset()):
        return None
    return descend(())


def _shapes(
    kinds: Sequence[tuple[Hashable, Hashable]], numbers: Mapping[tuple[Hashable, Hashable], int]
) -> list[list[tuple[int, int, int]]]:
    """Per group what it holds: class (as a number), how many hosts of it, and the number of the class in the group. Groups are
    alike when they are equal but for the last."""
    looks = {look: number for number, look in enumerate(dict.fromkeys(look for _, look in kinds))}
    sizes = Counter(kinds)
    shapes: dict[Hashable, list[tuple[int, int, int]]] = {}
    for (group, look), number in numbers.items():
        shapes.setdefault(group, []).append((looks[look], sizes[group, look], number))
    return [sorted(shape) for shape in shapes.values()]


def matchable(fits: Sequence[Sequence[bool]], closed: frozenset[int]) -> bool:
    """Can every row have a column of its own, outside ``closed``? (Kuhn's augmenting paths)"""
    owner: dict[int, int] = {}

    def augment(guest: int, seen: set[int]) -> bool:
        for host, works in enumerate(fits[guest]):
            if works and host not in closed and host not in seen:
                seen.add(host)
                if host not in owner or augment(owner[host], seen):
                    owner[host] = guest
                    return True
        return False

    return all(augment(guest, set()) for guest in range(len(fits)))

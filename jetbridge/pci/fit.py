"""The one fit: do these requests fit these pools, and with which devices? Used by filters, dry runs and the claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jetbridge.pci.pool import Pool
from jetbridge.pci.request import PciRequest, ProviderChoice
from jetbridge.reasons import Reason


@dataclass(frozen=True)
class AffinityCells:
    """Where a guest lies: the host cells its cells are on, and the socket of every host cell (None: unknown)."""

    chosen: frozenset[int]
    sockets: Mapping[int, int | None] = field(default_factory=dict)


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
    reasons: tuple[Reason, ...]


def fit(
    pools: Sequence[Pool],
    requests: Sequence[PciRequest],
    cells: AffinityCells | None = None,
    providers: ProviderChoice | None = None,
) -> Choice | Refusal:
    """All requests jointly, in order; nothing passed in is changed."""
    raise NotImplementedError

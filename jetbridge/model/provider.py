"""Resource providers as values: what a host's agent wants to see in Placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Inventory:
    """``total`` of a resource class. ``None`` is not sent, and what an operator set there stays."""

    total: int
    max_unit: int
    min_unit: int = 1
    step_size: int = 1
    reserved: int | None = None
    allocation_ratio: float | None = None


@dataclass(frozen=True)
class Provider:
    """A provider and what the agent says of it. ``inventories`` are by resource class; ``traits`` are ours: traits that others
    set on the same provider stay."""

    name: str
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Seen:
    """A provider as Placement shows it. ``allocations``: amounts by class for each consumer; ``reserved``: by class, what somebody has
    set apart."""

    traits: frozenset[str] = frozenset()
    allocations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    reserved: Mapping[str, int] = field(default_factory=dict)

    @property
    def usage(self) -> dict[str, int]:
        """What is used of each class, by all consumers."""
        used: dict[str, int] = {}
        for amounts in self.allocations.values():
            for name, amount in amounts.items():
                used[name] = used.get(name, 0) + amount
        return {name: amount for name, amount in used.items() if amount > 0}


@dataclass(frozen=True)
class ProviderTree:
    """A host's providers: the root, and children one level below it. ``heal`` are allocations that a server must have because it
    holds the devices: consumer, child's name, class, amount."""

    root: Provider
    children: tuple[Provider, ...] = ()
    heal: tuple[tuple[str, str, str, int], ...] = ()

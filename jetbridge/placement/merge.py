"""What is ours of a provider, and what is somebody else's: the one is brought up to date, the other stays. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetbridge.model.provider import Inventory
from jetbridge.placement.pci_tree import ONE_TIME_USE

Inventories = Mapping[str, Mapping[str, Any]]
"""By class, as Placement's API has them."""

DEFAULTS: Mapping[str, Any] = {"reserved": 0, "min_unit": 1, "step_size": 1, "allocation_ratio": 1.0}


def merged_inventories(
    wanted: Mapping[str, Inventory], current: Inventories, traits: frozenset[str] = frozenset()
) -> dict[str, dict[str, Any]]:
    """The inventories to write. What ``wanted`` leaves open keeps what it has (``reserved`` by an operator, say).

    A one-time-use device (by its ``traits``) that gets another class stays as reserved as it was under the former one.
    """
    return {name: _merged(name, each, current, traits) for name, each in wanted.items()}


def _merged(name: str, wanted: Inventory, current: Inventories, traits: frozenset[str]) -> dict[str, Any]:
    base = {**DEFAULTS, **current.get(name, {})}
    if name not in current and ONE_TIME_USE in traits:
        base["reserved"] = max((each["reserved"] for each in current.values()), default=0)
    reserved = base["reserved"] if wanted.reserved is None else wanted.reserved
    return {
        "total": wanted.total,
        "reserved": min(reserved, wanted.total),
        "min_unit": base["min_unit"] if wanted.min_unit == 1 else wanted.min_unit,
        "max_unit": wanted.max_unit,
        "step_size": base["step_size"] if wanted.step_size == 1 else wanted.step_size,
        "allocation_ratio": base["allocation_ratio"] if wanted.allocation_ratio is None else wanted.allocation_ratio,
    }


def merged_traits(wanted: frozenset[str], ours: frozenset[str], current: frozenset[str]) -> frozenset[str]:
    """The traits to write. ``ours``: those that we wrote before, and nobody else's."""
    return (current - ours) | wanted


def our_traits(wanted: frozenset[str], ours: frozenset[str], current: frozenset[str]) -> frozenset[str]:
    """Which of ``wanted`` are ours once they are written: one that somebody else had set before stays theirs."""
    return wanted & (ours | (wanted - current))

from __future__ import annotations

from typing import Any

import pytest

from jetbridge.model.provider import Inventory
from jetbridge.placement.merge import merged_inventories, merged_traits, our_traits
from jetbridge.placement.pci_tree import ONE_TIME_USE

PLAIN = {"total": 1, "reserved": 0, "min_unit": 1, "max_unit": 1, "step_size": 1, "allocation_ratio": 1.0}


@pytest.mark.parametrize(
    ("wanted", "current", "result"),
    [
        (Inventory(1, 1), {}, PLAIN),
        # Case 89: an operator's reserved stays, whatever else changes.
        (Inventory(1, 1), {**PLAIN, "reserved": 1}, {**PLAIN, "reserved": 1}),
        (Inventory(3, 3), {**PLAIN, "reserved": 1}, {**PLAIN, "total": 3, "max_unit": 3, "reserved": 1}),
        (Inventory(1, 1), {**PLAIN, "total": 3, "max_unit": 3, "reserved": 2}, {**PLAIN, "reserved": 1}),
        (Inventory(1, 1, reserved=1), PLAIN, {**PLAIN, "reserved": 1}),
        (Inventory(1, 1, reserved=0), {**PLAIN, "reserved": 1}, PLAIN),
        (
            Inventory(1, 1),
            {**PLAIN, "allocation_ratio": 2.0, "step_size": 2, "min_unit": 1},
            {**PLAIN, "allocation_ratio": 2.0, "step_size": 2},
        ),
        (Inventory(8, 8, allocation_ratio=4.0), PLAIN, {**PLAIN, "total": 8, "max_unit": 8, "allocation_ratio": 4.0}),
    ],
)
def test_what_is_left_open_stays(wanted: Inventory, current: dict[str, Any], result: dict[str, Any]) -> None:
    assert merged_inventories({"A": wanted}, {"A": current} if current else {}) == {"A": result}


def test_a_used_device_stays_reserved_when_its_class_changes() -> None:
    before = {"OLD": {**PLAIN, "reserved": 1}}
    once = frozenset({ONE_TIME_USE})
    assert merged_inventories({"NEW": Inventory(1, 1)}, before, once) == {"NEW": {**PLAIN, "reserved": 1}}
    assert merged_inventories({"NEW": Inventory(1, 1)}, before) == {"NEW": PLAIN}


def test_only_our_traits_go() -> None:
    wanted, ours, current = frozenset("AB"), frozenset("BC"), frozenset("BCX")
    assert merged_traits(wanted, ours, current) == frozenset("ABX")
    assert our_traits(wanted, ours, current) == frozenset("AB")


def test_a_trait_that_an_operator_had_set_before_stays_the_operators() -> None:
    ours = our_traits(frozenset("A"), frozenset(), frozenset("A"))
    assert ours == frozenset()
    assert merged_traits(frozenset(), ours, frozenset("A")) == frozenset("A")

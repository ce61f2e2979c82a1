from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jetbridge.compute.one_time_use import after_claim, after_release, after_report, cleaned, returned
from jetbridge.pci.device import Condition, PciDevice, Status
from tests.unit.pci.build import device

FRESH = device("0000:17:00.0", one_time_use=True)
OWNED = replace(FRESH, status=Status.ALLOCATED, instance_uuid="a")


def marked(device: PciDevice, mark: str | None, condition: Condition = Condition.OK) -> PciDevice:
    return replace(device, extra_info={} if mark is None else {"one_time_use": mark}, condition=condition)


def test_a_claim_uses_a_one_time_device_and_no_other() -> None:
    assert after_claim(OWNED) == marked(OWNED, "used")
    plain = replace(OWNED, one_time_use=False)
    assert after_claim(plain) == plain


@pytest.mark.parametrize(
    ("mark", "cleaner", "in_placement", "condition"),
    [
        ("reserved", False, True, Condition.OK),  # Placement keeps it: an operator may lower that at any moment
        ("reserved", False, False, Condition.CLEANING),
        ("used", False, True, Condition.CLEANING),  # not reserved yet
        ("used", False, False, Condition.CLEANING),
        ("reserved", True, True, Condition.CLEANING),
    ],
)
def test_a_release_keeps_what_was_used(mark: str, cleaner: bool, in_placement: bool, condition: Condition) -> None:
    back = after_release(marked(FRESH, mark), cleaner=cleaner, in_placement=in_placement)
    assert back == marked(FRESH, mark, condition)


def test_a_cleaner_is_for_every_device() -> None:
    plain = replace(FRESH, one_time_use=False)
    assert after_release(plain, cleaner=True, in_placement=False).condition is Condition.CLEANING
    assert after_release(plain, cleaner=False, in_placement=False) == plain


@pytest.mark.parametrize(
    "device",
    [
        marked(OWNED, "used"),
        replace(FRESH, status=Status.REMOVED),
        replace(FRESH, condition=Condition.UNKNOWN),
        replace(FRESH, condition=Condition.LOST),
    ],
)
def test_a_release_leaves_alone_what_is_not_free_and_known(device: PciDevice) -> None:
    assert after_release(device, cleaner=True, in_placement=False) == device


WAITS = Condition.CLEANING


@pytest.mark.parametrize(
    ("before", "reserved", "more", "after"),
    [
        # Placement has set it apart.
        (marked(OWNED, "used"), 1, {}, marked(OWNED, "reserved")),
        (marked(OWNED, "used"), 0, {}, marked(OWNED, "used")),
        (marked(FRESH, "used", WAITS), 1, {"in_placement": True}, marked(FRESH, "reserved")),
        (marked(FRESH, "used", WAITS), 1, {}, marked(FRESH, "reserved", WAITS)),
        (
            marked(FRESH, "used", WAITS),
            1,
            {"in_placement": True, "cleaner": True},
            marked(FRESH, "reserved", WAITS),
        ),
        # The line got one_time_use while a server has the device: the row doesn't know yet.
        (replace(OWNED, one_time_use=False), 1, {}, replace(marked(OWNED, "reserved"), one_time_use=False)),
        (replace(OWNED, one_time_use=False), 1, {"one_time_use": False}, replace(OWNED, one_time_use=False)),
        # An operator lowered it.
        (marked(FRESH, "reserved", WAITS), 0, {}, marked(FRESH, None)),
        (marked(FRESH, "reserved"), 0, {"in_placement": True}, marked(FRESH, None)),
        (marked(FRESH, "reserved", WAITS), 0, {"cleaner": True}, marked(FRESH, "reserved", WAITS)),
        (marked(OWNED, "reserved"), 0, {}, marked(OWNED, "reserved")),
        # It was cleaned, and Placement knows now.
        (marked(FRESH, "cleaned"), 0, {}, marked(FRESH, None)),
        (marked(FRESH, "cleaned"), 1, {}, marked(FRESH, "cleaned")),
        # An operator reserved a device that nobody has used.
        (FRESH, 1, {}, FRESH),
    ],
)
def test_what_a_report_finds(before: PciDevice, reserved: int, more: dict[str, Any], after: PciDevice) -> None:
    facts = {"one_time_use": True, "cleaner": False, "in_placement": False, **more}
    assert after_report(before, reserved, **facts) == after


def test_a_clean_device_comes_back() -> None:
    assert cleaned(marked(FRESH, "reserved", WAITS)) == marked(FRESH, "cleaned")
    plain = replace(FRESH, one_time_use=False)
    assert cleaned(replace(plain, condition=WAITS)) == plain
    assert cleaned(marked(FRESH, "reserved", Condition.UNKNOWN)).condition is Condition.UNKNOWN


PLAIN = replace(FRESH, one_time_use=False)


@pytest.mark.parametrize(
    ("before", "device", "cleaner", "after"),
    [
        (marked(FRESH, "reserved"), FRESH, False, marked(FRESH, "used", WAITS)),
        (marked(FRESH, "used", Condition.LOST), FRESH, True, marked(FRESH, "used", WAITS)),
        (marked(FRESH, "cleaned"), FRESH, False, FRESH),
        (FRESH, FRESH, True, FRESH),
        # The line says one_time_use no more.
        (marked(FRESH, "reserved", WAITS), PLAIN, False, PLAIN),
        # A cleaner's devices are clean when it says so.
        (replace(PLAIN, condition=WAITS), PLAIN, True, replace(PLAIN, condition=WAITS)),
        (replace(PLAIN, condition=Condition.LOST), PLAIN, True, replace(PLAIN, condition=WAITS)),
        (replace(PLAIN, condition=Condition.LOST), PLAIN, False, PLAIN),
        # Another card in the same place.
        (marked(replace(FRESH, product_id="1eb9"), "reserved", WAITS), FRESH, True, FRESH),
        (
            marked(replace(FRESH, serial="1"), "reserved", WAITS),
            replace(FRESH, serial="2"),
            True,
            replace(FRESH, serial="2"),
        ),
    ],
)
def test_being_away_made_no_device_cleaner(
    before: PciDevice, device: PciDevice, cleaner: bool, after: PciDevice
) -> None:
    assert returned(device, before, cleaner=cleaner) == after

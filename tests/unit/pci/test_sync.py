from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from jetbridge.errors import PciDeviceWrongAddressFormat
from jetbridge.pci.device import Condition, DeviceType, PciDevice, Status, allocate, claim, free
from jetbridge.pci.pool import pools_of
from jetbridge.pci.sync import (
    SyncResult,
    SyncWarning,
    WarningKind,
    after_free,
    mark_known,
    mark_unknown,
    synchronise,
)
from tests.unit.pci.build import Facts, by_address, device, report, specs

ANY_NVIDIA = specs('{"vendor_id":"10de"}')
T4 = specs('{"vendor_id":"10de","product_id":"1eb8"}')
TYPO = specs('{"vendor_id":"10de","product_id":"1eb9"}')
CARDS = [f"0000:{bus}:00.0" for bus in (17, 18, 19, 20)]


def sync(existing: Any, reports: Any, lines: Any = ANY_NVIDIA) -> SyncResult:
    numbers = count(1)
    return synchronise(existing, reports, lines, 7, lambda: f"new-{next(numbers)}")


def tracked(*reports: dict[str, Any]) -> dict[str, PciDevice]:
    """Devices as a first pass creates them."""
    return by_address(*sync([], reports).created)


def applied(devices: dict[str, PciDevice], result: SyncResult) -> dict[str, PciDevice]:
    after = {**devices, **by_address(*result.changed)}
    return {address: one for address, one in after.items() if one.status is not Status.REMOVED}


def owned(devices: dict[str, PciDevice], address: str, server: str = "A") -> dict[str, PciDevice]:
    devices = {**devices, **claim(devices, address, server, "r1")}
    return {**devices, **allocate(devices, address, server)}


def test_words_of_warnings() -> None:
    assert [*WarningKind] == ["gone", "uncovered", "replaced"]


def test_nothing_is_tracked_without_lines() -> None:
    assert sync([], [report(CARDS[0])], specs()) == SyncResult()


def test_new_devices_are_created_in_order_of_address() -> None:
    result = sync([], [report(CARDS[1]), report(CARDS[0]), report("0000:05:00.0", "8086:1572")])
    assert [(one.address, one.uuid, one.status) for one in result.created] == [
        (CARDS[0], "new-1", Status.AVAILABLE),
        (CARDS[1], "new-2", Status.AVAILABLE),
    ]
    assert result.created[0].compute_node_id == 7
    assert result.changed == result.created


def test_the_same_report_again_changes_nothing() -> None:
    reports = [report(address, numa_node=0, iommu_group=3) for address in CARDS]
    devices = tracked(*reports)
    assert sync(devices.values(), reports) == SyncResult()
    devices = owned(devices, CARDS[0])
    assert sync(devices.values(), reports) == SyncResult()


def test_f2_four_devices_removed_in_one_pass() -> None:
    devices = tracked(*map(report, CARDS))
    result = sync(devices.values(), [])
    assert [(one.address, one.status) for one in result.removed] == [(address, Status.REMOVED) for address in CARDS]
    assert result.changed == result.removed
    assert applied(devices, result) == {}


def test_removed_and_deleted_rows_are_not_looked_at() -> None:
    gone = [device(CARDS[0], status=Status.REMOVED), device(CARDS[1], status=Status.DELETED)]
    assert sync(gone, []) == SyncResult()
    assert [one.address for one in sync(gone, [report(CARDS[0])]).created] == [CARDS[0]]


def test_blocked_relatives_that_vanish_are_removed() -> None:
    devices = tracked(
        report("0000:3b:00.0", dev_type="type-PF"),
        report("0000:3b:00.1", dev_type="type-VF", parent_addr="0000:3b:00.0"),
    )
    pf = owned(devices, "0000:3b:00.0")
    assert [one.address for one in sync(pf.values(), [report("0000:3b:00.0", dev_type="type-PF")]).removed] == [
        "0000:3b:00.1"
    ]
    vf = owned(devices, "0000:3b:00.1")
    remaining = report("0000:3b:00.1", dev_type="type-VF", parent_addr="0000:3b:00.0")
    result = sync(vf.values(), [remaining])
    assert [one.address for one in result.removed] == ["0000:3b:00.0"]
    assert result.updated == ()


def test_f5_a_typo_keeps_the_rows_of_devices_in_use() -> None:
    reports = [report(CARDS[0]), report(CARDS[1])]
    devices = owned(tracked(*reports), CARDS[0], "server-1")
    result = sync(devices.values(), reports, TYPO)
    assert [one.address for one in result.removed] == [CARDS[1]]
    (held,) = result.held
    assert result.updated == (held,)
    assert held == replace(devices[CARDS[0]], condition=Condition.LOST)
    assert (held.status, held.instance_uuid) == (Status.ALLOCATED, "server-1")
    assert result.warnings == (
        SyncWarning(
            kind=WarningKind.UNCOVERED,
            address=CARDS[0],
            server="server-1",
            text="device 0000:17:00.0 [10de:1eb8] is allocated by server server-1, and no [pci]device_spec line matches it any "
            "more: restore the line, or move the server; the device is removed when the server gives it back",
            new=True,
        ),
    )
    again = sync(applied(devices, result).values(), reports, TYPO)
    assert (again.changed, again.held) == ((), (held,))
    assert [(warning.kind, warning.new) for warning in again.warnings] == [(WarningKind.UNCOVERED, False)]


def test_a_device_in_use_that_left_the_host_is_held() -> None:
    devices = tracked(report(CARDS[0]))
    devices = {**devices, **claim(devices, CARDS[0], "server-1")}
    result = sync(devices.values(), [])
    assert [(one.status, one.condition) for one in result.held] == [(Status.CLAIMED, Condition.LOST)]
    assert [(warning.kind, warning.server, warning.new) for warning in result.warnings] == [
        (WarningKind.GONE, "server-1", True)
    ]
    assert result.warnings[0].text == (
        "device 0000:17:00.0 [10de:1eb8] is claimed by server server-1, and the host doesn't report it any more: put it back, "
        "or move the server; the device is removed when the server gives it back"
    )


def test_a_held_device_that_comes_back_is_held_no_longer() -> None:
    devices = owned(tracked(report(CARDS[0])), CARDS[0])
    held = applied(devices, sync(devices.values(), []))
    result = sync(held.values(), [report(CARDS[0])])
    assert (result.held, result.warnings) == ((), ())
    assert result.updated == (devices[CARDS[0]],)


def test_a_held_device_is_removed_when_freed() -> None:
    devices = owned(tracked(report(CARDS[0])), CARDS[0])
    devices = applied(devices, sync(devices.values(), []))
    devices.update(free(devices, CARDS[0], "A"))
    assert pools_of(devices.values()) == ()
    changed = after_free(devices, [CARDS[0]], ANY_NVIDIA)
    assert [(one.address, one.status) for one in changed.values()] == [(CARDS[0], Status.REMOVED)]


def test_a_held_device_that_was_freed_goes_with_the_next_pass_at_the_latest() -> None:
    devices = {CARDS[0]: device(CARDS[0], condition=Condition.LOST)}
    assert [one.address for one in sync(devices.values(), []).removed] == [CARDS[0]]


@pytest.mark.parametrize("status", [Status.AVAILABLE, Status.UNAVAILABLE])
def test_a_row_with_a_stray_owner_is_held_and_does_not_end_the_pass(status: Status) -> None:
    stray = replace(device(CARDS[0]), status=status, instance_uuid="A")
    result = sync([stray, device(CARDS[1])], [])
    assert [one.address for one in result.removed] == [CARDS[1]]
    assert [(one.address, one.condition) for one in result.held] == [(CARDS[0], Condition.LOST)]
    [warning] = result.warnings
    assert warning.server == "A"
    assert "its row names server A" in warning.text


def test_d8_relatives_of_a_held_device_are_offered_after_free() -> None:
    vfs = [report(f"0000:3b:00.{n}", "10de:26ba", "type-VF", parent_addr="0000:3b:00.0") for n in (1, 2)]
    devices = owned(tracked(report("0000:3b:00.0", "10de:26b9", "type-PF"), *vfs), "0000:3b:00.0")
    only_vfs = specs('{"vendor_id":"10de","product_id":"26ba"}')
    devices = applied(devices, sync(devices.values(), [report("0000:3b:00.0", "10de:26b9", "type-PF"), *vfs], only_vfs))
    devices.update(free(devices, "0000:3b:00.0", "A"))
    devices.update(after_free(devices, ["0000:3b:00.0"], only_vfs))
    assert {one.address: one.status for one in devices.values()} == {
        "0000:3b:00.0": Status.REMOVED,
        "0000:3b:00.1": Status.AVAILABLE,
        "0000:3b:00.2": Status.AVAILABLE,
    }
    assert [(pool.address, pool.count) for pool in pools_of(devices.values())] == [("0000:3b:00.0", 2)]


def test_f6_pools_follow_a_card_that_becomes_a_pf() -> None:
    devices = tracked(report("0000:3b:00.0", "10de:26b9"))
    reports = [
        report("0000:3b:00.0", "10de:26b9", "type-PF"),
        report("0000:3b:00.1", "10de:26b9", "type-VF", parent_addr="0000:3b:00.0"),
    ]
    result = sync(devices.values(), reports)
    assert [(one.address, one.dev_type) for one in result.updated] == [("0000:3b:00.0", DeviceType.PF)]
    pools = pools_of(applied(devices, result).values())
    assert [(pool.dev_type, pool.count) for pool in pools] == [(DeviceType.PF, 1), (DeviceType.VF, 1)]


def test_d9_pools_follow_changed_ids_and_nodes() -> None:
    devices = tracked(report(CARDS[0], numa_node=0))
    result = sync(devices.values(), [report(CARDS[0], "10de:1eb9", numa_node=1)])
    (pool,) = pools_of(applied(devices, result).values())
    assert (pool.product_id, pool.numa_node) == ("1eb9", 1)
    assert result.warnings == ()


def test_new_tags_reach_free_devices_at_once() -> None:
    devices = tracked(report(CARDS[0]))
    result = sync(devices.values(), [report(CARDS[0])], specs('{"vendor_id":"10de","trusted":"true"}'))
    assert [one.pool_tags for one in result.updated] == [{"trusted": "true"}]


def test_a_change_of_a_device_in_use_waits_until_it_is_free() -> None:
    devices = owned(tracked(report(CARDS[0], numa_node=0)), CARDS[0])
    changed = report(CARDS[0], numa_node=1)
    result = sync(devices.values(), [changed])
    assert result.updated == (replace(devices[CARDS[0]], stale_update=changed),)
    assert result.warnings == ()
    devices = applied(devices, result)
    assert sync(devices.values(), [changed]) == SyncResult()
    devices.update(free(devices, CARDS[0], "A"))
    found = after_free(devices, [CARDS[0]], ANY_NVIDIA)
    assert {address: (one.numa_node, one.stale_update, one.status) for address, one in found.items()} == {
        CARDS[0]: (1, None, Status.AVAILABLE)
    }


def test_a_change_that_was_taken_back_is_forgotten() -> None:
    devices = owned(tracked(report(CARDS[0], numa_node=0)), CARDS[0])
    devices = applied(devices, sync(devices.values(), [report(CARDS[0], numa_node=1)]))
    result = sync(devices.values(), [report(CARDS[0], numa_node=0)])
    assert [one.stale_update for one in result.updated] == [None]


def test_a_noted_change_of_a_freed_device_is_forgotten_by_a_pass() -> None:
    stale = device(CARDS[0], stale_update=report(CARDS[0], numa_node=1))
    result = sync([stale], [report(CARDS[0], numa_node=0)])
    assert [(one.numa_node, one.stale_update) for one in result.updated] == [(0, None)]


def test_a_noted_change_that_no_line_matches_removes_the_freed_device() -> None:
    devices = {CARDS[0]: device(CARDS[0], stale_update=report(CARDS[0], "10de:1eb9"))}
    assert [one.status for one in after_free(devices, [CARDS[0]], T4).values()] == [Status.REMOVED]
    assert [one.product_id for one in after_free(devices, [CARDS[0]], ANY_NVIDIA).values()] == ["1eb9"]


def test_after_free_leaves_the_rest_alone() -> None:
    stale = report(CARDS[0], numa_node=1)
    devices = by_address(
        device(CARDS[0], status=Status.ALLOCATED, instance_uuid="A", stale_update=stale),
        device(CARDS[1], status=Status.REMOVED, stale_update=report(CARDS[1], numa_node=1)),
        device(CARDS[2]),
        device(CARDS[3], stale_update=report(CARDS[3], numa_node=1)),
    )
    assert after_free(devices, CARDS[:3], ANY_NVIDIA) == {}
    assert list(after_free(devices, CARDS, ANY_NVIDIA)) == [CARDS[3]]


def test_the_driver_of_a_device_in_use_is_no_change() -> None:
    """A guest's device is bound to VFIO; the record keeps the driver that it had before."""
    devices = owned(tracked(report(CARDS[0], driver="nvidia")), CARDS[0])
    assert sync(devices.values(), [report(CARDS[0], driver="vfio-pci")]) == SyncResult()
    result = sync(devices.values(), [report(CARDS[0], driver="vfio-pci", numa_node=1)])
    (noted,) = result.updated
    assert noted.stale_update is not None
    assert noted.stale_update["driver"] == "nvidia"
    without = owned(tracked(report(CARDS[0])), CARDS[0])
    assert sync(without.values(), [report(CARDS[0], driver="vfio-pci")]) == SyncResult()


def test_what_a_device_has_only_under_its_own_driver_is_kept_while_a_guest_has_it() -> None:
    """A VF that VFIO drives has no interface: it must not change pools when it is given back."""
    capabilities = {"network": ["rx"], "vpd": {"card_serial_number": "X1"}}
    full = report(CARDS[0], parent_ifname="ens1", mac_address="02:00:00:00:00:01", capabilities=capabilities)
    devices = owned(tracked(full), CARDS[0])
    assert sync(devices.values(), [report(CARDS[0])]) == SyncResult()
    assert sync(devices.values(), [report(CARDS[0], parent_ifname=None, capabilities=None)]) == SyncResult()
    partly = {"vpd": {"card_serial_number": "X1"}, "sriov": {"vf_num": 0}}
    changed = report(CARDS[0], parent_ifname="ens2", capabilities=partly)
    (noted,) = sync(devices.values(), [changed]).updated
    assert noted.stale_update == {
        **changed,
        "mac_address": "02:00:00:00:00:01",
        "capabilities": {**capabilities, **partly},
    }


def test_f28_another_card_in_use_that_no_line_matches() -> None:
    devices = owned(tracked(report(CARDS[0])), CARDS[0], "server-1")
    result = sync(devices.values(), [report(CARDS[0], "10de:1eb9")], T4)
    assert [one.condition for one in result.held] == [Condition.LOST]
    assert [(warning.kind, warning.new) for warning in result.warnings] == [(WarningKind.REPLACED, True)]
    assert "the host now has 0000:17:00.0 [10de:1eb9] in its place: put it back, or" in result.warnings[0].text


def serial(number: str) -> dict[str, Any]:
    return {"vpd": {"card_serial_number": number}}


def test_f28_another_card_at_an_address_in_use() -> None:
    devices = owned(tracked(report(CARDS[0], capabilities=serial("X1"))), CARDS[0], "server-1")
    other = report(CARDS[0], capabilities=serial("Z7"))
    result = sync(devices.values(), [other])
    assert result.updated == (replace(devices[CARDS[0]], stale_update=other),)
    assert result.warnings == (
        SyncWarning(
            kind=WarningKind.REPLACED,
            address=CARDS[0],
            server="server-1",
            text="server server-1 owns 0000:17:00.0 [10de:1eb8 serial X1], but the host now has 0000:17:00.0 [10de:1eb8 serial Z7]: "
            "the record stays until the server gives it back; stop the server before it uses the wrong device",
            new=True,
        ),
    )
    devices = applied(devices, result)
    assert [warning.new for warning in sync(devices.values(), [other]).warnings] == [False]
    third = report(CARDS[0], capabilities=serial("Y5"))
    assert [warning.new for warning in sync(devices.values(), [third]).warnings] == [True]
    devices = applied(devices, sync(devices.values(), [report(CARDS[0], capabilities=serial("X1"), numa_node=1)]))
    assert [warning.new for warning in sync(devices.values(), [other]).warnings] == [True]


def test_f28_another_card_at_a_free_address_is_simply_the_new_one() -> None:
    devices = tracked(report(CARDS[0], capabilities=serial("X1")))
    result = sync(devices.values(), [report(CARDS[0], capabilities=serial("Z7"))])
    assert [one.serial for one in result.updated] == ["Z7"]
    assert result.warnings == ()


def test_bug_1897528_a_32_bit_domain_is_skipped_alone() -> None:
    reports = [report(address) for address in CARDS]
    result = sync([], [reports[0], report("10000:e1:00.0"), *reports[1:]])
    assert [one.address for one in result.created] == CARDS
    assert result.skipped == ("10000:e1:00.0",)


def test_text_that_is_no_address_ends_the_pass() -> None:
    with pytest.raises(PciDeviceWrongAddressFormat):
        sync([], [report(CARDS[0]), report("eth0")])


def test_a_pf_that_is_listed_while_its_vf_is_in_use_is_blocked() -> None:
    vf = report("0000:3b:00.1", "10de:26ba", "type-VF", parent_addr="0000:3b:00.0")
    devices = owned(tracked(vf), "0000:3b:00.1")
    result = sync(devices.values(), [vf, report("0000:3b:00.0", "10de:26b9", "type-PF")])
    assert [(one.address, one.status) for one in result.created] == [("0000:3b:00.0", Status.UNAVAILABLE)]


def test_a_vf_that_is_listed_while_its_pf_is_claimed_is_blocked() -> None:
    pf = report("0000:3b:00.0", "10de:26b9", "type-PF")
    devices = tracked(pf)
    devices = {**devices, **claim(devices, "0000:3b:00.0", "A")}
    vf = report("0000:3b:00.1", "10de:26ba", "type-VF", parent_addr="0000:3b:00.0")
    assert [one.status for one in sync(devices.values(), [pf, vf]).created] == [Status.UNCLAIMABLE]


def test_blocked_without_a_reason_is_healed() -> None:
    devices = by_address(
        device("0000:3b:00.0", DeviceType.PF, status=Status.UNAVAILABLE, pool_tags={"remote_managed": "false"})
    )
    result = sync(devices.values(), [report("0000:3b:00.0", dev_type="type-PF")])
    assert [one.status for one in result.updated] == [Status.AVAILABLE]


def test_f24_a_failed_probe_offers_and_frees_nothing() -> None:
    devices = owned(tracked(*map(report, CARDS)), CARDS[0])
    held = replace(devices[CARDS[1]], condition=Condition.LOST)
    cleaning = replace(devices[CARDS[2]], condition=Condition.CLEANING)
    changed = mark_unknown([devices[CARDS[0]], held, cleaning, devices[CARDS[3]]])
    assert [(one.address, one.condition, one.status) for one in changed] == [
        (CARDS[0], Condition.UNKNOWN, Status.ALLOCATED),
        (CARDS[3], Condition.UNKNOWN, Status.AVAILABLE),
    ]
    assert changed[0].instance_uuid == "A"
    assert pools_of(changed) == ()
    assert mark_unknown(changed) == ()
    assert mark_known([*changed, held, cleaning]) == (devices[CARDS[0]], devices[CARDS[3]])


def test_f24_a_complete_report_makes_a_host_known_again() -> None:
    devices = owned(tracked(*map(report, CARDS)), CARDS[0])
    unknown = by_address(*mark_unknown(devices.values()))
    result = sync(unknown.values(), map(report, CARDS))
    assert by_address(*result.updated) == devices


def test_f27_freed_means_offered() -> None:
    devices = owned(tracked(report(CARDS[0])), CARDS[0])
    devices.update(free(devices, CARDS[0], "A"))
    devices.update(after_free(devices, [CARDS[0]], ANY_NVIDIA))
    assert [pool.count for pool in pools_of(devices.values())] == [1]


def test_cleaning_goes_on_whatever_the_host_reports() -> None:
    cleaning = device(CARDS[0], condition=Condition.CLEANING)
    result = sync([cleaning], [report(CARDS[0], numa_node=1)])
    assert [(one.condition, one.numa_node) for one in result.updated] == [(Condition.CLEANING, 1)]


def test_devices_found_by_their_pf_stay_while_sriov_is_on() -> None:
    facts = Facts(totalvfs={"0000:3b:00.0": 4})
    lines = specs('{"address":"0000:3b:00.0","product_id":"26ba"}', facts=facts)
    vf = report("0000:3b:00.1", "10de:26ba", "type-VF", parent_addr="0000:3b:00.0")
    created = sync([], [report("0000:3b:00.0", "10de:26b9", "type-PF"), vf], lines).created
    assert [one.address for one in created] == ["0000:3b:00.1"]

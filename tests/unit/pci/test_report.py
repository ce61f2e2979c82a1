from __future__ import annotations

from dataclasses import replace

import pytest

from jetbridge.pci.device import Condition, DeviceType, PciDevice, Status
from jetbridge.pci.report import create_device, identity_mismatch, update_device
from tests.unit.pci.build import device, report, specs

(PLAIN,) = specs("{}")
VF = report(
    "0000:3b:00.4",
    "10de:26ba",
    "type-VF",
    parent_addr="0000:3b:00.0",
    numa_node=1,
    capabilities={"vpd": {"card_serial_number": "X9"}, "network": ["rx"]},
    parent_ifname="ens1",
    iommu_group=12,
    driver="vfio-pci",
    mac_address=None,
)


def test_a_new_device() -> None:
    (spec,) = specs(
        '{"managed":"no","live_migratable":"yes","resource_class":"VF","traits":"a,b","physical_network":"n1"}'
    )
    assert create_device(VF, spec, 7, lambda: "u1") == PciDevice(
        compute_node_id=7,
        address="0000:3b:00.4",
        vendor_id="10de",
        product_id="26ba",
        dev_type=DeviceType.VF,
        status=Status.AVAILABLE,
        id=None,
        uuid="u1",
        dev_id="pci_0000_3b_00_4",
        label="label_10de_26ba",
        numa_node=1,
        parent_addr="0000:3b:00.0",
        extra_info={
            "capabilities": '{"network": ["rx"], "vpd": {"card_serial_number": "X9"}}',
            "parent_ifname": "ens1",
            "iommu_group": "12",
            "driver": "vfio-pci",
            "managed": "false",
            "live_migratable": "true",
        },
        pool_tags={
            "managed": "false",
            "live_migratable": "true",
            "physical_network": "n1",
            "remote_managed": "false",
        },
        resource_class="VF",
        traits="a,b",
        one_time_use=False,
        managed=False,
        serial="X9",
        condition=Condition.OK,
    )


def test_defaults_of_a_line_without_tags() -> None:
    new = create_device(report("0:17:0.0"), PLAIN, 7, lambda: "u1")
    assert (new.address, new.managed, new.one_time_use, new.pool_tags, new.extra_info) == (
        "0000:17:00.0",
        True,
        False,
        {},
        {},
    )
    assert (new.resource_class, new.traits, new.serial, new.parent_addr) == (None, None, None, None)
    assert create_device(report("0:17:0.0"), specs('{"managed":"yes"}')[0], 7, str).managed is True
    (once,) = specs('{"one_time_use":"yes"}', report_in_placement=True)
    assert create_device(report("0:17:0.0"), once, 7, str).one_time_use is True


def test_a_line_that_lost_its_tags_takes_them_away() -> None:
    (tagged,) = specs('{"managed":"no","live_migratable":"no","resource_class":"R"}')
    before = create_device(VF, tagged, 7, str)
    after = update_device(before, VF, PLAIN)
    assert after.extra_info == {
        name: value for name, value in before.extra_info.items() if name not in ("managed", "live_migratable")
    }
    assert (after.managed, after.resource_class, after.pool_tags) == (True, None, {"remote_managed": "false"})


def test_tags_of_the_report_itself_dont_count() -> None:
    after = update_device(
        device("0000:17:00.0"), report("0000:17:00.0", managed="false", live_migratable="true"), PLAIN
    )
    assert (after.extra_info, after.managed) == ({}, True)


def test_what_the_host_no_longer_reports_goes_and_what_others_noted_stays() -> None:
    full = create_device({**VF, "mac_address": "02:00:00:00:00:01"}, PLAIN, 7, str)
    assert set(full.extra_info) == {"capabilities", "parent_ifname", "iommu_group", "driver", "mac_address"}
    before = replace(full, extra_info={**full.extra_info, "rp_uuid": "p1"})
    after = update_device(before, report("0000:3b:00.4", "10de:26ba", "type-VF"), PLAIN)
    assert after.extra_info == {"rp_uuid": "p1"}
    assert after.parent_addr is None


def test_a_report_never_touches_the_rows_own_fields() -> None:
    before = device(
        "0000:17:00.0",
        status=Status.ALLOCATED,
        id=5,
        instance_uuid="A",
        request_id="r1",
        condition=Condition.UNKNOWN,
        stale_update={"x": 1},
    )
    sly = {"id": 9, "status": "available", "traits": "T"} | report(
        "0000:18:00.0",
        status="available",
        id=9,
        uuid="u9",
        compute_node_id=9,
        instance_uuid=None,
        request_id=None,
        extra_info={"a": "b"},
        condition="ok",
        stale_update=None,
        pool_tags={"x": "y"},
        serial="S",
        resource_class="R",
        traits="T",
        one_time_use=True,
    )
    after = update_device(before, sly, PLAIN)
    assert after == replace(before, dev_id="pci_0000_18_00_0", label="label_10de_1eb8")


def test_a_changed_type_ids_and_node() -> None:
    after = update_device(device("0000:17:00.0"), report("0000:17:00.0", "10de:1eb9", "type-PF", numa_node=1), PLAIN)
    assert (after.vendor_id, after.product_id, after.dev_type, after.numa_node) == ("10de", "1eb9", DeviceType.PF, 1)
    assert after.dev_type is DeviceType.PF
    assert after.pool_tags == {"remote_managed": "false"}


@pytest.mark.parametrize(
    ("ids", "serial", "found"),
    [
        ("10de:1eb8", "X1", None),
        ("10de:1eb8", None, None),
        ("10de:1eb9", "X1", "0000:17:00.0 [10de:1eb9 serial X1]"),
        ("1002:1eb8", None, "0000:17:00.0 [1002:1eb8]"),
        ("10de:1eb8", "Z7", "0000:17:00.0 [10de:1eb8 serial Z7]"),
    ],
)
def test_f28_another_device_at_the_address(ids: str, serial: str | None, found: str | None) -> None:
    capabilities = {"vpd": {"card_serial_number": serial}} if serial else {}
    owned = device("0000:17:00.0", serial="X1")
    assert identity_mismatch(owned, report("0000:17:00.0", ids, capabilities=capabilities)) == found


def test_f28_a_serial_that_was_never_known_is_no_mismatch() -> None:
    capabilities = {"vpd": {"card_serial_number": "Z7"}}
    assert identity_mismatch(device("0000:17:00.0"), report("0000:17:00.0", capabilities=capabilities)) is None

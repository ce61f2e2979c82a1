from __future__ import annotations

from typing import Any

import pytest

from jetbridge import errors
from jetbridge.pci.device import DeviceType
from jetbridge.pci.device_spec import card_serial, first_match, parse_device_specs
from tests.unit.pci.build import Facts, cases, report, specs

SMARTNIC = Facts(
    totalvfs={"0000:5e:00.0": 8, "0000:5f:00.0": 8, "0000:60:00.0": 8},
    netdevs={"virtio": "../../virtio0", "broken": "../../0000:5e:00.x"},
    ids={"0000:5e:00.0": ("0x15b3", "0x101d"), "0000:60:00.0": ("0x15b3", "0x101d")},
    vf_ids={"0000:5e:00.0": "101e", "0000:5f:00.0": "101e"},
)


@pytest.mark.parametrize("case", cases("pci_device_spec.yaml"))
def test_refused(case: dict[str, Any]) -> None:
    with pytest.raises(errors.JetbridgeError) as caught:
        parse_device_specs([case["value"]], SMARTNIC)
    assert caught.value.code == case["error"]
    for word in case["says"]:
        assert word in str(caught.value)


@pytest.mark.parametrize("case", cases("pci_match.yaml"))
def test_first_match(case: dict[str, Any]) -> None:
    facts = Facts(
        totalvfs=case.get("totalvfs", {}),
        netdevs=case.get("netdevs", {}),
        ids={address: tuple(ids) for address, ids in case.get("pf_ids", {}).items()},
        vf_ids=case.get("vf_ids", {}),
    )
    found = first_match(specs(*case["lines"], facts=facts), report(**case["device"]))
    assert (found.position if found else None) == case["line"]


def test_ids_are_canonical() -> None:
    one, two, three, four = specs('[{"vendor_id":"10DE"},{"vendor_id":"de"},{"product_id":"*"},{}]')
    assert (one.vendor_id, one.product_id, two.vendor_id) == ("10de", "*", "00de")
    assert (three.vendor_id, three.product_id, four.vendor_id) == ("*", "*", "*")


def test_a_line_knows_its_place_and_text() -> None:
    first, second = specs('{"vendor_id": "10de"}', '[{"devname": "ens1"}]')
    assert (first.position, first.text, first.devname) == (1, '{"vendor_id": "10de"}', None)
    assert (second.position, second.text, second.devname, second.address) == (2, '{"devname": "ens1"}', "ens1", None)


def test_a_line_for_an_interface_that_is_elsewhere_matches_nothing() -> None:
    (spec,) = specs('{"devname": "ens9"}')
    assert spec.matches(report("0000:17:00.0")) is False


def test_no_lines_no_specs() -> None:
    assert specs() == specs("[]") == ()


def test_tags_are_text() -> None:
    """D12: requests carry text, so JSON booleans and numbers become text."""
    (spec,) = specs(
        '{"vendor_id":"10de","product_id":"*","address":"*","trusted":true,"rank":3,"share":0.5,"physical_network":null,'
        '"note":"x","rails":[2,1],"more":{"b":1,"a":2}}'
    )
    assert spec.tags == {
        "trusted": "True",
        "rank": "3",
        "share": "0.5",
        "physical_network": None,
        "note": "x",
        "rails": "[2,1]",
        "more": '{"a":2,"b":1}',
    }


def test_boolean_tags_become_words() -> None:
    (spec,) = specs('{"managed":"No","live_migratable":1,"one_time_use":false,"remote_managed":"Yes"}')
    assert spec.tags == {
        "managed": "false",
        "live_migratable": "true",
        "one_time_use": "false",
        "remote_managed": "Yes",
    }
    (spec,) = specs('{"managed":null,"live_migratable":null,"one_time_use":null}')
    assert spec.tags == {"managed": None, "live_migratable": None, "one_time_use": None}


def test_one_time_use_needs_placement() -> None:
    (spec,) = specs('{"one_time_use":"yes"}', report_in_placement=True)
    assert spec.tags == {"one_time_use": "true"}
    assert specs('{"one_time_use":"no"}')[0].tags == {"one_time_use": "false"}


def test_pool_tags_leave_placements_out_and_say_remote_managed() -> None:
    (spec,) = specs('{"resource_class":"GPU","traits":"fast","rp_uuid":"x","rp_uuids":"y","physical_network":"n1"}')
    assert spec.pool_tags(DeviceType.PCI) == {"physical_network": "n1"}
    for dev_type in (DeviceType.PF, DeviceType.VF, DeviceType.VDPA):
        assert spec.pool_tags(dev_type) == {"physical_network": "n1", "remote_managed": "false"}
    (spec,) = specs('{"remote_managed":null}')
    assert spec.pool_tags(DeviceType.VF) == {"remote_managed": "false"}
    assert spec.pool_tags(DeviceType.PCI) == {"remote_managed": None}
    (spec,) = specs('{"remote_managed":"True"}')
    assert spec.pool_tags(DeviceType.VF) == {"remote_managed": "True"}


def test_pf_awareness_is_read_from_the_host() -> None:
    facts = Facts(totalvfs={"0000:3b:00.0": 4})
    assert [spec.pf_aware for spec in specs('[{"address":"0:3b:0.0"},{"address":"3b:0.0"}]', facts=facts)] == [
        True,
        False,
    ]


def test_an_address_that_nobody_can_be_given_shows_whatever_the_ids_are() -> None:
    with pytest.raises(errors.PciConfigInvalidSpec):
        first_match(specs('{"vendor_id":"1002"}'), report("10000:e1:00.0"))
    with pytest.raises(errors.PciDeviceWrongAddressFormat):
        first_match(specs('{"vendor_id":"1002"}'), report("e1:00.0"))


def test_a_parent_that_matches_is_enough() -> None:
    """A VF's own address isn't even read then."""
    facts = Facts(totalvfs={"0000:3b:00.0": 4})
    vf = report("10000:3b:00.1", dev_type="type-VF", parent_addr="0000:3b:00.0")
    assert first_match(specs('{"address":"0000:3b:00.0"}', facts=facts), vf) is not None


@pytest.mark.parametrize(
    ("capabilities", "serial"),
    [
        ({"vpd": {"card_serial_number": "X9"}}, "X9"),
        ('{"vpd": {"card_serial_number": "X9"}}', "X9"),
        ({"vpd": {"card_serial_number": ""}}, None),
        ({"vpd": {}}, None),
        ({"sriov": {}}, None),
        ({"vpd": None}, None),
        ("[]", None),
        (None, None),
    ],
)
def test_card_serial(capabilities: object, serial: str | None) -> None:
    assert card_serial(capabilities) == serial

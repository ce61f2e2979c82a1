"""What ports ask for, and what their binding profiles say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jetbridge.pci.device import DeviceType, PciDevice
from jetbridge.pci.fit import Refusal, fit
from jetbridge.pci.pool import pools_of
from jetbridge.pci.port import (
    ACCELERATOR_VNICS,
    DEVICE_VNICS,
    PASSED_THROUGH,
    PortWish,
    VnicType,
    binding_profile,
    request_of_port,
    without_binding,
)
from jetbridge.pci.request import NumaPolicy, PciRequest

SRIOV = {"pf_mac_address": "0c:42:a1:6e:20:10", "vf_num": 0}
KNOWN = {"network": ["rx", "tx"], "sriov": SRIOV, "vpd": {"card_serial_number": "SN1"}}


def request(kind: VnicType, policy: NumaPolicy | None = None, **more: Any) -> PciRequest | None:
    return request_of_port(PortWish("port-1", kind, **more), policy, lambda: "r1")


def device(dev_type: DeviceType = DeviceType.VF, tags: dict[str, str | None] | None = None, **extra: str) -> PciDevice:
    return PciDevice(
        1,
        "0000:a1:00.2",
        "15b3",
        "101e",
        dev_type,
        parent_addr=None if dev_type is DeviceType.PF else "0000:a1:00.0",
        pool_tags={"physical_network": "n1", "remote_managed": "false"} if tags is None else tags,
        extra_info=extra,
    )


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("direct", {}),
        ("macvtap", {}),
        ("virtio-forwarder", {}),
        ("direct-physical", {"dev_type": "type-PF"}),
        ("vdpa", {"dev_type": "vdpa"}),
        ("remote-managed", {"remote_managed": "True"}),
    ],
)
def test_a_port_asks_for_one_device_by_its_vnic_type(kind: str, more: dict[str, str]) -> None:
    """As the Network API writes them."""
    asked = request(VnicType(kind), physical_network="n1")
    properties = {"physical_network": "n1", "remote_managed": "False", **more}
    assert asked == PciRequest("r1", 1, (properties,), requester_id="port-1")
    assert asked.from_port


@pytest.mark.parametrize("kind", ["normal", "accelerator-direct", "accelerator-direct-physical"])
def test_other_ports_take_no_device_of_a_pool(kind: str) -> None:
    assert request(VnicType(kind), physical_network="n1") is None


def test_the_kinds_of_vnic() -> None:
    assert {str(kind) for kind in ACCELERATOR_VNICS} == {"accelerator-direct", "accelerator-direct-physical"}
    assert {str(kind) for kind in PASSED_THROUGH} == {"direct", "direct-physical", "remote-managed"}
    assert len(VnicType) == len(DEVICE_VNICS) + len(ACCELERATOR_VNICS) + 1


@pytest.mark.parametrize(
    ("given", "asked"),
    [("true", "True"), (True, "True"), ("on", "True"), ("false", "False"), ("nonsense", "False"), (None, None)],
)
def test_trusted_is_asked_for_only_when_the_profile_says_something(given: object, asked: str | None) -> None:
    made = request(VnicType.DIRECT, profile={"trusted": given})
    assert made is not None
    assert made.spec[0].get("trusted") == asked


def test_the_policy_of_the_port_goes_before_that_of_the_flavor() -> None:
    own = request(VnicType.DIRECT, NumaPolicy.LEGACY, numa_policy=NumaPolicy.REQUIRED)
    of_flavor = request(VnicType.DIRECT, NumaPolicy.SOCKET)
    neither = request(VnicType.DIRECT)
    assert [asked.numa_policy for asked in (own, of_flavor, neither) if asked] == [
        NumaPolicy.REQUIRED,
        NumaPolicy.SOCKET,
        None,
    ]


@pytest.mark.parametrize(
    ("tags", "taken"),
    [
        ({}, False),
        ({"physical_network": None}, True),
        ({"physical_network": "n1"}, False),
        ({"trusted": "true"}, False),
    ],
)
def test_d24_a_port_on_an_overlay_takes_only_what_is_tagged_for_it(tags: dict[str, str | None], taken: bool) -> None:
    asked = request(VnicType.DIRECT)
    assert asked is not None
    offered = pools_of([device(tags={"remote_managed": "false", **tags})])
    assert isinstance(fit(offered, [asked]), Refusal) is not taken


def test_the_profile_of_a_vf_says_all_that_is_known_of_it() -> None:
    slot = {"pci_slot": "0000:a1:00.2", "pci_vendor_info": "15b3:101e", "physical_network": "n1"}
    assert binding_profile(device(capabilities=json.dumps(KNOWN))) == {
        **slot,
        **SRIOV,
        "card_serial_number": "SN1",
        "capabilities": ["rx", "tx"],
    }
    assert binding_profile(device()) == slot
    assert binding_profile(device(tags={})) == {**slot, "physical_network": None}
    assert binding_profile(device(DeviceType.VDPA, capabilities=json.dumps(KNOWN))) == slot
    card = device(DeviceType.PF, mac_address="0c:42:a1:6e:20:10", capabilities=json.dumps(KNOWN))
    assert binding_profile(card) == {**slot, "device_mac_address": "0c:42:a1:6e:20:10"}
    assert binding_profile(device(DeviceType.PF)) == slot
    assert binding_profile(device(DeviceType.PCI, mac_address="0c:42:a1:6e:20:10")) == slot


def test_what_the_binding_wrote_goes_key_by_key() -> None:
    written = [
        "pci_vendor_info",
        "pci_slot",
        "allocation",
        "arq_uuid",
        "physical_network",
        "card_serial_number",
        "vf_num",
        "pf_mac_address",
        "device_mac_address",
    ]
    profile = {**dict.fromkeys(written, "x"), "trusted": "true", "capabilities": ["switchdev"]}
    assert without_binding(profile) == {"trusted": "true", "capabilities": ["switchdev"]}

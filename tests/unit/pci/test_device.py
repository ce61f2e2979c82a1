from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from jetbridge import errors
from jetbridge.pci import device as life
from jetbridge.pci.device import DeviceType, PciDevice, Status, claim, free, settled
from tests.unit.pci.build import by_address, cases, device

ACTIONS = {"claim": life.claim, "allocate": life.allocate, "free": life.free, "remove": life.remove}
TYPES = {"pf": "type-PF", "v1": "type-VF", "v2": "type-VF", "nic": "type-PCI"}


def family(types: dict[str, str] | None = None, statuses: dict[str, str] | None = None) -> dict[str, PciDevice]:
    """pf with v1 and v2, and nic; statuses as ``STATUS`` or ``STATUS:OWNER``."""
    devices = {}
    for name, dev_type in {**TYPES, **(types or {})}.items():
        status, _, owner = (statuses or {}).get(name, "available").partition(":")
        devices[name] = device(
            name,
            DeviceType(dev_type),
            status=Status(status),
            instance_uuid=owner or None,
            request_id="req" if owner else None,
            parent_addr="pf" if name.startswith("v") else None,
        )
    return devices


def told(one: PciDevice) -> str:
    return f"{one.status}:{one.instance_uuid}" if one.instance_uuid else str(one.status)


@pytest.mark.parametrize("case", cases("pci_life.yaml"))
def test_life(case: dict[str, Any]) -> None:
    devices = family(case.get("types"), case.get("start"))
    for step in case["steps"]:
        action, address, *server = step["do"].split()
        if "error" in step:
            with pytest.raises(errors.JetbridgeError) as caught:
                ACTIONS[action](devices, address, *server)
            assert caught.value.code == step["error"], step
            for word in step["says"]:
                assert word in str(caught.value), step
        else:
            changed = ACTIONS[action](devices, address, *server)
            assert list(changed)[-1] == address, "the device itself comes last"
            assert all(devices[name] != one for name, one in changed.items()), "only what changed"
            devices.update(changed)
            assert {name: told(devices[name]) for name in step["then"]} == step["then"], step


def test_a_claim_notes_server_and_request_and_free_forgets_them() -> None:
    devices = family()
    changed = claim(devices, "v1", "A", "r1")
    assert (changed["v1"].instance_uuid, changed["v1"].request_id) == ("A", "r1")
    assert (changed["pf"].instance_uuid, changed["pf"].request_id) == (None, None)
    devices.update(changed)
    devices.update(life.allocate(devices, "v1", "A"))
    assert (devices["v1"].instance_uuid, devices["v1"].request_id) == ("A", "r1")
    freed = free(devices, "v1", "A")
    assert list(freed) == ["pf", "v1"]
    assert (freed["v1"].instance_uuid, freed["v1"].request_id) == (None, None)


def test_remove_forgets_the_request() -> None:
    devices = by_address(device("nic", request_id="stray"))
    assert life.remove(devices, "nic")["nic"].request_id is None


def test_an_empty_host_knows_no_address() -> None:
    with pytest.raises(errors.PciDeviceNotFound, match="unknown host:nic"):
        claim({}, "nic", "A")


def test_a_pf_claimed_over_blocked_vfs_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        claim(family(), "pf", "A")
        life.allocate(family(statuses={"v1": "unclaimable"}), "pf", "A")
    assert not caplog.records
    claim(family(statuses={"v2": "unavailable"}), "pf", "A")
    assert caplog.messages == ["PF pf of host 7 is claimed while its VFs v2 are blocked without an owner"]


def test_unknown_parents_are_no_obstacle() -> None:
    orphan = device("v9", DeviceType.VF, parent_addr="elsewhere")
    assert list(claim(by_address(orphan), "v9", "A")) == ["v9"]
    assert list(claim(by_address(replace(orphan, parent_addr=None)), "v9", "A")) == ["v9"]


def test_only_a_cards_own_vfs_are_its_children() -> None:
    devices = {**family(), "w1": device("w1", DeviceType.VF, parent_addr="pf2")}
    assert [child.address for child in life.children_of(devices, devices["pf"])] == ["v1", "v2"]
    assert life.children_of(devices, devices["v1"]) == []
    assert "w1" not in claim(devices, "pf", "A")


@pytest.mark.parametrize(
    ("start", "then"),
    [
        ({}, {}),
        ({"v1": "claimed:A"}, {"pf": "unclaimable"}),
        ({"v1": "allocated:A"}, {"pf": "unavailable"}),
        ({"v1": "allocated:A", "v2": "claimed:A"}, {"pf": "unavailable"}),
        ({"v1": "claimed:A", "v2": "allocated:A"}, {"pf": "unavailable"}),
        ({"pf": "unavailable", "v1": "claimed:A"}, {}),
        ({"pf": "unclaimable", "v1": "allocated:A"}, {}),
        ({"pf": "claimed:A"}, {"v1": "unclaimable", "v2": "unclaimable"}),
        ({"pf": "allocated:A", "v2": "unavailable"}, {"v1": "unavailable"}),
        ({"pf": "unavailable"}, {"pf": "available"}),
        (
            {"pf": "unclaimable", "v1": "unavailable", "v2": "unclaimable"},
            dict.fromkeys(("pf", "v1", "v2"), "available"),
        ),
        ({"pf": "removed", "v1": "unavailable"}, {"v1": "available"}),
        ({"v1": "removed", "pf": "unavailable"}, {"pf": "available"}),
        ({"v1": "deleted", "pf": "available"}, {}),
        ({"nic": "unavailable"}, {"nic": "available"}),
        ({"nic": "allocated:A"}, {}),
    ],
)
def test_settled_makes_blocking_agree_with_the_relatives(start: dict[str, str], then: dict[str, str]) -> None:
    changed = settled(family(statuses=start))
    assert {name: told(one) for name, one in changed.items()} == then


def test_settled_blocks_the_vfs_of_a_card_that_is_in_use_as_a_plain_function() -> None:
    """SR-IOV was enabled on it after a server got it: the record is type-PCI until the server gives it back."""
    devices = family(types={"pf": "type-PCI"}, statuses={"pf": "allocated:A"})
    assert {name: told(one) for name, one in settled(devices).items()} == {"v1": "unavailable", "v2": "unavailable"}
    devices.update(settled(devices))
    assert {name: told(one) for name, one in free(devices, "pf", "A").items()} == dict.fromkeys(
        ("v1", "v2", "pf"), "available"
    )


def test_settled_doesnt_need_parents() -> None:
    devices = by_address(device("v1", DeviceType.VF, status=Status.CLAIMED), device("v2", DeviceType.VF))
    assert settled(devices) == {}


def test_identity_tells_ids_and_serial() -> None:
    assert device("0000:17:00.0").identity == "0000:17:00.0 [10de:1eb8]"
    assert device("0000:17:00.0", serial="X1").identity == "0000:17:00.0 [10de:1eb8 serial X1]"


@pytest.mark.parametrize("status", list(Status))
def test_owned_and_blocked(status: Status) -> None:
    one = device("nic", status=status)
    assert one.owned is (status in ("claimed", "allocated"))
    assert one.blocked is (status in ("unclaimable", "unavailable"))


def test_the_words_kept_in_the_table() -> None:
    """Operators query them, and rows outlive releases."""
    assert [*Status] == ["available", "claimed", "allocated", "unclaimable", "unavailable", "removed", "deleted"]
    assert [*life.Condition] == ["ok", "cleaning", "held", "accelerator", "unknown", "lost"]
    assert [*DeviceType] == ["type-PCI", "type-PF", "type-VF", "vdpa"]


def test_what_a_device_is_unless_said() -> None:
    assert PciDevice(1, "0000:17:00.0", "10de", "1eb8", DeviceType.PCI) == PciDevice(
        compute_node_id=1,
        address="0000:17:00.0",
        vendor_id="10de",
        product_id="1eb8",
        dev_type=DeviceType.PCI,
        status=Status.AVAILABLE,
        uuid="",
        extra_info={},
        pool_tags={},
        one_time_use=False,
        managed=True,
        condition=life.Condition.OK,
    )


def test_refusals_name_node_address_and_what_was_wanted() -> None:
    devices = by_address(device("nic", instance_uuid="A", status=Status.CLAIMED))
    with pytest.raises(errors.PciDeviceInvalidStatus) as status:
        claim(devices, "nic", "B")
    assert str(status.value) == "PCI device 7:nic is claimed instead of [available]"
    with pytest.raises(errors.PciDeviceInvalidOwner) as owner:
        life.allocate(devices, "nic", "B")
    assert str(owner.value) == "PCI device 7:nic is owned by A instead of B"
    with pytest.raises(errors.PciDeviceInvalidOwner) as nobody:
        life.remove(by_address(device("nic", instance_uuid="A")), "nic")
    assert str(nobody.value) == "PCI device 7:nic is owned by A instead of nobody"
    with pytest.raises(errors.PciDeviceInvalidOwner) as unowned:
        free(by_address(device("nic", status=Status.ALLOCATED)), "nic", "A")
    assert str(unowned.value) == "PCI device 7:nic is owned by nobody instead of A"
    with pytest.raises(errors.PciDevicePFInvalidStatus) as pf:
        claim(family(statuses={"pf": "claimed:A"}), "v1", "B")
    assert str(pf.value) == (
        "Physical function pf of VF 7:v1 is claimed instead of [available, unavailable, unclaimable]"
    )
    with pytest.raises(errors.PciDeviceVFInvalidStatus) as vf:
        claim(family(statuses={"v1": "claimed:A"}), "pf", "B")
    assert str(vf.value) == "Not all virtual functions of PF 7:pf are free."

from __future__ import annotations

from typing import Any

import pytest

from jetbridge.errors import Invalid
from jetbridge.model.request_group import RequestGroup, groups_from_json, groups_to_json
from jetbridge.pci.request import PciRequest
from jetbridge.placement.groups import check_group_key, flavor_groups, isolated, pci_groups, without_accelerators
from tests.unit.pci.build import cases


@pytest.mark.parametrize("case", cases("placement_groups.yaml"))
def test_flavor_groups(case: dict[str, Any]) -> None:
    if "says" in case:
        with pytest.raises(Invalid) as caught:
            flavor_groups(case["specs"])
        assert case["says"] in str(caught.value)
        return
    expected = tuple(RequestGroup(name, res, *map(frozenset, sets)) for name, res, *sets in case["groups"])
    assert flavor_groups(case["specs"]) == expected


def test_keys_of_other_kinds_pass() -> None:
    for key in ("hw:numa_nodes", "quota:cpu", "resources", "trait", "my:resources:VGPU"):
        check_group_key(key, "anything")


def test_isolated() -> None:
    assert isolated({"group_policy": "isolate"})
    assert not isolated({"group_policy": "none"})
    assert not isolated({})


def test_one_group_per_device() -> None:
    request = PciRequest(
        "R", 2, ({"resource_class": "l40", "traits": "fast", "dev_type": "type-PF"},), alias_name="l40"
    )
    assert pci_groups([request]) == (
        RequestGroup("R-0", {"CUSTOM_L40": 1}, frozenset({"CUSTOM_FAST", "OWNER_NOVA"})),
        RequestGroup("R-1", {"CUSTOM_L40": 1}, frozenset({"CUSTOM_FAST", "OWNER_NOVA"})),
    )


def test_a_class_is_made_of_the_ids() -> None:
    (group,) = pci_groups([PciRequest("R", 1, ({"vendor_id": "10de", "product_id": "1eb8"},), alias_name="t4")])
    assert group.resources == {"CUSTOM_PCI_10DE_1EB8": 1}


def test_ports_are_not_in_placement() -> None:
    assert pci_groups([PciRequest("P", 1, ({"physical_network": "n1"},), requester_id="port")]) == ()


def test_groups_survive_the_table() -> None:
    groups = (
        RequestGroup("", {"VGPU": 2}, frozenset({"CUSTOM_A"}), frozenset({"CUSTOM_B"})),
        RequestGroup("1", {"VGPU": 2}, member_of=frozenset({"one", "two"}), outside_of=frozenset({"three"})),
        RequestGroup("R-0", {"CUSTOM_X": 1}),
    )
    assert groups_from_json(groups_to_json(groups)) == groups


@pytest.mark.parametrize(
    ("group", "forbidden"),
    [
        (RequestGroup("", {"VGPU": 1}), {"OWNER_CYBORG"}),
        (
            RequestGroup("1", {"VGPU": 1}, frozenset({"CUSTOM_A"}), frozenset({"CUSTOM_B"})),
            {"CUSTOM_B", "OWNER_CYBORG"},
        ),
        (RequestGroup("R-0", {"VGPU": 1}, frozenset({"OWNER_NOVA"})), set()),
        (RequestGroup("device_profile_0", {"VGPU": 1}, forbidden=frozenset({"OWNER_NOVA"})), {"OWNER_NOVA"}),
        (RequestGroup("1", {"VGPU": 1}, frozenset({"OWNER_CYBORG"})), set()),
    ],
)
def test_f17_a_flavors_own_groups_keep_off_the_accelerator_services_providers(
    group: RequestGroup, forbidden: set[str]
) -> None:
    assert without_accelerators(group).forbidden == forbidden

from __future__ import annotations

from typing import Any

import pytest

from jetbridge.errors import PlacementPciException
from jetbridge.model.provider import Seen
from jetbridge.pci.device import DeviceType, PciDevice, Status
from jetbridge.placement.groups import OWNER_TRAIT
from jetbridge.placement.pci_tree import MANAGED, PciTree, pci_tree
from tests.unit.pci.build import cases, device, specs


def made(document: dict[str, Any]) -> PciDevice:
    values = dict(document)
    vendor, product = values.pop("ids", "10de:1eb8").split(":")
    owner = values.pop("owner", None)
    status = Status(values.pop("status", "allocated" if owner else "available"))
    return device(
        values.pop("address"),
        DeviceType(values.pop("type", "type-PCI")),
        vendor_id=vendor,
        product_id=product,
        parent_addr=values.pop("parent", None),
        instance_uuid=owner,
        status=status,
        **values,
    )


def tree_of(case: dict[str, Any]) -> PciTree:
    seen = {
        name: Seen(frozenset(provider.get("traits", ())), provider.get("usage", {}))
        for name, provider in case.get("seen", {}).items()
    }
    lines = specs(*case["specs"], report_in_placement=True)
    # In the order that rows happen to come: the answer doesn't depend on it.
    return pci_tree("n", [made(each) for each in reversed(case["devices"])], lines, seen)


@pytest.mark.parametrize("case", [case for case in cases("placement_tree.yaml") if "error" not in case.values[0]])
def test_tree(case: dict[str, Any]) -> None:
    tree = tree_of(case)
    inventories = {
        each.name: {name: inventory.total for name, inventory in each.inventories.items()} for each in tree.providers
    }
    assert inventories == case["providers"]
    for provider in tree.providers:
        assert provider.traits == {MANAGED, OWNER_TRAIT, *case.get("traits", {}).get(provider.name, ())}
        for inventory in provider.inventories.values():
            assert inventory.max_unit == inventory.total
            assert inventory.reserved == case.get("reserved", {}).get(provider.name)
            assert inventory.allocation_ratio is None
    assert [list(each) for each in tree.heal] == case.get("heal", [])
    if "stands_for" in case:
        assert dict(tree.devices) == case["stands_for"]
    words = case.get("warns", [])
    assert len(tree.warnings) == (1 if words else 0)
    for word in words:
        assert word in tree.warnings[0]


@pytest.mark.parametrize("case", [case for case in cases("placement_tree.yaml") if "error" in case.values[0]])
def test_refused(case: dict[str, Any]) -> None:
    with pytest.raises(PlacementPciException) as caught:
        tree_of(case)
    assert caught.value.code == case["error"]
    for word in case["says"]:
        assert word in str(caught.value)

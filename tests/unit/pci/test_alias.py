from __future__ import annotations

import json
from typing import Any

import pytest

from jetbridge.errors import PciInvalidAlias
from jetbridge.pci.alias import parse_aliases
from jetbridge.pci.request import Alias, NumaPolicy
from tests.unit.pci.build import cases

T4 = {"vendor_id": "10de", "product_id": "1eb8"}


def alias(**fields: Any) -> str:
    return json.dumps(fields)


@pytest.mark.parametrize("case", cases("pci_alias.yaml"))
def test_refused(case: dict[str, Any]) -> None:
    with pytest.raises(PciInvalidAlias) as caught:
        parse_aliases(case["values"], pci_in_placement=case.get("placement", False))
    for word in case["says"]:
        assert word in str(caught.value) + "$"


def test_every_field_but_name_and_policy_becomes_a_property() -> None:
    table = parse_aliases(
        [alias(name="l40", vendor_id="10DE", product_id="26b9", device_type="type-PF", live_migratable="no")]
    )
    properties = {"vendor_id": "10DE", "product_id": "26b9", "dev_type": "type-PF", "live_migratable": "false"}
    assert table == {"l40": Alias(name="l40", numa_policy=NumaPolicy.LEGACY, properties=(properties,))}


def test_d11_capability_type_is_no_property() -> None:
    assert parse_aliases([alias(name="n", **T4, capability_type="pci")])["n"].properties == (T4,)


def test_policy_class_and_traits() -> None:
    table = parse_aliases([alias(name="n", **T4, numa_policy="socket", resource_class="GPU", traits="fast")])
    assert table["n"].numa_policy is NumaPolicy.SOCKET
    assert table["n"].properties == ({**T4, "resource_class": "GPU", "traits": "fast"},)


def test_names_are_trimmed_and_keep_their_case() -> None:
    longest = "x" * 256
    table = parse_aliases([alias(name=" Gpu ", **T4), alias(name="gpu", **T4), alias(name=longest, **T4)])
    assert list(table) == ["Gpu", "gpu", longest]
    with pytest.raises(PciInvalidAlias):
        parse_aliases([alias(name="x" * 257, **T4)])


def test_lines_with_one_name_are_alternatives() -> None:
    other = {"vendor_id": "1002", "product_id": "74a1"}
    table = parse_aliases([alias(name="any", **T4), alias(name=" any", **other), alias(name="any", **T4)])
    assert table["any"].properties == (T4, other, T4)
    assert table["any"].name == "any"
    required = {"numa_policy": "required", "device_type": "type-VF"}
    table = parse_aliases([alias(name="v", **T4, **required), alias(name="v", **other, **required)])
    assert table["v"].numa_policy is NumaPolicy.REQUIRED
    assert [properties["dev_type"] for properties in table["v"].properties] == ["type-VF", "type-VF"]


def test_a_resource_class_stands_for_ids_with_placement() -> None:
    table = parse_aliases([alias(name="n", resource_class="GPU"), alias(name="m", **T4)], pci_in_placement=True)
    assert table["n"].properties == ({"resource_class": "GPU"},)


def test_no_aliases() -> None:
    assert parse_aliases([]) == {}

from __future__ import annotations

from typing import Any

import pytest

from jetbridge.errors import InvalidLibvirtMdevConfig
from jetbridge.mdev.config import TypeOptions, read_config
from jetbridge.mdev.values import Parent
from tests.unit.mdev.build import Facts, config_of
from tests.unit.pci.build import cases


@pytest.mark.parametrize("case", cases("mdev_config.yaml"))
def test_config(case: dict[str, Any]) -> None:
    if "says" in case:
        with pytest.raises(InvalidLibvirtMdevConfig) as caught:
            config_of(case)
        for word in case["says"]:
            assert word in caught.value.message
        return
    config = config_of(case)
    assert {name: kind.resource_class for name, kind in config.types.items()} == case["types"]
    assert list(config.types) == list(case["types"])
    assert config.default == case["default"]
    if "addresses" in case:
        assert config.by_address == case["addresses"]
    warnings = list(config.warnings)
    assert len(warnings) >= 1 or "warnings" not in case
    for words in case.get("warnings", ()):
        assert any(words in warning for warning in warnings)
    assert warnings == [] or "warnings" in case
    for address, wanted in case.get("carries", {}).items():
        card = case.get("vfs", {}).get(address, address)
        kind = config.type_of(Parent(address, address, card, card))
        assert (kind.id if kind else None) == wanted, address


def test_the_warnings_are_as_many_as_the_types_left_out() -> None:
    config = config_of({"enabled": ["a", "b", "c"], "sections": {"d": {}}})
    assert [warning.split(" of ")[0] for warning in config.warnings[:2]] == ["type b", "type c"]
    assert len(config.warnings) == 3


def test_what_a_section_says_of_its_type_is_kept() -> None:
    options = TypeOptions(mdev_class="CUSTOM_X", max_instances=3)
    kind = read_config(["t"], {"t": options}, Facts()).types["t"]
    assert (kind.resource_class, kind.max_instances) == ("CUSTOM_X", 3)
    plain = read_config(["t"], {}, Facts()).types["t"]
    assert (plain.resource_class, plain.max_instances) == ("VGPU", None)


def test_a_section_without_options_says_nothing_special() -> None:
    plain = TypeOptions()
    assert (plain.device_addresses, plain.mdev_class, plain.max_instances) == ((), "VGPU", None)
    assert not plain.display
    assert not plain.ramfb


def test_a_display_needs_no_ramfb() -> None:
    assert list(read_config(["t"], {"t": TypeOptions(display=True)}, Facts()).types) == ["t"]

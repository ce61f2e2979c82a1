from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jetbridge.config.overrides import apply_overrides
from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration
from jetbridge.mdev.config import TypeOptions


def applied(**overrides: Any) -> Settings:
    return replace(apply_overrides(Settings(), overrides, "lab.yaml"), origins={})


@pytest.mark.parametrize(
    ("overrides", "changes"),
    [
        ({}, {}),
        ({"scheduler": {"max_attempts": "5"}}, {"max_attempts": 5}),
        ({"scheduler": {"max_attempts": 5}}, {"max_attempts": 5}),
        ({"DEFAULT": {"cpu_allocation_ratio": "1.5"}}, {"cpu_allocation_ratio": 1.5}),
        ({"default": {"host": "box"}}, {"host": "box"}),
        ({"filter_scheduler": {"pci_in_placement": "true"}}, {"pci_in_placement": True}),
        ({"filter_scheduler": {"pci_in_placement": False}}, {}),
        ({"filter_scheduler": {"enabled_filters": ["A", "B"]}}, {"enabled_filters": ("A", "B")}),
        ({"filter_scheduler": {"enabled_filters": "A, B"}}, {"enabled_filters": ("A", "B")}),
        ({"filter_scheduler": {"enabled_filters": []}}, {"enabled_filters": ()}),
        ({"compute": {"cpu_dedicated_set": "2-3"}}, {"cpu_dedicated_set": "2-3"}),
        ({"compute": {"cpu_dedicated_set": None}}, {}),
        ({"api": {"http_basic_auth_user_file": "/u"}}, {"http_basic_auth_user_file": Path("/u")}),
        ({"pci": {"alias": '{"name": "a"}'}}, {"pci_alias": ('{"name": "a"}',)}),
        ({"pci": {"device_spec": []}}, {}),
    ],
)
def test_values_as_yaml_gives_them(overrides: dict[str, Any], changes: dict[str, Any]) -> None:
    assert applied(**overrides) == Settings(**changes)


@pytest.mark.parametrize("name", ["device_spec", "passthrough_whitelist"])
def test_objects_become_the_text_an_operator_would_write(name: str) -> None:
    nested = {"address": {"domain": ".*", "bus": "3b"}, "managed": "true", "physical_network": None}
    got = applied(pci={name: [{"vendor_id": "10de"}, nested]}).pci_device_spec
    assert [json.loads(text) for text in got] == [{"vendor_id": "10de"}, nested]
    assert applied(pci={name: nested}).pci_device_spec == got[1:]


def test_a_multi_valued_option_is_replaced_as_a_whole() -> None:
    base = Settings(pci_alias=("old",), max_attempts=7)
    changed = apply_overrides(base, {"pci": {"alias": [{"name": "new"}]}}, "lab.yaml")
    assert changed.pci_alias == ('{"name": "new"}',)
    assert changed.max_attempts == 7
    assert changed.origins == {("pci", "alias"): "lab.yaml"}
    assert base.pci_alias == ("old",)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"pic": {"alias": []}}, r"lab.yaml: config: section 'pic' is not known; did you mean pci"),
        ({"zzzzzz": {}}, "use one of pci, filter_scheduler"),
        ({"pci": {"allias": []}}, r"\[pci\]allias is not known; did you mean \[pci\]alias"),
        ({"scheduler": {"enabled_filters": []}}, r"did you mean \[filter_scheduler\]enabled_filters"),
        ({"scheduler": {"zzzzzz": 1}}, "use one of max_attempts"),
        ({"pci": ["alias"]}, "as a mapping"),
        ({"pci": {"alias": [5]}}, r"\[pci\]alias: 5 is not an object; write a JSON object"),
        ({"scheduler": {"max_attempts": "many"}}, r"lab.yaml: \[scheduler\]max_attempts = 'many'.*at least 1"),
        ({"scheduler": {"max_attempts": {"a": 1}}}, r"\[scheduler\]max_attempts = .*at least 1"),
        ({"mdev_nvidia-35": {"max_instances": 0}}, r"\[mdev_nvidia-35\]max_instances = '0'.*at least 1"),
        ({"mdev_nvidia-35": {"max_instance": 1}}, r"did you mean \[mdev_nvidia-35\]max_instances"),
        ({"mdev_nvidia-35": {"zzzzzz": 1}}, "use one of device_addresses, mdev_class"),
        ({"mdev_nvidia-35": {"mdev_class": "GPU"}}, r"\[mdev_nvidia-35\]mdev_class = 'GPU'.*CUSTOM_"),
        ({"mdev_nvidia-35": ["max_instances"]}, "as a mapping"),
        ({"mdev_": {"max_instances": 1}}, "section 'mdev_' is not known"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_nearest_name(overrides: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        applied(**overrides)


def test_sections_of_vgpu_types_are_replaced_option_by_option() -> None:
    base = Settings(mdev_types={"nvidia-35": TypeOptions(("0000:3b:00.0",), "CUSTOM_A"), "nvidia-36": TypeOptions()})
    overrides: dict[str, Any] = {
        "devices": {"enabled_mdev_types": ["nvidia-35", "nvidia-558"]},
        "mdev_nvidia-35": {"device_addresses": ["0000:5e:00.0", "0000:86:00.0"], "max_instances": 4},
        "vgpu_nvidia-558": {"display": True, "mdev_class": "CUSTOM_B"},
    }
    changed = apply_overrides(base, overrides, "lab.yaml")
    assert changed.enabled_mdev_types == ("nvidia-35", "nvidia-558")
    assert changed.mdev_types == {
        "nvidia-35": TypeOptions(("0000:5e:00.0", "0000:86:00.0"), "CUSTOM_A", 4),
        "nvidia-36": TypeOptions(),
        "nvidia-558": TypeOptions(mdev_class="CUSTOM_B", display=True),
    }
    assert changed.origins["mdev_nvidia-558", "display"] == "lab.yaml"

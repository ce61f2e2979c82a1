from __future__ import annotations

from typing import Any

import pytest
import yaml

from jetbridge.placement.names import is_resource_class, is_trait, resource_class_name, trait_names
from tests.unit.pci.build import CASES

TABLE = yaml.safe_load((CASES / "placement_names.yaml").read_text())


@pytest.mark.parametrize("case", TABLE["classes"], ids=lambda case: str(case["name"]))
def test_resource_class(case: dict[str, Any]) -> None:
    assert resource_class_name(case["name"], "10de", "26b9") == case["gives"]


@pytest.mark.parametrize("case", TABLE["traits"], ids=lambda case: str(case["text"]))
def test_traits(case: dict[str, Any]) -> None:
    assert trait_names(case["text"]) == frozenset(case["gives"])


def test_a_resource_class_stands_for_ids_that_are_not_given() -> None:
    assert resource_class_name("gpu", None, None) == "CUSTOM_GPU"


@pytest.mark.parametrize("name", ["VGPU", "CUSTOM_A", "CUSTOM_A_1"])
def test_names_that_placement_takes(name: str) -> None:
    assert is_resource_class(name)


@pytest.mark.parametrize("name", ["vgpu", "CUSTOM_", "CUSTOM_A-B", "GPU", "", "CUSTOM_" + "A" * 249, "CUSTOM_A\n"])
def test_names_that_placement_refuses(name: str) -> None:
    assert not is_resource_class(name)
    assert not is_trait(name)


def test_standard_traits_are_traits() -> None:
    assert is_trait("HW_CPU_X86_AVX2")
    assert not is_trait("HW_CPU_X86_AVX3000")

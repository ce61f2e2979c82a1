from __future__ import annotations

import json
from typing import Any

import pytest

from jetbridge.accelerator.device_spec import parse_accelerator_specs
from jetbridge.accelerator.ownership import check_one_owner
from jetbridge.errors import InvalidConfiguration
from tests.unit.accelerator.hosts import T4, NoFacts, specs


def test_a_type_has_its_class() -> None:
    gpu, fpga, other = specs({**T4, "type": "gpu"}, {"type": "FPGA"}, {"type": "NIC", "resource_class": "CUSTOM_FAST"})
    assert [(each.device_type, each.resource_class) for each in (gpu, fpga, other)] == [
        ("GPU", "PGPU"),
        ("FPGA", "FPGA"),
        ("NIC", "CUSTOM_FAST"),
    ]
    assert gpu.traits_of("1eb8") == {"OWNER_CYBORG", "CUSTOM_GPU_PRODUCT_ID_1EB8"}


def test_a_line_may_offer_mediated_devices() -> None:
    (spec,) = specs({**T4, "type": "GPU", "mdev_type": "nvidia-55", "mdev_count": 4, "traits": "fast,CUSTOM_B"})
    assert (spec.resource_class, spec.mdev_type, spec.mdev_count) == ("VGPU", "nvidia-55", 4)
    assert spec.traits == {"CUSTOM_FAST", "CUSTOM_B"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**T4}, "type=None"),
        ({**T4, "type": "TPU"}, "type='TPU': write one of GPU, FPGA"),
        ({**T4, "type": "GPU", "class": "PGPU"}, "class='PGPU': there is no such key"),
        ({**T4, "type": "GPU", "resource_class": "gpus"}, "resource_class='gpus'"),
        ({**T4, "type": "GPU", "mdev_type": "nvidia-55"}, "mdev_count=None"),
        ({**T4, "type": "GPU", "mdev_count": 2}, "mdev_type and mdev_count belong together"),
        ({**T4, "type": "GPU", "mdev_type": "a b", "mdev_count": 2}, "mdev_type='a b'"),
        ({**T4, "type": "GPU", "mdev_type": "a", "mdev_count": 0}, "mdev_count='0'"),
        (
            {**T4, "type": "NIC", "mdev_type": "a", "mdev_count": 1, "physical_network": "n1"},
            "physical_network='n1': a mediated device is no NIC",
        ),
        ({"vendor_id": 10, "type": "GPU"}, "property vendor_id"),
        ({"address": "zz:00.0", "type": "GPU"}, "zz"),
    ],
)
def test_a_wrong_line_is_named(line: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        parse_accelerator_specs([json.dumps(line)], NoFacts())
    assert said in refused.value.message
    assert "[pci]" not in refused.value.message


def test_f17_a_function_has_one_way_to_guests() -> None:
    pci = {"0000:3b:00.0": "[pci]device_spec line 1 {}", "0000:5e:00.0": "[pci]device_spec line 2 {}"}
    mdev = {"0000:af:00.0": "[mdev_nvidia-55]device_addresses"}
    check_one_owner("gpu1", [pci, mdev, {"0000:d8:00.0": "[accelerator]device_spec line 1 {}"}])
    with pytest.raises(InvalidConfiguration) as refused:
        check_one_owner("gpu1", [pci, mdev, {"0000:5e:00.0": "[accelerator]device_spec line 1 {}"}])
    for word in ("0000:5e:00.0", "gpu1", "[pci]device_spec line 2", "[accelerator]device_spec line 1"):
        assert word in refused.value.message

"""docs/fleet.md explains every key that a fleet file can have, and its example is a fleet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from jetbridge.config.fleet import load_fleet
from jetbridge.errors import InvalidFleet
from jetbridge.model.fleet import DISCOVERY_MODES, HYPERVISOR_CALLS

PAGE = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text()
EXAMPLE = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)

HOST: dict[str, Any] = {"name": "a"}
DEVICE: dict[str, Any] = {"address": "0000:3b:00.0", "vendor_id": "10de", "product_id": "1eb8"}
STRANGE = {"qqqq": "1"}


def with_device(**more: Any) -> dict[str, Any]:
    return {"hosts": [{**HOST, "devices": [{**DEVICE, **more}]}]}


@pytest.mark.parametrize(
    "fleet",
    [
        {"hosts": [HOST], **STRANGE},
        {"hosts": [{**HOST, **STRANGE}]},
        {"hosts": [{**HOST, "numa": {"cpus_per_cell": "4", "memory_mb_per_cell": "1024", **STRANGE}}]},
        {"hosts": [{**HOST, "simulate": STRANGE}]},
        {"hosts": [{**HOST, "simulate": {"delay": STRANGE}}]},
        {"hosts": [{**HOST, "simulate": {"fail": {"start_domain": STRANGE}}}]},
        with_device(**STRANGE),
        with_device(pf=STRANGE),
        with_device(vpd=STRANGE),
        with_device(mdev_types={"nvidia-558": STRANGE}),
        with_device(vgpu_types={"558": {"name": "N", **STRANGE}}),
    ],
    ids=["file", "host", "numa", "simulate", "delay", "fail", "device", "pf", "vpd", "mdev type", "vgpu type"],
)
def test_every_key_that_the_program_knows_is_explained(fleet: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet))
    with pytest.raises(InvalidFleet, match=r"unknown key 'qqqq'; known are ") as refusal:
        load_fleet(path)
    known = refusal.value.message.partition("known are ")[2].split(", ")
    explained = set(re.findall(r"[A-Za-z_]+", " ".join(re.findall(r"`([^`\n]+)`", PAGE))))
    assert {key for key in known if key not in explained} == set()


def test_the_calls_and_modes_are_listed() -> None:
    assert {name for name in (*HYPERVISOR_CALLS, *DISCOVERY_MODES) if f"`{name}`" not in PAGE} == set()


def test_the_example_is_a_fleet(tmp_path: Path) -> None:
    assert EXAMPLE is not None
    path = tmp_path / "fleet.yaml"
    path.write_text(EXAMPLE[1])
    fleet = load_fleet(path)
    assert [host.name for host in fleet.hosts] == ["gpu01", "gpu02", "desk"]
    numa = fleet.hosts[0].numa
    assert numa is not None
    assert (numa.cells, numa.hugepages) == (2, ((2048, 8192), (1048576, 16)))

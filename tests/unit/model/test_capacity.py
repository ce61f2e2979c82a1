"""CPU, memory and disk of a host against a flavor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jetbridge.model.capacity import capacity_refusals, disk_gb
from jetbridge.model.flavor import Flavor
from jetbridge.model.host_state import HostState

FLAVOR = Flavor(id=1, flavorid="1", name="small", vcpus=2, memory_mb=2048, root_gb=10)
HOST = HostState(
    compute_node_id=1,
    host="h",
    hypervisor_hostname="h",
    generation=1,
    vcpus=4,
    memory_mb=4608,
    disk_gb=20,
    vcpus_used=0,
    memory_mb_used=0,
    disk_gb_used=0,
    running_servers=0,
    cpu_allocation_ratio=2.0,
    ram_allocation_ratio=1.0,
    disk_allocation_ratio=1.0,
    reserved_memory_mb=512,
    reserved_disk_gb=0,
    enabled=True,
    alive=True,
)


def rules(host: HostState, flavor: Flavor = FLAVOR) -> list[str]:
    return [reason.rule for reason in capacity_refusals(host, flavor)]


@pytest.mark.parametrize(
    ("used", "refused"),
    [
        ({"vcpus_used": 6}, []),
        ({"vcpus_used": 7}, ["cpu"]),
        ({"memory_mb_used": 2048}, []),
        ({"memory_mb_used": 2049}, ["ram"]),
        ({"disk_gb_used": 10}, []),
        ({"disk_gb_used": 11}, ["disk"]),
        ({"vcpus_used": 8, "memory_mb_used": 4096, "disk_gb_used": 20}, ["cpu", "ram", "disk"]),
    ],
)
def test_the_last_one_that_fits_and_the_first_that_does_not(used: dict[str, int], refused: list[str]) -> None:
    assert rules(replace(HOST, **used)) == refused  # type: ignore[arg-type]


def test_a_server_larger_than_the_hardware_never_fits_whatever_the_ratio() -> None:
    host = replace(HOST, cpu_allocation_ratio=16.0)
    assert rules(host, replace(FLAVOR, vcpus=5)) == ["cpu"]
    assert rules(host, replace(FLAVOR, vcpus=4)) == []


def test_swap_counts_in_whole_gib() -> None:
    assert disk_gb(replace(FLAVOR, ephemeral_gb=1, swap_mb=1)) == 12
    assert disk_gb(replace(FLAVOR, swap_mb=1024)) == 11

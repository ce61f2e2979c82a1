from __future__ import annotations

from typing import Any

from jetbridge.model.flavor import Flavor
from jetbridge.numa.topology import GuestCell, GuestTopology, HostCell, HostTopology
from jetbridge.placement.host_tree import root_provider
from jetbridge.placement.sizes import server_resources


def root(**changes: Any) -> dict[str, tuple[int, int | None, float | None]]:
    facts: dict[str, Any] = {
        "vcpus": 8,
        "numa": None,
        "memory_mb": 4096,
        "disk_gb": 100,
        "reserved_memory_mb": 512,
        "reserved_disk_gb": 0,
        "cpu_ratio": 4.0,
        "memory_ratio": 1.0,
        "disk_ratio": 1.5,
    }
    made = root_provider("n", **{**facts, **changes})
    return {name: (each.total, each.reserved, each.allocation_ratio) for name, each in made.inventories.items()}


def cell(shared: range, pinnable: range) -> HostCell:
    return HostCell(0, frozenset(shared), frozenset(pinnable), 4096)


def test_a_host_without_cells() -> None:
    assert root() == {"VCPU": (8, 0, 4.0), "MEMORY_MB": (4096, 512, 1.0), "DISK_GB": (100, 0, 1.5)}


def test_cpus_that_are_shared_or_pinned() -> None:
    both = root(numa=HostTopology((cell(range(4), range(4)), cell(range(4, 8), range(4, 8)))))
    assert (both["VCPU"], both["PCPU"]) == ((8, 0, 4.0), (8, 0, 1.0))
    parted = root(numa=HostTopology((cell(range(6), range(6, 8)),)))
    assert (parted["VCPU"], parted["PCPU"]) == ((6, 0, 4.0), (2, 0, 1.0))
    assert "VCPU" not in root(numa=HostTopology((cell(range(0), range(8)),)))


def test_nothing_of_which_there_is_nothing_and_no_more_reserved_than_there_is() -> None:
    assert root(disk_gb=0, memory_mb=256) == {"VCPU": (8, 0, 4.0), "MEMORY_MB": (256, 256, 1.0)}


def test_what_a_server_takes() -> None:
    flavor = Flavor(1, "f", "f", vcpus=4, memory_mb=512, root_gb=10, ephemeral_gb=1, swap_mb=1)
    assert server_resources(flavor, None) == {"VCPU": 4, "MEMORY_MB": 512, "DISK_GB": 12}
    pinned = GuestTopology((GuestCell(0, cpus=frozenset({0}), memory_mb=512, pinned_cpus=frozenset({1, 2, 3})),))
    assert server_resources(flavor, pinned) == {"VCPU": 1, "PCPU": 3, "MEMORY_MB": 512, "DISK_GB": 12}
    assert server_resources(Flavor(1, "f", "f", vcpus=1, memory_mb=64, root_gb=0), None) == {"VCPU": 1, "MEMORY_MB": 64}

"""What device_spec reads in sysfs."""

from __future__ import annotations

from pathlib import Path

from jetbridge.pci.device_spec import HostFacts
from jetbridge.virt.hostfacts import SysfsFacts
from tests.unit.virt.fleets import opened


def facts(folder: Path) -> HostFacts:
    return SysfsFacts(opened(folder, "hardware: [connectx6, h100x8, t4x4]")[1])


def test_sriov(tmp_path: Path) -> None:
    found = facts(tmp_path)
    assert found.sriov_totalvfs("0000:a1:00.0") == 8
    assert found.sriov_totalvfs("0000:1b:00.0") == 16
    assert found.sriov_totalvfs("0000:2f:00.0") is None
    assert found.sriov_totalvfs("0000:ff:00.0") is None
    assert found.vf_product_id("0000:a1:00.0") == "101e"
    assert found.vf_product_id("0000:2f:00.0") is None


def test_ids_and_interfaces(tmp_path: Path) -> None:
    found = facts(tmp_path)
    assert found.pf_ids("0000:a1:00.0") == ("15b3", "101d")
    assert found.pf_ids("0000:ff:00.0") is None
    assert found.netdev_address("enp161s0f1") == "0000:a1:00.1"
    assert found.netdev_address("enp161s0f0v3") == "0000:a1:00.5"
    assert found.netdev_address("eth9") is None

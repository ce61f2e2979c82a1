"""sysfs through LocalHostFiles, and what is read there when a start fails."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from jetbridge.errors import HypervisorError
from jetbridge.virt.libvirt.explain import explain_start_failure
from jetbridge.virt.libvirt.files import LocalHostFiles
from jetbridge.virt.vfio import physical_functions_with_vfs


def function(root: Path, address: str, group: int, driver: str | None) -> None:
    """A PCI function in a sysfs of our own, with the links that the kernel makes."""
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    members = root / f"sys/kernel/iommu_groups/{group}/devices"
    members.mkdir(parents=True, exist_ok=True)
    (members / address).symlink_to(f"../../../../bus/pci/devices/{address}")
    (device / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{group}")
    (device / "driver_override").write_text("(null)\n")
    if driver is not None:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(f"../../drivers/{driver}")


def test_reading(tmp_path: Path) -> None:
    function(tmp_path, "0000:01:00.0", 12, "nouveau")
    files = LocalHostFiles(tmp_path)
    device = "/sys/bus/pci/devices/0000:01:00.0"
    assert files.read_text(f"{device}/driver_override") == "(null)\n"
    assert files.read_link(f"{device}/driver") == "../../drivers/nouveau"
    assert files.list_dir(f"{device}/iommu_group/devices") == ("0000:01:00.0",)


def test_what_is_not_there_is_none_or_empty(tmp_path: Path) -> None:
    files = LocalHostFiles(tmp_path)
    assert files.read_text("/sys/x") is None
    assert files.read_text("/") is None
    assert files.read_link("/sys/x") is None
    assert files.list_dir("/sys/x") == ()


def test_writes_are_recorded_before_they_are_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    function(tmp_path, "0000:01:00.0", 12, None)
    files = LocalHostFiles(tmp_path, host="gpu001")
    path = "/sys/bus/pci/devices/0000:01:00.0/driver_override"
    with caplog.at_level(logging.INFO):
        files.write_text(path, "vfio-pci")
        with pytest.raises(HypervisorError, match=r"writing '1' to /sys/nowhere failed on gpu001: No such file"):
            files.write_text("/sys/nowhere", "1")
    assert [record.getMessage() for record in caplog.records] == [
        f"host gpu001: writing 'vfio-pci' to {path}",
        "host gpu001: writing '1' to /sys/nowhere",
    ]
    assert (files.read_text(path) or "").startswith("vfio-pci")
    assert not (tmp_path / "sys/nowhere").exists()


def test_physical_function_that_still_has_vfs_is_named(tmp_path: Path) -> None:
    function(tmp_path, "0000:01:00.0", 12, "nvme")
    files = LocalHostFiles(tmp_path)
    assert physical_functions_with_vfs(["0000:01:00.0"], files) == []
    vfs = tmp_path / "sys/bus/pci/devices/0000:01:00.0/sriov_numvfs"
    vfs.write_text("0\n")
    assert physical_functions_with_vfs(["0000:01:00.0"], files) == []
    vfs.write_text("2\n")
    (sentence,) = physical_functions_with_vfs(["0000:01:00.0", "0000:02:00.0"], files)
    assert sentence.startswith("0000:01:00.0 has 2 VFs")
    assert "echo 0 >/sys/bus/pci/devices/0000:01:00.0/sriov_numvfs" in sentence


def test_other_failures_stay_as_they_are(tmp_path: Path) -> None:
    text = "Cannot access storage file '/x': No such file or directory"
    assert explain_start_failure(text, tmp_path) == text


def test_missing_uefi_firmware_is_said_with_its_package(tmp_path: Path) -> None:
    text = "operation failed: Unable to find any firmware to satisfy 'efi'"
    assert "install ovmf" in explain_start_failure(text, tmp_path)


def test_permission_denied_names_the_folder_that_is_closed(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir(mode=0o700)
    reason = explain_start_failure("Could not open 'root.qcow2': Permission denied", state_dir)
    assert "chmod o+x" in reason
    assert "--state-dir" in reason

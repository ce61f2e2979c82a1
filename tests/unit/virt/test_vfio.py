"""When VFIO gives an IOMMU group, and what a refusal says."""

from __future__ import annotations

import pytest

from jetbridge.virt.vfio import still_held

QEMU = "internal error: qemu unexpectedly closed the monitor: qemu-system-x86_64: -device vfio-pci: vfio 0000:01:00.0: "


@pytest.mark.parametrize(
    ("refusal", "held"),
    [
        (QEMU + "error getting device from group 12: Device or resource busy", True),
        (QEMU + "group 7 is not viable\nPlease ensure all devices within the iommu_group are bound", True),
        (QEMU + "failed to open /dev/vfio/7: Device or resource busy", True),
        ("Unable to open '/dev/vfio/7': Device or resource busy", True),
        (QEMU + "failed to setup container for group 7: Failed to set iommu for container", False),
        ("Path '/dev/vfio/13' is not accessible: No such file or directory", False),
        ("Unable to open '/dev/net/tun': Device or resource busy", False),
        ("internal error: unable to move process to cgroup: group is gone", False),
    ],
)
def test_whether_a_refusal_says_that_a_group_is_still_held(refusal: str, held: bool) -> None:
    assert still_held(refusal) is held

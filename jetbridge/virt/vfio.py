"""When VFIO gives an IOMMU group: only as a whole (https://docs.kernel.org/driver-api/vfio.html)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from jetbridge.virt.connection import HostFiles

VFIO_DRIVERS = frozenset({"vfio-pci", "nvgrace_gpu_vfio_pci", "mlx5_vfio_pci", "ice_vfio_pci"})

# A member without a driver does no DMA; these drivers are known to the kernel to do none either.
_HARMLESS_DRIVERS = VFIO_DRIVERS | {None, "", "pci-stub", "pcieport", "shpchp"}


# What QEMU and libvirt say when VFIO doesn't give them a device of a group.
_HELD = re.compile(
    r"getting device from group|group \d+ is not viable|/dev/vfio/\d+'?: Device or resource busy", re.IGNORECASE
)


def still_held(refusal: str) -> bool:
    """Whether a failed start says that an IOMMU group wasn't given: it may be given a moment later, when whoever had it has let go."""
    return _HELD.search(refusal) is not None


def blocks_group(driver: str | None, *, is_bridge: bool = False) -> bool:
    """Whether a function with this driver keeps the other functions of its IOMMU group from being given to a guest."""
    return not is_bridge and driver not in _HARMLESS_DRIVERS


def blocking_members(address: str, rows: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """The other members of the function's IOMMU group that keep it from being given, with their drivers.

    ``rows`` is the host report by address. Empty: the group is viable once the function itself is on vfio-pci.
    """
    members = rows.get(address, {}).get("iommu_members") or []
    assert isinstance(members, list)
    found = {}
    for member in members:
        row = rows.get(member)
        if member != address and row:
            driver = str(row.get("driver") or "")
            if blocks_group(driver, is_bridge=str(row.get("class", "")).startswith("0x06")):
                found[member] = driver
    return found


def physical_functions_with_vfs(addresses: Iterable[str], files: HostFiles) -> list[str]:
    """Sentences about those of the functions that have VFs. vfio-pci refuses them, and some drivers (``nvme``) leave their VFs when
    they let go of their function. libvirt doesn't see the refusal: it misses the group's file in /dev/vfio later."""
    folder = "/sys/bus/pci/devices"
    counts = {address: (files.read_text(f"{folder}/{address}/sriov_numvfs") or "0").strip() for address in addresses}
    return [
        f"{address} has {count} VFs, and vfio-pci takes a physical function only without any: when no guest needs them,"
        f" `echo 0 >{folder}/{address}/sriov_numvfs` on the host"
        for address, count in counts.items()
        if count != "0"
    ]

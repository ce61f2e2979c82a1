"""What a failed start most likely needs, beyond libvirt's own text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jetbridge.virt.connection import HostFiles
from jetbridge.virt.files import closed_folder
from jetbridge.virt.guest import hostdevs_of

_DEVICES = "/sys/bus/pci/devices"
_PASSIVE = ("vfio-pci", "pcieport", None)  # what the kernel lets the members of a viable group be bound to


def explain_start_failure(text: str, xml: str, files: HostFiles, state_dir: Path) -> str:
    """``text`` with what can be seen on the host added; ``xml`` is the domain that didn't start."""
    if "is not viable" in text:
        return _joined(text, group_members_in_the_way(hostdevs_of(xml), files))
    if "/dev/vfio/" in text:
        return _joined(text, physical_functions_with_vfs(hostdevs_of(xml), files))
    if "firmware" in text and "efi" in text:
        return _joined(text, ["The image asks for UEFI (hw_firmware_type=uefi): install ovmf on the host"])
    if "Permission denied" in text and (folder := closed_folder(state_dir / "x")) is not None:
        fix = f"{folder} can't be passed by QEMU's user: `chmod o+x {folder}`, or use another --state-dir"
        return _joined(text, [fix])
    return text


def group_members_in_the_way(addresses: Iterable[str], files: HostFiles) -> list[str]:
    """For each device, one sentence naming the members of its IOMMU group that host drivers hold (F20: a GPU's audio
    function, mostly). https://docs.kernel.org/driver-api/vfio.html: a group is owned whole."""
    found = []
    for address in addresses:
        link = files.read_link(f"{_DEVICES}/{address}/iommu_group")
        members = files.list_dir(f"{_DEVICES}/{address}/iommu_group/devices")
        drivers = {member: _driver(member, files) for member in members}
        held = [f"{member} (driver {drivers[member]})" for member in members if drivers[member] not in _PASSIVE]
        if link is not None and held:
            others = ", ".join(held)
            found.append(
                f"IOMMU group {Path(link).name} of {address} also holds {others}:"
                " bind them to vfio-pci, or give them to the same guest"
            )
    return found


def physical_functions_with_vfs(addresses: Iterable[str], files: HostFiles) -> list[str]:
    """vfio-pci refuses physical functions whose VFs exist, and some drivers leave them when they let go of their function. libvirt
    doesn't see the refusal: it misses the group's file in /dev/vfio later."""
    counts = {address: (files.read_text(f"{_DEVICES}/{address}/sriov_numvfs") or "0").strip() for address in addresses}
    return [
        f"{address} has {count} VFs, and vfio-pci takes a physical function only without any: when no guest needs them,"
        f" `echo 0 >{_DEVICES}/{address}/sriov_numvfs` on the host"
        for address, count in counts.items()
        if count != "0"
    ]


def _driver(address: str, files: HostFiles) -> str | None:
    link = files.read_link(f"{_DEVICES}/{address}/driver")
    return None if link is None else Path(link).name


def _joined(text: str, additions: list[str]) -> str:
    return ". ".join([text.strip().rstrip("."), *additions])

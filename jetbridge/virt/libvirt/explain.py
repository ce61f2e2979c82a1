"""What a failed start most likely needs, beyond libvirt's own text. (Who else is in an IOMMU group that isn't viable, the agent tells.)"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jetbridge.virt.connection import HostFiles
from jetbridge.virt.files import closed_folder
from jetbridge.virt.guest import hostdevs_of

_DEVICES = "/sys/bus/pci/devices"


def explain_start_failure(text: str, xml: str, files: HostFiles, state_dir: Path) -> str:
    """``text`` with what can be seen on the host added; ``xml`` is the domain that didn't start."""
    if "/dev/vfio/" in text:
        return _joined(text, physical_functions_with_vfs(hostdevs_of(xml), files))
    if "firmware" in text and "efi" in text:
        return _joined(text, ["The image asks for UEFI (hw_firmware_type=uefi): install ovmf on the host"])
    if "Permission denied" in text and (folder := closed_folder(state_dir / "x")) is not None:
        fix = f"{folder} can't be passed by QEMU's user: `chmod o+x {folder}`, or use another --state-dir"
        return _joined(text, [fix])
    return text


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


def _joined(text: str, additions: list[str]) -> str:
    return ". ".join([text.strip().rstrip("."), *additions])

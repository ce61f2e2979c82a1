"""What a failed start most likely needs, beyond libvirt's own text. (What stands in the way of a device, the agent tells.)"""

from __future__ import annotations

from pathlib import Path

from jetbridge.virt.files import closed_folder


def explain_start_failure(text: str, state_dir: Path) -> str:
    """``text`` with what can be seen on the host added."""
    if "firmware" in text and "efi" in text:
        return _joined(text, ["The image asks for UEFI (hw_firmware_type=uefi): install ovmf on the host"])
    if "Permission denied" in text and (folder := closed_folder(state_dir / "x")) is not None:
        fix = f"{folder} can't be passed by QEMU's user: `chmod o+x {folder}`, or use another --state-dir"
        return _joined(text, [fix])
    return text


def _joined(text: str, additions: list[str]) -> str:
    return ". ".join([text.strip().rstrip("."), *additions])

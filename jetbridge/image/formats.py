"""What an uploaded file really is: its format is looked for, never believed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oslo_utils.imageutils import format_inspector

from jetbridge.errors import Invalid

_CHUNK = 1024 * 1024

DISK_FORMATS = ("raw", "qcow2", "iso", "ami", "aki", "ari")
"""Formats an image can be declared as. ``aki`` and ``ari`` are kernels and initial ramdisks."""

# What content may be found under a declared format. A partition table ("gpt") is what raw disks, hybrid ISO images and
# bootable kernels have; raw content is handed to the hypervisor as such and never interpreted on the host.
_ACCEPTED = {
    "raw": frozenset({"raw", "gpt"}),
    "ami": frozenset({"raw", "gpt"}),
    "aki": frozenset({"raw", "gpt"}),
    "ari": frozenset({"raw", "gpt"}),
    "iso": frozenset({"iso", "gpt"}),
    "qcow2": frozenset({"qcow2"}),
}
# Formats whose headers point at other files or carry features of doubtful use, by the inspector's check.
_UNSAFE = {
    "backing_file": "it has a backing file: flatten it with `qemu-img convert -O qcow2 IN OUT`",
    "data_file": "it keeps its data in another file: flatten it with `qemu-img convert -O qcow2 IN OUT`",
    "unknown_features": "its header has features that are not known: rewrite it with `qemu-img convert -O qcow2 IN OUT`",
    "version": "its version of the format is too old: rewrite it with `qemu-img convert -O qcow2 IN OUT`",
}


@dataclass(frozen=True)
class Inspected:
    """``virtual_size``: the size of the disk that a guest sees, in bytes."""

    virtual_size: int


def inspect(path: Path, disk_format: str) -> Inspected:
    """Check that the file is a ``disk_format`` image that is safe to open. Raises ``Invalid`` saying what was found."""
    inspectors = _inspectors(path)
    found = sorted(str(inspector) for inspector in inspectors)
    accepted = _ACCEPTED[disk_format]
    if not set(found) <= accepted:
        raise Invalid(
            reason=f"the image's disk_format={disk_format} does not match its content, which is {' and '.join(found)}:"
            f" {_advice(found, disk_format)}"
        )
    if disk_format != "qcow2":
        return Inspected(path.stat().st_size)
    (inspector,) = inspectors
    _refuse_unsafe(inspector)
    return Inspected(int(inspector.virtual_size))


def _inspectors(path: Path) -> list[Any]:
    with path.open("rb") as source:
        wrapper = format_inspector.InspectWrapper(source)
        while wrapper.read(_CHUNK) and wrapper.formats is None:
            pass
        wrapper.close()
    return list(wrapper.formats or ())


def _refuse_unsafe(inspector: Any) -> None:
    try:
        inspector.safety_check()
    except format_inspector.SafetyCheckFailed as error:
        why = "; ".join(_UNSAFE.get(name, f"{name}: {failure}") for name, failure in sorted(error.failures.items()))
        raise Invalid(reason=f"the {inspector} image is refused: {why}") from None
    except format_inspector.ImageFormatError as error:
        raise Invalid(reason=f"the {inspector} image can't be read: {error}") from None


def _advice(found: list[str], declared: str) -> str:
    if found == ["qcow2"]:
        return "upload it with disk_format qcow2"
    if set(found) <= {"raw", "gpt"}:
        return f"upload it with disk_format raw, or a file that is {declared}"
    if set(found) <= {"iso", "gpt"}:
        return "upload it with disk_format iso"
    return "convert it with `qemu-img convert -O qcow2 IN OUT` and upload it with disk_format qcow2"

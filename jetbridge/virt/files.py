"""A guest's files: the root disk as a qcow2 overlay (qemu-img), the config drive as an ISO image (pycdlib)."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pycdlib

from jetbridge.errors import HypervisorError
from jetbridge.virt.connection import DiskRequest

_GIB = 1024**3
_QEMU_IMG_SECONDS = 120.0
CONFIG_DRIVE_LABEL = "config-2"  # by which cloud-init finds it


def existing(folder: Path, root_disk: str, config_drive: str) -> tuple[Path | None, Path | None]:
    """The two files of a guest's folder; None for one that isn't there."""
    root, drive = folder / root_disk, folder / config_drive
    return root if root.exists() else None, drive if drive.exists() else None


def create_root_disk(disk: DiskRequest, path: Path, *, host: str) -> None:
    """Makes the disk at ``path``, over an earlier one. Raises ``HypervisorError``."""
    operation = f"creating the root disk of {disk.domain}"
    command = ["qemu-img", "create", "-q", "-f", "qcow2"]
    if disk.base is not None:
        needed = _virtual_size(disk.base, disk.base_format, operation, host)
        if disk.size_gb and disk.size_gb * _GIB < needed:
            raise HypervisorError(
                operation=operation,
                host=host,
                reason=f"the flavor's disk of {disk.size_gb} GiB is smaller than the image"
                f" ({needed / _GIB:.1f} GiB): use a flavor with a larger disk, or with disk 0 for the image's size",
            )
        command += ["-b", str(disk.base.absolute()), "-F", disk.base_format]
    elif not disk.size_gb:
        raise HypervisorError(operation=operation, host=host, reason="without an image the flavor's disk must not be 0")
    command += [str(path), *([f"{disk.size_gb}G"] if disk.size_gb else [])]
    path.parent.mkdir(parents=True, exist_ok=True)
    existed = path.exists()  # perhaps in use: qemu-img refuses to touch the disk of a running guest, and so do we
    try:
        _run(command, operation, host)
        # Others may pass these folders, as QEMU's user has to; libvirt gives the file to that user when the guest starts.
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    except HypervisorError:
        if not existed:
            path.unlink(missing_ok=True)
        raise


def _virtual_size(base: Path, base_format: str, operation: str, host: str) -> int:
    # -U: the image may be open as the base of running guests.
    output = _run(["qemu-img", "info", "-U", "-f", base_format, "--output=json", str(base.absolute())], operation, host)
    return int(json.loads(output)["virtual-size"])


def _run(command: list[str], operation: str, host: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QEMU_IMG_SECONDS, check=False)
    except FileNotFoundError:
        raise HypervisorError(
            operation=operation, host=host, reason="qemu-img is missing: install qemu-utils"
        ) from None
    except subprocess.TimeoutExpired:
        reason = f"qemu-img did not end within {_QEMU_IMG_SECONDS:.0f} s"
        raise HypervisorError(operation=operation, host=host, reason=reason) from None
    if done.returncode:
        raise HypervisorError(operation=operation, host=host, reason=done.stderr.strip() or f"exit {done.returncode}")
    return done.stdout


def create_config_drive(files: Mapping[str, bytes], path: Path) -> None:
    """Writes ``files`` (path on the drive to content) as an ISO image labelled config-2.

    Rock Ridge (Linux) and Joliet (Windows) carry the names as given; the ISO 9660 names below are only numbered.
    """
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=CONFIG_DRIVE_LABEL)
    folders = {PurePosixPath("/"): "/"}
    for number, (name, content) in enumerate(sorted(files.items())):
        target = PurePosixPath("/") / name
        for folder in reversed(target.parents[:-1]):
            if folder not in folders:
                folders[folder] = f"{folders[folder.parent].rstrip('/')}/D{len(folders):07d}"
                iso.add_directory(folders[folder], rr_name=folder.name, joliet_path=str(folder))
        iso.add_fp(
            io.BytesIO(content),
            len(content),
            f"{folders[target.parent].rstrip('/')}/F{number:07d}.;1",
            rr_name=target.name,
            joliet_path=str(target),
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    try:
        iso.write(str(unfinished))
        # User data may hold secrets; libvirt gives the file to QEMU's user when the guest starts.
        unfinished.chmod(stat.S_IRUSR | stat.S_IWUSR)
        unfinished.replace(path)
    finally:
        iso.close()
        unfinished.unlink(missing_ok=True)


def closed_folder(path: Path) -> Path | None:
    """The topmost folder above ``path`` that other users can't pass through, or None.

    QEMU runs as a user of its own: libvirt gives it the guest's files (``dynamic_ownership``), but not the way there.
    """
    for folder in reversed(path.absolute().parents):
        try:
            if not os.stat(folder).st_mode & stat.S_IXOTH:
                return folder
        except OSError:
            return None
    return None

"""Root disks, made by the real qemu-img."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jetbridge.errors import HypervisorError
from jetbridge.virt.connection import DiskRequest
from jetbridge.virt.files import closed_folder, create_root_disk

GIB = 1024**3


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.raw"
    with path.open("wb") as file:
        file.truncate(2 * GIB)
    return path


def _info(path: Path) -> Any:
    output = subprocess.run(["qemu-img", "info", "--output=json", str(path)], capture_output=True, check=True).stdout
    return json.loads(output)


@pytest.mark.parametrize(("size_gb", "size"), [(3, 3 * GIB), (2, 2 * GIB), (0, 2 * GIB)])
def test_root_disk_is_an_overlay_on_the_image(tmp_path: Path, base: Path, size_gb: int, size: int) -> None:
    path = tmp_path / "instances" / "root.qcow2"
    create_root_disk(DiskRequest("instance-00000001", base, "raw", size_gb), path, host="h1")
    info = _info(path)
    assert (info["format"], info["virtual-size"]) == ("qcow2", size)
    assert (info["full-backing-filename"], info["backing-filename-format"]) == (str(base), "raw")


def test_disk_smaller_than_the_image_is_refused_naming_both(tmp_path: Path, base: Path) -> None:
    with pytest.raises(HypervisorError, match=r"instance-00000001.*1 GiB is smaller than the image \(2\.0 GiB\)"):
        create_root_disk(DiskRequest("instance-00000001", base, "raw", 1), tmp_path / "root.qcow2", host="h1")


def test_empty_disk(tmp_path: Path) -> None:
    create_root_disk(DiskRequest("d", None, "raw", 1), tmp_path / "root.qcow2", host="h1")
    info = _info(tmp_path / "root.qcow2")
    assert info["virtual-size"] == GIB
    assert "backing-filename" not in info
    with pytest.raises(HypervisorError, match="must not be 0"):
        create_root_disk(DiskRequest("d", None, "raw", 0), tmp_path / "root.qcow2", host="h1")


def test_qemu_img_says_itself_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(HypervisorError, match="No such file"):
        create_root_disk(DiskRequest("d", tmp_path / "gone", "raw", 1), tmp_path / "root.qcow2", host="h1")
    assert not (tmp_path / "root.qcow2").exists()


def test_failure_leaves_an_earlier_disk_where_it_was(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "root.qcow2"
    create_root_disk(DiskRequest("d", base, "raw", 2), path, host="h1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HypervisorError):
        create_root_disk(DiskRequest("d", None, "raw", 2), path, host="h1")
    assert path.exists()


def test_missing_qemu_img_is_said_with_its_package(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HypervisorError, match="install qemu-utils"):
        create_root_disk(DiskRequest("d", base, "raw", 2), tmp_path / "root.qcow2", host="h1")


def test_folder_that_qemu_cannot_pass_is_found(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "open").mkdir(parents=True)
    (closed / "open").chmod(0o755)
    closed.chmod(0o750)
    found = closed_folder(closed / "open" / "root.qcow2")
    assert found is not None
    assert found == closed or found in closed.parents  # the temporary folder itself may be closed

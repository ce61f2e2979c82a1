"""The state folder: who may do what with it."""

from __future__ import annotations

import stat
from pathlib import Path

from jetbridge.service.statedir import StateDir
from jetbridge.virt.files import closed_folder


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_qemu_can_pass_a_fresh_folder_and_nobody_else_can_look_around(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    state.take()
    state.release()
    disk = state.path / "instances" / "instance-00000001" / "root.qcow2"
    assert not str(closed_folder(disk) or "").startswith(str(state.path))
    for folder in (state.path, state.path / "images", state.path / "instances"):
        assert _mode(folder) & stat.S_IROTH == 0
    for file in (state.path / "jetbridge.sqlite3", state.log):
        assert _mode(file) == 0o600


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    state = StateDir(tmp_path)
    state.take()
    state.release()
    assert _mode(tmp_path) == 0o750

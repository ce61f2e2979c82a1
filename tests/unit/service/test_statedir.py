"""The state folder: who may do what with it."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from jetbridge.service.logs import log_to_file, stop_logging
from jetbridge.service.placement import spawn_process
from jetbridge.service.placement_config import ChildConfig
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


def test_locks_and_logs_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        state = StateDir(tmp_path / "state")
        state.take_role("conductor", 1)
        state.hold_host("h1")
        with state.alone("upgrade"):
            pass
        stop_logging(log_to_file(state.log_of("conductor", 1)))
        listener = socket.socket()
        child = spawn_process(ChildConfig("", "", "none", None, ""), listener, state.placement_log)
        child.kill()
        child.wait()
        listener.close()
        state.release()
    finally:
        os.umask(before)
    files = [path for path in state.path.iterdir() if path.is_file()]
    assert {"lock", "conductor.lock", "hosts.lock", "upgrade.lock", "conductor.log", "placement.log"} <= {
        path.name for path in files
    }
    assert [path.name for path in files if _mode(path) != 0o600] == []


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    state = StateDir(tmp_path)
    state.take()
    state.release()
    assert _mode(tmp_path) == 0o750

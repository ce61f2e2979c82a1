"""The state folder: one process at a time, and the files clients need."""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import yaml

from jetbridge.errors import JetbridgeError

DATABASE_NOTE = "database.url"


class StateDirInUse(JetbridgeError):
    template = (
        "The state folder {path} is used by another jetbridge (process {pid}): stop it, or give another --state-dir"
    )


class StateDir:
    """A folder held by this process: by all-in-one alone, by separate services together. Locks go with the process, however it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        self._own: list[IO[str]] = []
        self._hosts: IO[str] | None = None

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.path / 'jetbridge.sqlite3'}"

    def note_database(self, url: str, shown_url: str) -> None:
        """Leave word of a database elsewhere, without its password, for who looks for it here."""
        note = self.path / DATABASE_NOTE
        with writing(note):
            if url == self.database_url:
                note.unlink(missing_ok=True)
            else:
                note.write_text(f"{shown_url}\n", encoding="utf-8")

    @property
    def placement_database(self) -> Path:
        return self.path / "placement.sqlite3"

    @property
    def placement_log(self) -> Path:
        return self.path / "placement.log"

    @property
    def log(self) -> Path:
        return self.path / "jetbridge.log"

    @property
    def clouds(self) -> Path:
        return self.path / "clouds.yaml"

    def take_role(self, role: str, most: int) -> int:
        """Hold the folder beside other services, as one of at most ``most`` processes of a role; which one, from 1 on. Whoever had the
        number before is gone. Raises ``StateDirInUse``."""
        self.take(shared=True)
        for number in range(1, most + 1):
            lock = _lock_file(self.path / f"{numbered(role, number)}.lock")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
                lock.close()
                continue
            _sign(lock)
            self._own.append(lock)
            return number
        self.release()
        raise StateDirInUse(path=self.path, pid=f"{holder}, {role}")

    def hold_host(self, name: str) -> None:
        """Make a compute host this process's own: two agents of one host would undo each other's work. Raises ``JetbridgeError``.

        One byte of one file per host, so that a thousand hosts don't need a thousand open files.
        """
        if self._hosts is None:
            self._hosts = _lock_file(self.path / "hosts.lock")
        try:
            fcntl.lockf(self._hosts, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, zlib.crc32(name.encode()))
        except OSError as error:
            raise JetbridgeError(
                f"Host {name} is served by another jetbridge compute on this machine: stop that, or leave the host to it by --host"
            ) from error

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Only one process of this machine at a time does ``what``; others wait."""
        with _lock_file(self.path / f"{what}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def take(self, *, shared: bool = False) -> None:
        """Make the folder and hold it. Raises ``StateDirInUse``."""
        try:
            make_state_dir(self.path)
            lock = _lock_file(self.path / "lock")
        except OSError as error:
            raise JetbridgeError(
                f"The state folder {self.path} can't be used: {error}. Give another --state-dir"
            ) from error
        try:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise StateDirInUse(path=self.path, pid=holder) from None
        _sign(lock)
        self._lock = lock

    def release(self) -> None:
        """A folder that isn't held: nothing happens."""
        for lock in (self._lock, self._hosts, *self._own):
            if lock is not None:
                lock.close()
        self._lock = self._hosts = None
        self._own.clear()

    def log_of(self, role: str, number: int) -> Path:
        return self.path / f"{numbered(role, number)}.log"


def numbered(role: str, number: int) -> str:
    """``conductor``, ``conductor-2``, ..."""
    return role if number == 1 else f"{role}-{number}"


def owner_only(path: str, flags: int) -> int:
    """An ``opener``: a file that it makes is its owner's alone, whatever the process's umask; one that is there keeps its mode."""
    return os.open(path, flags, 0o600)


def _lock_file(path: Path) -> IO[str]:
    return open(path, "a+", encoding="ascii", opener=owner_only)


def _sign(lock: IO[str]) -> None:
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()


def make_state_dir(path: Path) -> None:
    """A folder that QEMU, which runs as a user of its own, can pass on its way to a guest's disk, but where nobody else can look
    around; databases, logs and locks are their owner's alone. A folder that exists keeps its mode."""
    if not path.is_dir():
        for folder in (path, path / "images", path / "instances"):
            folder.mkdir(parents=True)
            folder.chmod(0o711)
    for name in ("jetbridge.sqlite3", "jetbridge.log"):
        # Before their writers make them by the process's umask; SQLite gives its other files the mode of the first.
        (path / name).touch(mode=0o600)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises ``JetbridgeError`` that names what can't be written."""
    try:
        yield
    except OSError as error:
        raise JetbridgeError(
            f"{path} can't be written: {error.strerror or error}. Move away what is there, or give another --state-dir"
        ) from error


def write_clouds(
    path: Path,
    base_url: str,
    auth_strategy: str = "none",
    placement_url: str | None = None,
    network_url: str | None = None,
    accelerator_url: str | None = None,
) -> None:
    """Write a clouds.yaml whose cloud ``jetbridge`` is this service. ``placement_url`` None: no Placement that its clients could ask.
    ``network_url``, ``accelerator_url``: of services elsewhere.

    Clients that ask no Keystone need an endpoint and an override per service (openstacksdk, Configuring OpenStack SDK
    Applications). Placement's is the endpoint itself, for osc-placement looks at no other. A password never stands in the file: OS_USERNAME and OS_PASSWORD give it.
    Raises ``JetbridgeError`` when it can't be written.
    """
    cloud = {
        "auth_type": auth_strategy,
        "auth": {"endpoint": placement_url or base_url},
        "compute_endpoint_override": f"{base_url}/compute/v2.1",
        "image_endpoint_override": f"{base_url}/image",
        "identity_endpoint_override": f"{base_url}/identity/v3",
        "network_endpoint_override": network_url or f"{base_url}/network",
        "accelerator_endpoint_override": accelerator_url or f"{base_url}/accelerator/v2",
    }
    temporary = path.with_suffix(".new")
    with writing(path):
        temporary.write_text(yaml.safe_dump({"clouds": {"jetbridge": cloud}}, sort_keys=False), encoding="utf-8")
        temporary.chmod(0o600)
        temporary.replace(path)

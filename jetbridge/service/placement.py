"""The embedded Placement as its parent sees it: a child process with a socket of ours, started again when it dies."""

from __future__ import annotations

import logging
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from jetbridge.config.settings import Settings
from jetbridge.db.sqlite_file import fold, prepare
from jetbridge.errors import DatabaseUnusable, JetbridgeError
from jetbridge.service.http import bound, reachable_at
from jetbridge.service.placement_config import ChildConfig
from jetbridge.service.statedir import owner_only

logger = logging.getLogger(__name__)

STOP_SECONDS = 5.0
SHORTEST_LIFE_SECONDS = 5.0
"""A child that lives shorter is not started again at once: it would die of the same."""
PAUSE_SECONDS = 2.0
BACKLOG = 512


class Child(Protocol):
    """A running child."""

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit code once it has ended; None: it still runs after ``seconds``."""
        ...

    def end(self) -> None:
        """Let it know that it is to end."""
        ...

    def kill(self) -> None: ...


Spawn = Callable[[ChildConfig, socket.socket, Path], Child]
"""Starts a child that serves on the socket and writes its log to the file."""


class EmbeddedPlacement:
    """Takes its address when made (port 0: any free one). The socket stays ours: while no child lives, requests wait in it, so that
    a restart shows as a delay. Raises ``JetbridgeError`` when the address can't be had."""

    def __init__(self, settings: Settings, database: Path, log: Path, listen: str, port: int, spawn: Spawn) -> None:
        self._socket = bound(listen, port, "--placement-port, or [placement]endpoint_override of the one that is there")
        self._socket.listen(BACKLOG)
        self.url = reachable_at(listen, self._socket.getsockname()[1])
        self.own_token = secrets.token_hex(32)
        self._config = ChildConfig(
            database=str(database),
            listen=listen,
            auth_strategy=settings.auth_strategy,
            http_basic_auth_user_file=str(settings.http_basic_auth_user_file or "") or None,
            own_token=self.own_token,
        )
        self._log = log
        self._spawn = spawn
        self._child: Child | None = None
        self._stopping = threading.Event()
        self._changing = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="placement", daemon=True)

    def start(self) -> None:
        """Returns at once: requests wait until the child serves. Raises ``JetbridgeError`` for a file that is no database: each child would
        die of it."""
        database = Path(self._config.database)
        try:
            prepare(database)
        except DatabaseUnusable as error:
            raise JetbridgeError(
                f"The embedded Placement can't use its database. {error.message}. Restore the file; or move it away: then hosts report"
                " themselves again, and servers get their allocations back"
            ) from error
        self._child = self._spawn(self._config, self._socket, self._log)
        self._watcher.start()

    def stop(self) -> None:
        with self._changing:
            self._stopping.set()
            child = self._child
        if child is not None:
            child.end()
            if child.wait(STOP_SECONDS) is None:
                child.kill()
            self._watcher.join()
            fold(Path(self._config.database))
        self._socket.close()

    def _watch(self) -> None:
        while True:
            child, began = self._child, time.monotonic()
            assert child is not None
            code = child.wait()
            if not self._stopping.is_set():
                logger.error("The embedded Placement ended with %s, see %s: it is started again", code, self._log)
                if time.monotonic() - began < SHORTEST_LIFE_SECONDS:
                    self._stopping.wait(PAUSE_SECONDS)
            with self._changing:
                if self._stopping.is_set():
                    return
                self._child = self._spawn(self._config, self._socket, self._log)


class _Process:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def wait(self, seconds: float | None = None) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()


def spawn_process(config: ChildConfig, listener: socket.socket, log: Path) -> Child:
    """A new interpreter. Its input is a pipe whose other end nobody else has: it closes when this process ends, however that is."""
    fd = listener.fileno()
    with open(log, "ab", opener=owner_only) as stream:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "jetbridge.service.placement_child", str(fd)],
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=stream,
            pass_fds=(fd,),
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        process.stdin.write(f"{config.to_json()}\n".encode())
        process.stdin.flush()
    except BrokenPipeError:
        raise JetbridgeError(f"The embedded Placement could not be started: see {log}") from None
    return _Process(process)

"""Embedded Placements for tests: forked off a process that has imported everything, in a fraction of what a new interpreter needs.

The product starts an interpreter of its own for it (``spawn_process``), which tests of the command line do as well.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jetbridge.service.placement import Child
from jetbridge.service.placement_config import ChildConfig

_LENGTH = struct.Struct("!I")


@dataclass(frozen=True)
class Fork:
    """A ``Spawn`` that asks the process at the socket ``path`` for a child; it can be sent to other processes."""

    path: str

    def __call__(self, config: ChildConfig, listener: socket.socket, log: Path) -> Child:
        lifeline_of_child, lifeline = os.pipe()
        with log.open("ab") as stream:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(self.path)
            text = config.to_json().encode()
            socket.send_fds(
                connection, [_LENGTH.pack(len(text))], [listener.fileno(), lifeline_of_child, stream.fileno()]
            )
            connection.sendall(text)
        os.close(lifeline_of_child)
        pid = int(connection.recv(32))
        return ForkedChild(pid, connection, lifeline)


class ForkedChild:
    """``connection`` ends with the child, who has its other side; the child ends with ``lifeline``."""

    def __init__(self, pid: int, connection: socket.socket, lifeline: int) -> None:
        self.pid = pid
        self._connection = connection
        self._lifeline: int | None = lifeline
        self._ended = threading.Event()
        self._guard = threading.Lock()
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self, seconds: float | None = None) -> int | None:
        return 0 if self._ended.wait(seconds) else None

    def end(self) -> None:
        with self._guard:
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def _follow(self) -> None:
        try:
            while self._connection.recv(1):
                pass
        except OSError:
            pass
        self._connection.close()
        self._ended.set()
        self.end()


@cache
def forks() -> Fork:
    """The process to fork from: one for the whole run, and it ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="jetbridge-forks-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "socket"
    process = subprocess.Popen([sys.executable, "-m", "tests.servers.placement", str(path)], stdin=subprocess.PIPE)
    atexit.register(process.communicate)
    # It listens before it imports: who comes meanwhile waits in the backlog.
    while not path.exists():
        assert process.poll() is None, "the process that Placements are forked from ended"
        time.sleep(0.01)
    return Fork(str(path))


def _serve_forks(path: str) -> None:
    temporary = f"{path}.new"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(temporary)
    server.listen(64)
    os.rename(temporary, path)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from jetbridge.service import placement_child

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children here
    while True:
        connection, _ = server.accept()
        header, fds, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
        if os.fork() == 0:
            server.close()
            _be_child(connection, _LENGTH.unpack(header)[0], fds, placement_child)
        connection.close()
        for fd in fds:
            os.close(fd)


def _be_child(connection: socket.socket, length: int, fds: list[int], placement_child: object) -> None:
    try:
        text = b""
        while len(text) < length:
            text += connection.recv(length - len(text))
        listener, lifeline, log = fds
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(0)
        connection.sendall(str(os.getpid()).encode())
        placement_child.serve(ChildConfig.from_json(text.decode()), socket.socket(fileno=listener), lifeline)  # type: ignore[attr-defined]
    finally:
        os._exit(1)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    _serve_forks(sys.argv[1])

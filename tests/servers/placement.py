"""Embedded Placements for tests: forked off a process that has imported everything, in a fraction of what a new interpreter needs.

The product starts an interpreter of its own for it (``spawn_process``), which tests of the command line do as well.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jetbridge.service.placement import Child
from jetbridge.service.placement_config import ChildConfig
from tests.servers.forks import Run, ask, serve, start


@dataclass(frozen=True)
class Fork:
    """A ``Spawn`` that asks the process at the socket ``path`` for a child; it can be sent to other processes."""

    path: str

    def __call__(self, config: ChildConfig, listener: socket.socket, log: Path) -> Child:
        lifeline_of_child, lifeline = os.pipe()
        with log.open("ab") as stream:
            connection = ask(self.path, config.to_json(), [listener.fileno(), lifeline_of_child, stream.fileno()])
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
    return Fork(str(start("tests.servers.placement")))


def _prepare() -> Run:
    from jetbridge.service import placement_child

    def run(connection: socket.socket, text: str, files: list[int]) -> None:
        listener, lifeline, log = files
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(0)
        connection.sendall(str(os.getpid()).encode())
        placement_child.serve(ChildConfig.from_json(text), socket.socket(fileno=listener), lifeline)

    return run


if __name__ == "__main__":
    serve(sys.argv[1], _prepare)

"""Services and other commands as processes of their own, without the imports of their start: forked off a process that has done them
(``python -m tests.system.forked_services SOCKET``). From there on they are what ``jetbridge SERVICE`` is,
but for the end of an interpreter. The embedded Placement of one is a new interpreter, as it is for a person.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TextIO

from tests.servers.forks import LENGTH, WHERE, Run, ask, be_command, serve, start


class ForkedService:
    """As much of ``subprocess.Popen`` as the tests use. ``words``: what follows ``jetbridge``."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], folder: Path, stderr: Path) -> None:
        self.words = tuple(words)
        self._stderr = stderr
        self.returncode: int | None = None
        output, ours = os.pipe()[::-1]
        text = json.dumps([list(words), dict(environment), str(folder)])
        with stderr.open("w") as errors, open(os.devnull) as nothing:
            self._connection = ask(_path(), text, [nothing.fileno(), output, errors.fileno()])
        os.close(output)
        self.stdout: TextIO = os.fdopen(ours)
        (self.pid,) = LENGTH.unpack(self._connection.recv(LENGTH.size, socket.MSG_WAITALL))

    def wait(self, seconds: float | None = None) -> int:
        """Raises ``TimeoutError``, with what the process says of itself and of where its threads are."""
        if self.returncode is None:
            self._connection.settimeout(seconds)
            try:
                answer = self._connection.recv(LENGTH.size, socket.MSG_WAITALL)
            except TimeoutError:
                self.send_signal(WHERE)
                time.sleep(1)
                raise TimeoutError(f"jetbridge {' '.join(self.words)}: {self._stderr.read_text()}") from None
            self._connection.close()
            # Who is killed ends without a word.
            self.returncode = LENGTH.unpack(answer)[0] if answer else -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _path() -> str:
    """One for the whole run; the process ends with this one."""
    return str(start("tests.system.forked_services"))


def _prepare() -> Run:
    import jetbridge.cli.demo_accelerator
    import jetbridge.cli.demo_placement
    import jetbridge.cli.demo_story
    import jetbridge.cli.demo_vgpu
    import jetbridge.db.migrations.runner
    import jetbridge.service.allinone
    import jetbridge.service.api
    import jetbridge.service.compute
    import jetbridge.service.conductor
    import jetbridge.service.scheduler
    import jetbridge.service.separate
    from jetbridge.cli.main import run as jetbridge

    def run(connection: socket.socket, text: str, files: list[int]) -> None:
        words, environment, folder = json.loads(text)

        def command() -> int:
            sys.argv = ["jetbridge", *words]
            connection.sendall(LENGTH.pack(os.getpid()))
            return jetbridge(words)

        be_command(connection, files, environment, folder, command)

    return run


if __name__ == "__main__":
    serve(sys.argv[1], _prepare)

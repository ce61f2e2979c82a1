"""Runs in L1 from its first seconds: interpreters that have imported the service, and become it in copies of themselves.

Imports take minutes in an emulator, while nothing else has to. A line of JSON in ``DOOR`` starts a service: what ``jetbridge up``
does from its command line on, in a process of its own that lives and dies as the command's would. The process of its embedded
Placement is a copy of a second interpreter, so that both import at once. One scenario starts the command itself
(``Cloud.start(cold=True)``).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DOOR = "/run/jetbridge-warm"
PLACEMENT_DOOR = "/run/jetbridge-warm-placement"
MODULES = (
    *("jetbridge.service.allinone", "jetbridge.cli.main", "jetbridge.cli.configuration", "jetbridge.cli.output"),
    *("jetbridge.config.fleet", "jetbridge.db.migrations.runner", "jetbridge.db.schema"),
    *("jetbridge.virt.libvirt.connection", "jetbridge.virt.libvirt.files"),
    *("uvicorn.lifespan.off", "uvicorn.loops.auto", "uvicorn.protocols.http.auto"),
    *("uvicorn.protocols.websockets.auto", "typer._adapters", "sqlalchemy.dialects.sqlite"),
)
"""What `jetbridge up` imports, also later on."""


def main(words: list[str]) -> None:
    if words == ["placement"]:
        become_placements()
    subprocess.Popen([sys.executable, "-m", "tests.lab.warm", "placement"])
    import_all(*MODULES)
    from jetbridge.service.allinone import AllInOne

    defaults: Any = AllInOne.__init__.__kwdefaults__
    defaults["spawn"] = spawn
    os.mkfifo(DOOR)
    while True:
        with open(DOOR, encoding="utf-8") as door:
            for line in door:
                if os.fork() == 0:
                    become_service(json.loads(line))


def import_all(*modules: str) -> None:
    gc.disable()  # nothing that a module makes becomes garbage
    for name in modules:
        importlib.import_module(name)
    gc.enable()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def become_service(order: dict[str, Any]) -> None:
    """As an interpreter that was started with these words would. ``death``: step and moment at which it kills itself."""
    take_over(os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
    Path(order["pid_file"]).write_text(f"{os.getpid()}\n", encoding="ascii")
    sys.argv = ["jetbridge", *order["words"]]
    code = 1
    try:
        if order["death"]:
            from tests.kill.mortal import doom

            step, moment = order["death"]
            doom(step, moment, "0")
        from jetbridge.cli.main import main as command

        command()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stdout.flush()
        os._exit(code)


def take_over(output: int) -> None:
    """What a copy of an interpreter makes of itself first."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)


# --- the embedded Placement -------------------------------------------------------------------------------------


def spawn(config: Any, listener: socket.socket, log: Path) -> Placement:
    """As ``jetbridge.service.placement.spawn_process``."""
    lifeline, other_end = os.pipe()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with socket.socket(socket.AF_UNIX) as caller:
        while caller.connect_ex(PLACEMENT_DOOR):  # it still imports
            time.sleep(0.5)
        socket.send_fds(caller, [config.to_json().encode()], [listener.fileno(), lifeline, output])
        pid = int(caller.recv(64))
    os.close(lifeline)
    os.close(output)
    return Placement(pid, other_end)


class Placement:
    """A ``Child`` of ``jetbridge.service.placement``."""

    def __init__(self, pid: int, lifeline: int) -> None:
        self._pid, self._lifeline = pid, lifeline

    def wait(self, seconds: float | None = None) -> int | None:
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            try:
                os.kill(self._pid, 0)
            except ProcessLookupError:
                return 0
            time.sleep(1 if deadline is None else 0.2)
        return None

    def end(self) -> None:
        os.close(self._lifeline)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def become_placements() -> None:
    import_all("jetbridge.service.placement_child", "sqlalchemy.dialects.sqlite")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(PLACEMENT_DOOR)
        door.listen()
        while True:
            caller, _ = door.accept()
            with caller:
                text, fds, *_ = socket.recv_fds(caller, 65536, 3)
                pid = os.fork()
                if pid == 0:
                    become_placement(text.decode(), *fds)
                caller.sendall(str(pid).encode())
                for fd in fds:
                    os.close(fd)


def become_placement(config: str, listener: int, lifeline: int, output: int) -> None:
    from jetbridge.service.placement_child import serve
    from jetbridge.service.placement_config import ChildConfig

    try:
        take_over(output)
        serve(ChildConfig.from_json(config), socket.socket(fileno=listener), lifeline)
    except Exception:
        logging.exception("Placement ended")
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The commands ``openstack`` and ``jetbridge`` without their start: forked off a process that has imported the real ones, which takes
longer than what most of them do.

What takes their place in PATH hands its words, environment, folder, and the files it reads and writes over to that process
(``python -m tests.system.forked_commands SOCKET``), and ends as the child does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from tests.servers.forks import LENGTH, Run, serve, start

_COMMANDS = ("openstack.compute.v2", "openstack.network.v2", "openstack.placement.v1", "openstack.accelerator.v2")

_OURS = (
    "jetbridge.cli.client",
    "jetbridge.cli.configuration",
    "jetbridge.cli.output",
    "jetbridge.db.sql",
    "lxml.etree",
)
"""What commands of ours import when they run."""

_SCRIPT = """#!{python} -IS
import json, os, socket, struct, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.connect({path!r})
text = json.dumps([{name!r}, sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(server, [struct.pack("!I", len(text))], [0, 1, 2])
server.sendall(text)
answer = server.recv(4)
sys.exit(struct.unpack("!I", answer)[0] if len(answer) == 4 else "{name} ended without a word")
"""


@cache
def folder_with_commands() -> Path:
    """A folder for PATH with the commands in it. One for the whole run, and the process behind it ends with this one."""
    path = start("tests.system.forked_commands", "-W", "ignore")
    folder = path.parent / "bin"
    folder.mkdir()
    for name in ("openstack", "jetbridge"):
        script = folder / name
        script.write_text(_SCRIPT.format(python=sys.executable, path=str(path), name=name))
        script.chmod(0o755)
    return folder


def _prepare() -> Run:
    import openstackclient.shell

    import jetbridge.cli.main

    for module in _OURS:
        import_module(module)
    programs = {"openstack": openstackclient.shell.main, "jetbridge": jetbridge.cli.main.run}
    for group in _COMMANDS:
        for command in entry_points(group=group):
            command.load()

    def run(connection: socket.socket, text: str, files: list[int]) -> None:
        code = 1
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            name, words, environment, folder = json.loads(text)
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            code = programs[name](words) or 0
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            connection.sendall(LENGTH.pack(code))

    return run


if __name__ == "__main__":
    serve(sys.argv[1], _prepare)

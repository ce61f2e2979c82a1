"""The commands ``openstack`` and ``jetbridge`` without their start: forked off a process that has imported the real ones, which takes
longer than what most of them do.

What takes their place in PATH hands its words, environment, folder, and the files it reads and writes over to that process
(``python -m tests.system.forked_commands SOCKET``), and ends as the child does.
"""

from __future__ import annotations

import json
import socket
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from tests.servers.forks import Run, be_command, serve, start

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
        name, words, environment, folder = json.loads(text)
        be_command(connection, files, environment, folder, lambda: programs[name](words))

    return run


if __name__ == "__main__":
    serve(sys.argv[1], _prepare)

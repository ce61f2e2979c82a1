"""The ``openstack`` command without its start: forked off a process that has imported the real shell, which takes longer than what most
commands do.

What takes its place in PATH hands its words, environment, folder, and the files it reads and writes over to that process
(``python -m tests.system.forked_openstack SOCKET``), and ends as the child does.
"""

from __future__ import annotations

import atexit
import json
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
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

_NUMBER = struct.Struct("!I")
_COMMANDS = ("openstack.compute.v2", "openstack.network.v2", "openstack.placement.v1", "openstack.accelerator.v2")

_SCRIPT = """#!{python} -IS
import json, os, socket, struct, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.connect({path!r})
text = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(server, [struct.pack("!I", len(text))], [0, 1, 2])
server.sendall(text)
answer = server.recv(4)
sys.exit(struct.unpack("!I", answer)[0] if len(answer) == 4 else "the openstack command ended without a word")
"""


@cache
def folder_with_openstack() -> Path:
    """A folder for PATH with the command in it. One for the whole run, and the process behind it ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="jetbridge-openstack-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "socket"
    words = [sys.executable, "-W", "ignore", "-m", "tests.system.forked_openstack", str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE)
    atexit.register(process.communicate)
    while not path.exists():
        assert process.poll() is None, "the process that the openstack command is forked from ended"
        time.sleep(0.01)
    script = folder / "bin" / "openstack"
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(python=sys.executable, path=str(path)))
    script.chmod(0o755)
    return script.parent


def _serve(path: str) -> None:
    temporary = f"{path}.new"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(temporary)
    server.listen(16)
    os.rename(temporary, path)  # who comes while we import waits
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import openstackclient.shell

    for group in _COMMANDS:
        for command in entry_points(group=group):
            command.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children here
    while True:
        connection, _ = server.accept()
        header, files, _, _ = socket.recv_fds(connection, _NUMBER.size, 3)
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(connection, _NUMBER.unpack(header)[0], files, openstackclient.shell)
        connection.close()
        for file in files:
            os.close(file)


def _run(connection: socket.socket, length: int, files: list[int], shell: object) -> None:
    code = 1
    try:
        text = b""
        while len(text) < length:
            text += connection.recv(length - len(text))
        words, environment, folder = json.loads(text)
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        code = shell.main(words) or 0  # type: ignore[attr-defined]
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(_NUMBER.pack(code))
        os._exit(0)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])

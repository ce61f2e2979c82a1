"""Processes forked off one that has imported everything, in a fraction of what a new interpreter needs."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

LENGTH = struct.Struct("!I")
"""Comes before the text that a child gets, and with it the three files that it gets."""

WHERE = signal.SIGUSR2
"""Has a child say where each of its threads is."""

Run = Callable[[socket.socket, str, list[int]], None]
"""What a child does with the connection of whom asked, the text, and the three files. It ends with it."""


def start(module: str, *options: str) -> Path:
    """Starts ``python OPTIONS -m MODULE SOCKET``, which is to call ``serve``, and answers the socket. The process ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="jetbridge-forks-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "socket"
    process = subprocess.Popen([sys.executable, *options, "-m", module, str(path)], stdin=subprocess.PIPE)
    atexit.register(process.communicate)
    # It listens before it imports: who comes meanwhile waits in the backlog.
    while not path.exists():
        assert process.poll() is None, f"the process of {module} that others are forked from ended"
        time.sleep(0.01)
    return path


def ask(path: str, text: str, files: Sequence[int]) -> socket.socket:
    """The connection to a new child that does with ``text`` and the three ``files`` what its process is for."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    content = text.encode()
    socket.send_fds(connection, [LENGTH.pack(len(content))], files)
    connection.sendall(content)
    return connection


def be_command(
    connection: socket.socket,
    files: Sequence[int],
    environment: Mapping[str, str],
    folder: str,
    command: Callable[[], object],
) -> None:
    """What a child does that stands for a program: ``command`` with the three ``files`` as its own, in that environment and folder. How it
    ends is told at the connection, in place of the code of an exit."""
    code = 1
    exit_at_once = os._exit

    def told(code: int) -> NoReturn:
        with contextlib.suppress(OSError):  # who asked is gone
            connection.sendall(LENGTH.pack(code))
        exit_at_once(code)

    os._exit = told
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    faulthandler.register(WHERE, file=2)  # to its stderr, as that will be
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        ended = command()
        code = ended if isinstance(ended, int) else 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    finally:
        os._exit = exit_at_once
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(LENGTH.pack(code))


def serve(path: str, prepare: Callable[[], Run]) -> None:
    """Forks a child for each who asks at ``path``. ``prepare`` imports what children need, and answers what they do."""
    temporary = f"{path}.new"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(temporary)
    server.listen(64)
    os.rename(temporary, path)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run = prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children here
    while True:
        connection, _ = server.accept()
        header, files, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
        if os.fork() == 0:
            server.close()
            _be_child(connection, LENGTH.unpack(header)[0], files, run)
        connection.close()
        for file in files:
            os.close(file)


def _be_child(connection: socket.socket, length: int, files: list[int], run: Run) -> None:
    try:
        text = b""
        while len(text) < length:
            text += connection.recv(length - len(text))
        run(connection, text.decode(), files)
    finally:
        os._exit(1)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)

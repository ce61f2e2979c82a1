"""A way to a database server that can be cut at the worst moment: after the server got COMMIT, before its answer arrives."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from pathlib import Path
from types import TracebackType


class CuttingProxy:
    """Listens on a socket of the same name as ``target`` in ``folder`` and passes everything on, byte by byte."""

    def __init__(self, target: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="jb-", dir="/tmp"))
        self._target = target
        self._cut_next_commit = threading.Event()
        self.cuts = 0
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.folder / target.name))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next_commit(self) -> None:
        self._cut_next_commit.set()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        shutil.rmtree(self.folder)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._target))
            committed = threading.Event()
            for source, sink, side in ((client, server, self._to_server), (server, client, self._to_client)):
                threading.Thread(target=side, args=(source, sink, committed), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, committed: threading.Event) -> None:
        while data := _received(client):
            if b"COMMIT" in data and self._cut_next_commit.is_set():
                self._cut_next_commit.clear()
                committed.set()
            _send(server, data)
        _close(server)

    def _to_client(self, server: socket.socket, client: socket.socket, committed: threading.Event) -> None:
        while data := _received(server):
            if committed.is_set():
                self.cuts += 1
                break
            _send(client, data)
        _close(client)


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


def _send(sink: socket.socket, data: bytes) -> None:
    try:
        sink.sendall(data)
    except OSError:
        return


def _close(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return

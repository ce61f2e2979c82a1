"""The HTTP server in a thread of its own."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from jetbridge.errors import JetbridgeError

START_SECONDS = 30.0
STOP_SECONDS = 5
KEEP_ALIVE_SECONDS = 75
"""Longer than clients pause between two polls: `openstack server create --wait` asks every 5 s, and a connection closed at the
very moment it asks is an error to it."""


def bound(listen: str, port: int, instead: str) -> socket.socket:
    """A socket at that address (port 0: any free one). Raises ``JetbridgeError`` when it can't be had; ``instead``: the options by
    which another one is given."""
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((listen, port))
    except OSError as error:
        found.close()
        raise _refused(listen, port, error, instead) from error
    return found


def _refused(listen: str, port: int, error: OSError, instead: str) -> JetbridgeError:
    return JetbridgeError(f"Can't listen on {listen} port {port}: {error.strerror or error}. Give another {instead}")


def reachable_at(listen: str, port: int) -> str:
    """The URL by which clients of this machine reach an address."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen)
    if host is None:
        host = f"[{listen}]" if ":" in listen else listen
    return f"http://{host}:{port}"


def leads_to(url: str, port: int) -> bool:
    """Whether an http URL is that of a port of this machine, by whatever name."""
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or (parts.port or 80) != port:
            return False
        addresses = {info[4][0] for info in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)}
    except (OSError, ValueError):
        return False
    return any(_is_here(str(address)) for address in addresses)


def _is_here(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


class HttpServer:
    """Takes the address when made (port 0: any free one), serves from ``start`` on. Raises ``JetbridgeError`` when the
    address can't be had."""

    def __init__(self, listen: str, port: int) -> None:
        self._socket = bound(listen, port, "--listen or --port")
        self.port: int = self._socket.getsockname()[1]
        self._listen = listen
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """Where clients of this machine reach it."""
        return reachable_at(self._listen, self.port)

    def start(self, app: FastAPI) -> None:
        """Returns when it answers."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        server = _Server(config)
        self._server = server
        self._thread = threading.Thread(target=self._run, args=(server,), name="http", daemon=True)
        self._thread.start()
        ended_or_serves = server.serving.wait(START_SECONDS)
        if server.failure is not None:
            raise server.failure
        if not ended_or_serves:
            raise JetbridgeError(f"The HTTP server did not start within {START_SECONDS:g} s; its log lines say why")

    def _run(self, server: _Server) -> None:
        try:
            server.run(sockets=[self._socket])
        except OSError as error:
            if server.serving.is_set():
                raise
            # A socket that is bound and doesn't listen yet keeps nobody from its address.
            server.failure = _refused(self._listen, self.port, error, "--listen or --port")
        finally:
            server.serving.set()

    def stop(self) -> None:
        """Finish the requests under way and close the address."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(STOP_SECONDS * 2)
        self._socket.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = threading.Event()
        """Set too when it never will: ``failure`` says why."""
        self.failure: JetbridgeError | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()

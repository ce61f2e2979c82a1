"""A Placement as others run it: the released application with its own defaults, several threads, on a database server.

``python -m tests.servers.external_placement FD URL`` serves on an open socket until its standard input ends.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from tests.servers.databases import SERVERS, DatabaseServer

CHOSEN = "JETBRIDGE_TEST_PLACEMENT"
"""In the environment: postgresql or mariadb, and the clouds of system tests use such a Placement instead of the embedded one."""
THREADS = 4
START_SECONDS = 120.0


class ExternalPlacement:
    """Runs from the start on; ``stop`` and ``start`` as often as wanted, at the same address. ``database_url`` is one of
    ``DatabaseServer.new_database``."""

    def __init__(self, database_url: str, log: Path) -> None:
        self._database_url = _for_oslo(database_url)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port), backlog=512)
        with self._log.open("ab") as stream, listener:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.external_placement", str(listener.fileno()), self._database_url],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                pass_fds=(listener.fileno(),),
            )
        # The socket is open already: the request waits until it is served.
        answer = httpx.get(self.url, timeout=START_SECONDS)
        assert answer.status_code == 200, self._log.read_text()[-2000:]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def chosen_placement(log: Path) -> ExternalPlacement | None:
    """A new one on an empty database, when the environment says so."""
    kind = os.environ.get(CHOSEN)
    return None if kind is None else ExternalPlacement(_database_server(kind).new_database(), log)


@cache
def _database_server(kind: str) -> DatabaseServer:
    server = SERVERS[kind]()
    atexit.register(server.close)
    return server


def _for_oslo(url: str) -> str:
    """SQLAlchemy's name of the driver, which is spelt out nowhere in ours."""
    scheme, rest = url.split("://", 1)
    return {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[scheme.split("+")[0]] + f"://{rest}"


def _serve(fd: int, url: str) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["OS_PLACEMENT_DATABASE__CONNECTION"] = url
    import psycopg
    import waitress.server
    from oslo_config import cfg
    from placement import conf, db_api, deploy

    # Placement notes it of every row and looks at it nowhere. The driver that its authors use has it, and says 0.
    psycopg.Cursor.lastrowid = 0  # type: ignore[attr-defined]
    config = cfg.ConfigOpts()
    conf.register_opts(config)
    config([], project="placement", default_config_files=[], default_config_dirs=[])
    config.set_override("connection", url, group="placement_database")
    config.set_override("sync_on_startup", True, group="placement_database")
    config.set_override("auth_strategy", "noauth2", group="api")
    db_api.configure(config)
    application = deploy.loadapp(config)

    def admitted(environ: dict[str, Any], start_response: Any) -> Any:
        environ["HTTP_X_AUTH_TOKEN"] = "admin"  # clients without a password say nothing true of themselves
        return application(environ, start_response)

    waitress.server.create_server(admitted, sockets=[socket.socket(fileno=fd)], threads=THREADS).run()


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])

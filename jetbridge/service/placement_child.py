"""The process that serves the embedded Placement: it is started by another one, and ends with it.

``python -m jetbridge.service.placement_child FD``: listens on the socket that was handed over as ``FD``. The first line of its
standard input says what to serve; that the input ends means that the parent has.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import waitress.server

from jetbridge.api.auth import Authenticator, basic_credentials
from jetbridge.api.guards import complaint_about, is_loopback
from jetbridge.config.settings import Settings
from jetbridge.errors import Unauthorized
from jetbridge.placement.application import load_application
from jetbridge.placement.door import Caller, Door
from jetbridge.service.placement_config import ChildConfig

KEEP_ALIVE_SECONDS = 75
CONNECTIONS = 1000


def serve(config: ChildConfig, listener: socket.socket, lifeline: int) -> None:
    """Until ``lifeline``, a file descriptor, ends. SQLite keeps what was committed, so that nothing has to be wound up then."""
    threading.Thread(target=_follow, args=(lifeline,), name="lifeline", daemon=True).start()
    # What is typed at a terminal is for the parent, which stops us when it has no more use for us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it warns of each request that waits for another
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True)
    authenticator = Authenticator.from_settings(
        Settings(
            auth_strategy=config.auth_strategy,
            http_basic_auth_user_file=Path(config.http_basic_auth_user_file)
            if config.http_basic_auth_user_file
            else None,
        )
    )
    loopback = is_loopback(config.listen)
    door = Door(
        load_application(Path(config.database)),
        complaint=lambda host, origins: complaint_about(host, origins, loopback=loopback),
        identify=_identify(authenticator),
        own_token=config.own_token,
    )
    server = waitress.server.create_server(
        door,
        sockets=[listener],
        threads=1,  # SQLite has one writer at a time, and what Placement reads before it writes must still be so then
        ident=None,
        channel_timeout=KEEP_ALIVE_SECONDS,
        connection_limit=CONNECTIONS,
        asyncore_use_poll=True,
        clear_untrusted_proxy_headers=True,
    )
    server.run()


def _identify(authenticator: Authenticator) -> Callable[[str | None], Caller]:
    def identify(authorization: str | None) -> Caller:
        if authenticator.open_to_all:
            (principal,) = authenticator.principals()
        elif authorization is None:
            raise Unauthorized(reason="send user and password (http_basic)")
        else:
            principal = authenticator.check_password(*basic_credentials(authorization))
        return Caller(principal.user_id, principal.project_id, principal.roles)

    return identify


def _follow(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    os._exit(0)


def _line(fd: int) -> str:
    """Unbuffered: what waits in a read at the end of the process must hold no lock of the interpreter."""
    text = b""
    while (byte := os.read(fd, 1)) not in (b"", b"\n"):
        text += byte
    return text.decode()


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    config = ChildConfig.from_json(_line(sys.stdin.fileno()))
    serve(config, listener, sys.stdin.fileno())


if __name__ == "__main__":
    main()

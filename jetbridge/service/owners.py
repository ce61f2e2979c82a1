"""Which processes are alive."""

from __future__ import annotations

import os
import socket
import time

from jetbridge.db import builds, services
from jetbridge.db.clock import utcnow
from jetbridge.db.engine import Database


def new_owner() -> str:
    """A name for this process that no other one has or had."""
    return f"{socket.gethostname()}:{os.getpid()}:{time.time_ns():x}"


def gone_owners(database: Database, owner: str, service_down_time: int) -> frozenset[str]:
    """Processes that have running builds and serve nothing any more."""
    with database.read() as conn:
        others = {build.owner for build in builds.running(conn)} - {owner}
        if not others:
            return frozenset()
        now = utcnow()
        alive = {row.owner for row in services.listing(conn) if row.is_alive(now, service_down_time)}
    return frozenset(others - alive)

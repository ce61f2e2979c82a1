"""A process is gone when it has running builds and no living service."""

from __future__ import annotations

import uuid
from datetime import timedelta

from jetbridge.db import builds, services
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.service.owners import gone_owners, new_owner


def test_only_silent_or_unknown_processes_with_running_builds_are_gone(database: Database) -> None:
    def write(conn: Connection) -> None:
        long_ago = utcnow() - timedelta(seconds=61)
        for owner, seen in (("alive", utcnow()), ("silent", long_ago), ("idle", long_ago)):
            services.register(conn, [owner], "nova-compute", "compute", owner, lambda: str(uuid.uuid4()), now=seen)
        for owner in ("me", "alive", "silent", "unknown"):
            builds.start(conn, str(uuid.uuid4()), owner)
        ended = builds.start(conn, str(uuid.uuid4()), "ended")
        builds.finish(conn, ended.id)

    assert gone_owners(database, "me", 60) == frozenset()
    database.write(write)
    assert gone_owners(database, "me", 60) == {"silent", "unknown"}


def test_a_process_has_a_name_of_its_own() -> None:
    assert new_owner() != new_owner()

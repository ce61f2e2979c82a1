"""Who may have an allocation in Placement stays noted until there is none, and none can come any more."""

from __future__ import annotations

from jetbridge.conductor.ledger import Ledger
from jetbridge.db import builds, consumers, servers
from jetbridge.db.clock import utcnow
from jetbridge.db.engine import Database
from tests.unit.conductor.stage import Stage


def abandoned(database: Database) -> tuple[str, ...]:
    with database.read() as conn:
        return consumers.abandoned(conn)


def test_a_deleted_server_stays_noted_while_a_scheduler_may_allocate_for_it(database: Database) -> None:
    server = Stage(database, [], []).server()
    ledger = Ledger(database, None)
    build = database.write(lambda conn: builds.start(conn, server, "me", now=utcnow()))
    database.write(lambda conn: consumers.note(conn, server))
    database.write(lambda conn: servers.soft_delete(conn, server, now=utcnow()))
    ledger.give_back(None, server)
    assert abandoned(database) == (server,)
    assert ledger.give_back_abandoned() == 1
    assert abandoned(database) == (server,)
    database.write(lambda conn: builds.fail(conn, build.id, "its process is gone", now=utcnow()))
    assert ledger.give_back_abandoned() == 1
    assert abandoned(database) == ()


def test_who_builds_a_server_knows_that_nothing_comes(database: Database) -> None:
    server = Stage(database, [], []).server()
    database.write(lambda conn: builds.start(conn, server, "me", now=utcnow()))
    database.write(lambda conn: consumers.note(conn, server))
    Ledger(database, None).give_back(None, server, by_its_build=True)
    database.write(lambda conn: servers.soft_delete(conn, server, now=utcnow()))
    assert abandoned(database) == ()

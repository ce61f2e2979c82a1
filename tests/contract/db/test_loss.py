"""Servers that end connections, restart and crash: what was written is there once, and nobody notices more than a pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jetbridge.db import compute_nodes, flavors
from jetbridge.db.engine import Database
from jetbridge.errors import DatabaseAway
from tests.contract.db.rows import flavor, node
from tests.servers.cutting import CuttingProxy
from tests.servers.databases import SERVERS, DatabaseServer

pytestmark = pytest.mark.parametrize("kind", list(SERVERS), indirect=True)

Hurt = Callable[[DatabaseServer, Database], object]
HURTS: dict[str, Hurt] = {
    "connections killed": lambda server, database: server.kill_connections(name_of(database)),
    "restarted": lambda server, database: server.restart(),
    "crashed": lambda server, database: server.restart(crash=True),
}


@pytest.fixture(params=HURTS)
def hurt(request: pytest.FixtureRequest, server: DatabaseServer, database: Database) -> Callable[[], object]:
    return lambda: HURTS[request.param](server, database)


def name_of(database: Database) -> str:
    assert database.url.database is not None
    return database.url.database


def names(database: Database) -> list[str]:
    with database.read() as conn:
        return [each.name for each in flavors.find(conn)]


def test_lost_between_transactions(database: Database, hurt: Callable[[], object]) -> None:
    database.write(lambda conn: flavors.create(conn, flavor("before")))
    assert names(database) == ["before"]
    hurt()
    assert names(database) == ["before"]
    hurt()
    database.write(lambda conn: flavors.create(conn, flavor("later")))
    assert names(database) == ["before", "later"]


def test_lost_in_a_transaction_it_runs_again_from_the_start(database: Database, hurt: Callable[[], object]) -> None:
    runs: list[int] = []

    def fill(conn: Any) -> int:
        flavors.create(conn, flavor("first"))
        runs.append(1)
        if len(runs) == 1:
            hurt()
        flavors.create(conn, flavor("second"))
        return len(runs)

    assert database.write(fill) == 2
    assert names(database) == ["first", "second"]


def test_lost_while_reading_it_goes_on(database: Database, hurt: Callable[[], object]) -> None:
    database.write(lambda conn: flavors.create(conn, flavor("a")))
    with database.read() as conn:
        assert len(flavors.find(conn)) == 1
        hurt()
        assert [each.name for each in flavors.find(conn)] == ["a"]
        assert flavors.get(conn, "a").name == "a"


@pytest.fixture
def cut(server: DatabaseServer, database: Database) -> Iterator[tuple[CuttingProxy, Database]]:
    """The database of ``database`` by a way that can be cut."""
    with CuttingProxy(server.socket) as proxy:
        opened = Database(server.url(name_of(database), proxy.folder))
        yield proxy, opened
        opened.close()


def test_lost_in_the_middle_of_a_commit_it_takes_effect_once(
    database: Database, cut: tuple[CuttingProxy, Database]
) -> None:
    proxy, behind = cut
    host = database.write(lambda conn: compute_nodes.upsert(conn, node())).id
    runs: list[int] = []

    def lock(conn: Any) -> int:
        runs.append(1)
        return compute_nodes.lock(conn, host)

    for number in range(3):
        proxy.cut_next_commit()
        assert behind.write(lock) == 2 + number
    assert proxy.cuts == 3
    assert len(runs) == 3  # the second run of each was refused before it did anything
    assert behind.write(lock) == 5
    with database.read() as conn:
        assert compute_nodes.get(conn, host).generation == 5


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_writers_and_readers_outlive_a_restart_and_count_everything_once(
    database: Database, server: DatabaseServer, crash: bool
) -> None:
    host = database.write(lambda conn: compute_nodes.upsert(conn, node())).id
    restarted = threading.Event()
    seen: list[int] = []

    def count(_: int) -> int:
        done = 0
        while not restarted.is_set() or done < 5:
            seen.append(database.write(lambda conn: compute_nodes.lock(conn, host)))
            with database.read() as conn:
                assert compute_nodes.get(conn, host).generation >= 1
            done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(count, number) for number in range(4)]
        for _ in range(2):
            before = len(seen)
            while len(seen) < before + 20:
                time.sleep(0.01)
            server.restart(crash=crash)
        restarted.set()
        total = sum(writer.result(60) for writer in writers)
    with database.read() as conn:
        assert compute_nodes.get(conn, host).generation == 1 + total
    assert sorted(seen) == list(range(2, 2 + total))


def test_a_server_that_stays_away_is_said_so_without_its_password(server: DatabaseServer, database: Database) -> None:
    impatient = Database(database.url.render_as_string(hide_password=False), patience_seconds=0.2)
    impatient.write(lambda conn: flavors.create(conn, flavor("a")))
    server.stop()
    try:
        with pytest.raises(DatabaseAway, match=r"has not answered for 0\.2 s") as writing:
            impatient.write(lambda conn: flavors.create(conn, flavor("b")))
        with pytest.raises(DatabaseAway) as reading, impatient.read() as conn:
            flavors.find(conn)
    finally:
        server.start()
    for caught in (writing, reading):
        assert "secret" not in str(caught.value)
        assert "jetbridge:***@" in str(caught.value)
    assert names(impatient) == ["a"]
    impatient.close()


def test_who_is_in_a_hurry_waits_no_longer_also_where_he_waits_already(
    server: DatabaseServer, database: Database
) -> None:
    patient = Database(database.url.render_as_string(hide_password=False), patience_seconds=600)
    patient.write(lambda conn: flavors.create(conn, flavor("a")))
    server.stop()
    try:
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(patient.write, lambda conn: flavors.create(conn, flavor("b")))
            time.sleep(0.5)
            assert not waits.done()
            patient.hurry(0.2)
            patient.hurry(600)
            with pytest.raises(DatabaseAway):
                waits.result(60)
            with pytest.raises(DatabaseAway), patient.read() as conn:
                flavors.find(conn)
    finally:
        server.start()
    assert names(patient) == ["a"]
    patient.close()

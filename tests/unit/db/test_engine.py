from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from jetbridge.db import connect, retry
from jetbridge.db.engine import Database, FairLock
from jetbridge.db.retry import Failure, failure_of
from jetbridge.errors import DatabaseOutOfOrder, DatabaseUnusable


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{tmp_path}/counts.sqlite3")
    opened.use_wal()
    opened.write(lambda conn: conn.exec_driver_sql("CREATE TABLE counts (n INTEGER UNIQUE)"))
    yield opened
    opened.close()


def add(conn: Any, number: int) -> None:
    conn.exec_driver_sql("INSERT INTO counts VALUES (?)", (number,))


def numbers(database: Database) -> list[int]:
    with database.read() as conn:
        return list(conn.exec_driver_sql("SELECT n FROM counts ORDER BY n").scalars())


def test_sqlite_is_set_up_for_many_readers_and_one_writer(database: Database) -> None:
    with database.read() as conn:
        values = {
            pragma: conn.exec_driver_sql(f"PRAGMA {pragma}").scalar()
            for pragma in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert values == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "busy_timeout": 5000}


def test_an_error_takes_everything_back(database: Database) -> None:
    def fill(conn: Any) -> None:
        add(conn, 1)
        raise LookupError("half-way")

    with pytest.raises(LookupError, match="half-way"):
        database.write(fill)
    assert numbers(database) == []
    database.write(lambda conn: add(conn, 2))  # and the lock is free again
    assert numbers(database) == [2]


def test_a_reader_sees_one_state_while_others_write(database: Database) -> None:
    database.write(lambda conn: add(conn, 1))
    with database.read() as conn:
        count = "SELECT count(*) FROM counts"
        assert conn.exec_driver_sql(count).scalar() == 1
        with ThreadPoolExecutor(1) as pool:
            pool.submit(database.write, lambda conn: add(conn, 2)).result(10)
        assert conn.exec_driver_sql(count).scalar() == 1
    assert numbers(database) == [1, 2]


def test_what_a_reader_writes_is_thrown_away(database: Database) -> None:
    with database.read() as conn:
        add(conn, 1)
    assert numbers(database) == []


def test_writes_of_many_threads_all_land(database: Database) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: database.write(lambda conn: add(conn, number)), range(200)))
    assert numbers(database) == list(range(200))


def _write_in_a_process(url: str, first: int) -> None:
    database = Database(url)
    for number in range(first, first + 50):
        database.write(lambda conn, number=number: add(conn, number))
    database.close()


def test_writes_of_several_processes_all_land(database: Database) -> None:
    context = multiprocessing.get_context("spawn")
    url = database.url.render_as_string()
    processes = [context.Process(target=_write_in_a_process, args=(url, first)) for first in (0, 50)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert numbers(database) == list(range(100))


def test_a_transaction_runs_again_when_the_database_is_locked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "BUSY_TIMEOUT_MS", 1)
    fresh = Database(database.url.render_as_string())
    assert database.url.database is not None
    other = sqlite3.connect(database.url.database, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    seen_busy = threading.Event()
    monkeypatch.setattr(retry.time, "sleep", lambda seconds: (seen_busy.set(), other.rollback()))
    fresh.write(lambda conn: add(conn, 1))
    assert seen_busy.is_set()
    assert numbers(database) == [1]
    fresh.close()
    other.close()


def test_a_function_that_meets_a_deadlock_runs_again_from_the_start(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry.time, "sleep", lambda seconds: None)
    runs: list[int] = []

    def fill(conn: Any) -> int:
        add(conn, 1)
        runs.append(1)
        if len(runs) < 3:
            raise OperationalError("UPDATE", {}, _Deadlock())
        return len(runs)

    assert database.write(fill) == 3
    assert numbers(database) == [1]


def test_a_database_that_stays_busy_is_given_up(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(retry.time, "sleep", pauses.append)

    def fill(conn: Any) -> None:
        raise OperationalError("UPDATE", {}, _Deadlock())

    with pytest.raises(DatabaseOutOfOrder):
        database.write(fill)
    assert len(pauses) == retry.WRITE_ATTEMPTS - 1
    assert max(pauses) <= retry.LONGEST_PAUSE_SECONDS


def test_a_full_disk_is_told_and_changes_nothing(database: Database) -> None:
    def fill(conn: Any) -> None:
        conn.exec_driver_sql("PRAGMA max_page_count = 4")
        for number in range(10_000):
            add(conn, number)

    with pytest.raises(DatabaseOutOfOrder, match=r"can't be written: database or disk is full. See that its disk"):
        database.write(fill)
    assert numbers(database) == []


def test_a_broken_rule_is_not_tried_again(database: Database) -> None:
    runs: list[int] = []

    def fill(conn: Any) -> None:
        runs.append(1)
        add(conn, 1)
        add(conn, 1)

    with pytest.raises(IntegrityError):
        database.write(fill)
    assert runs == [1]


class _Deadlock(Exception):
    """As psycopg raises it."""

    sqlstate = "40P01"


class _Maria(Exception):
    """As PyMySQL raises it: code and text as arguments."""


class _Cut(Exception):
    """As psycopg raises it when the server went away."""

    sqlstate = "57P01"


class _DiskFull(Exception):
    sqlstate = "53100"


class _Taken(Exception):
    sqlstate = "23505"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_Deadlock(), Failure.BUSY),
        (_Maria(1213, "Deadlock found when trying to get lock"), Failure.BUSY),
        (_Maria(1205, "Lock wait timeout exceeded"), Failure.BUSY),
        (_Maria(1062, "Duplicate entry"), Failure.TAKEN),
        (_Taken(), Failure.TAKEN),
        (_Cut(), Failure.LOST),
        (_Maria(2013, "Lost connection"), Failure.LOST),
        (_Maria(1927, "Connection was killed"), Failure.LOST),
        (_Maria(1021, "Disk full"), Failure.FULL),
        (_DiskFull(), Failure.FULL),
        (_Maria(1054, "Unknown column"), Failure.FINAL),
        (_Maria(), Failure.FINAL),
        (sqlite3.OperationalError("no such table: x"), Failure.FINAL),
        (sqlite3.IntegrityError("UNIQUE constraint failed"), Failure.FINAL),
        (ValueError("40001"), Failure.FINAL),
    ],
)
def test_which_errors_are_tried_again(error: Exception, kind: Failure) -> None:
    assert failure_of(error) is kind
    assert failure_of(DBAPIError("SELECT", {}, error)) is kind


def test_nested_writes_are_refused_instead_of_waiting_for_themselves(database: Database) -> None:
    with pytest.raises(RuntimeError, match="inside"):
        database.write(lambda conn: database.write(lambda inner: None))
    database.write(lambda conn: add(conn, 1))
    assert numbers(database) == [1]


def test_the_hook_counts_statements_and_nothing_else(database: Database) -> None:
    seen: list[str] = []
    with database.statement_hook(seen.append):
        database.write(lambda conn: add(conn, 1))
        numbers(database)
    numbers(database)
    assert [text.split()[0] for text in seen] == ["INSERT", "SELECT"]


def test_the_lock_is_given_in_order_of_arrival() -> None:
    lock = FairLock()
    order: list[int] = []
    lock.acquire()

    def wait(number: int) -> None:
        with lock:
            order.append(number)

    threads = []
    for number in range(5):
        thread = threading.Thread(target=wait, args=(number,))
        thread.start()
        threads.append(thread)
        while len(lock._waiters) <= number:
            thread.join(0.001)
    lock.release()
    for thread in threads:
        thread.join(10)
    assert order == list(range(5))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "not a database URL"),
        ("oracle9://x", "unknown kind of database 'oracle9'"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("sqlite:////nowhere/at/all/x.sqlite3", "the folder /nowhere/at/all does not exist"),
    ],
)
def test_urls_that_can_not_work_are_refused_with_the_reason(url: str, said: str) -> None:
    with pytest.raises(DatabaseUnusable, match=said):
        Database(url)


@pytest.mark.parametrize("url", ["oracle9://user:secret@host/x", "user:secret@host"])
def test_a_password_is_never_shown(url: str) -> None:
    with pytest.raises(DatabaseUnusable) as caught:
        Database(url)
    assert "secret" not in str(caught.value)

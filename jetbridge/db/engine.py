"""Connections and transactions: one ``Database`` per process, reads beside each other, writes one after the other.

SQLite runs in WAL mode: readers never wait, and there is one writer at a time. Writers of this process queue up in order of
arrival before they ask SQLite for its lock, since SQLite itself only polls (https://www.sqlite.org/wal.html,
https://www.sqlite.org/c3ref/busy_timeout.html).
"""

from __future__ import annotations

import logging
import random
import re
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from jetbridge.errors import DatabaseUnusable

logger = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_TIMEOUT_MS = 5000
WRITE_ATTEMPTS = 12
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0

# Deadlocks, lost lock waits and serialization failures: the transaction had no effect and may be run again.
# https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
# https://mariadb.com/kb/en/mariadb-error-codes/
RETRYABLE_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
RETRYABLE_MARIADB_CODES = frozenset({1020, 1205, 1213})


class FairLock:
    """A lock whose waiters get it in order of arrival, so that no worker starves behind busier ones."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiters: deque[threading.Lock] = deque()

    def acquire(self) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiters.append(turn)
        turn.acquire()  # released by the one before us, who passes the lock on without letting it go

    def release(self) -> None:
        with self._guard:
            if self._waiters:
                self._waiters.popleft().release()
            else:
                self._held = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class Database:
    """One database, given by an SQLAlchemy URL (``sqlite:///FILE``).

    Raises ``DatabaseUnusable`` when the URL can't be understood or its driver is missing.
    """

    def __init__(self, url: str) -> None:
        self.url = _parse(url)
        self.engine = _engine(self.url)
        self._writer = FairLock() if self.is_sqlite else None
        self._writing = threading.local()

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def shown_url(self) -> str:
        """The URL without its password, for messages."""
        return self.url.render_as_string(hide_password=True)

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one state of the database throughout (on SQLite), and whose changes are thrown away."""
        with self.engine.connect() as connection:
            yield connection

    def write(self, fn: Callable[[Connection], T]) -> T:
        """Run ``fn`` in one transaction and commit; its answer is returned.

        ``fn`` may run several times (the database was busy, a deadlock), each time after everything it did was rolled back: it must
        not change anything else than the database. An error it raises rolls back and comes through. Must not be nested.
        """
        if getattr(self._writing, "active", False):
            raise RuntimeError("Database.write was called inside Database.write: pass the connection on instead")
        self._writing.active = True
        try:
            return _persistently(lambda: self._write_once(fn))
        finally:
            self._writing.active = False

    def _write_once(self, fn: Callable[[Connection], T]) -> T:
        if self._writer is None:
            with self.engine.begin() as connection:
                return fn(connection)
        with self._writer, self.engine.connect() as plain:
            connection = plain.execution_options(jetbridge_write=True)
            with connection.begin():
                return fn(connection)

    def use_wal(self) -> None:
        """Switch an SQLite file to WAL mode, which it keeps. Not done by opening it: it may turn out to be another program's."""
        if not self.is_sqlite:
            return

        def switch() -> None:
            with self.engine.connect() as connection:
                driver = connection.connection.dbapi_connection
                assert driver is not None
                driver.execute("PRAGMA journal_mode = WAL")

        _persistently(switch)

    @contextmanager
    def statement_hook(self, callback: Callable[[str], None]) -> Iterator[None]:
        """While open, ``callback`` gets the text of every statement that runs (transaction control excluded), in the thread that
        runs it. For tests and benchmarks that count statements."""

        def listener(
            connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
        ) -> None:
            callback(statement)

        event.listen(self.engine, "before_cursor_execute", listener)
        try:
            yield
        finally:
            event.remove(self.engine, "before_cursor_execute", listener)

    def upgrade(self) -> bool:
        """Bring the schema to the newest revision; True when anything had to be done.

        Raises ``DatabaseUnusable`` when the database holds tables that aren't ours: nothing is touched then.
        """
        from jetbridge.db.migrations import runner  # Alembic takes a while to import, and most processes don't need it

        return runner.upgrade(self)

    def check_schema(self) -> None:
        """Raises ``DatabaseUnusable`` unless the schema is of the revision this program works with."""
        from jetbridge.db.migrations import runner

        runner.check(self)


def _persistently(act: Callable[[], T]) -> T:
    for attempt in range(1, WRITE_ATTEMPTS):
        try:
            return act()
        except (DBAPIError, sqlite3.OperationalError) as error:
            if not is_retryable(error):
                raise
            logger.info("Database busy, transaction is run again (attempt %d): %s", attempt, _short(error))
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1), LONGEST_PAUSE_SECONDS)
        time.sleep(pause * random.uniform(0.5, 1.0))  # two losers of a deadlock shouldn't meet again
    return act()


def is_retryable(error: BaseException) -> bool:
    """Whether a transaction that failed with ``error`` had no effect and may succeed when run again."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, sqlite3.OperationalError):
        code: int = getattr(original, "sqlite_errorcode", 0) & 0xFF
        return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    sqlstate = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    if sqlstate in RETRYABLE_SQLSTATES:
        return True
    arguments: tuple[object, ...] = getattr(original, "args", ())
    return bool(arguments) and arguments[0] in RETRYABLE_MARIADB_CODES


def _short(error: BaseException) -> str:
    original = error.orig if isinstance(error, DBAPIError) else error
    return (str(original) or type(original).__name__).splitlines()[0]


def without_password(text: str) -> str:
    """Any text that was meant as a URL, fit to be shown."""
    return re.sub(r":[^:@/]*@", ":***@", text)


def _parse(text: str) -> URL:
    try:
        url = make_url(text)
        url.get_dialect()
    except NoSuchModuleError as error:
        kind = text.partition(":")[0]
        raise DatabaseUnusable(
            url=without_password(text), reason=f"unknown kind of database {kind!r}; write sqlite:////path/to/file"
        ) from error
    except ArgumentError as error:
        raise DatabaseUnusable(
            url=without_password(text), reason="not a database URL; write sqlite:////path/to/file"
        ) from error
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise DatabaseUnusable(
            url=text,
            reason="an SQLite database needs a file, since several connections share it; write sqlite:////path",
        )
    return url


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        try:
            return sa.create_engine(
                url, pool_pre_ping=True, pool_size=20, max_overflow=20, isolation_level="READ COMMITTED"
            )
        except ImportError as error:
            raise DatabaseUnusable(
                url=url.render_as_string(hide_password=True), reason=f"its driver isn't installed: {error}"
            ) from error
    assert url.database is not None
    folder = Path(url.database).absolute().parent
    if not folder.is_dir():
        raise DatabaseUnusable(url=str(url), reason=f"the folder {folder} does not exist")
    engine = sa.create_engine(url, pool_size=20, max_overflow=-1)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # the driver must not begin by itself: we choose the kind of transaction
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
    finally:
        cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE takes the write lock at once: a reader that turns writer half-way could only be refused.
    writes = connection.get_execution_options().get("jetbridge_write", False)
    driver = connection.connection.dbapi_connection
    assert driver is not None
    driver.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

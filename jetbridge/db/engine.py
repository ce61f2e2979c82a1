"""Connections and transactions: one ``Database`` per process.

SQLite runs in WAL mode: readers never wait, and there is one writer at a time. Writers of this process queue up in order of
arrival before they ask SQLite for its lock, since SQLite itself only polls (https://www.sqlite.org/wal.html,
https://www.sqlite.org/c3ref/busy_timeout.html).

On PostgreSQL and MariaDB writers run beside each other in READ COMMITTED: each statement sees what was committed before it, so that what
follows a row lock (``compute_nodes.lock``) sees everything its former holders did. Readers have connections of their own, in
REPEATABLE READ and read only: one state throughout, as on SQLite.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, CursorResult, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from jetbridge.db import commits
from jetbridge.db.connect import mariadb_engine, postgresql_engine, sqlite_engine
from jetbridge.db.migrations.head import is_at_head
from jetbridge.db.retry import Failure, Patience, failure_of, persistently
from jetbridge.db.url import parse, shown
from jetbridge.errors import DatabaseUnusable

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""How long reads and writes wait for a server that is away: longer than a restart with recovery takes."""


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


@dataclass
class _Work(Generic[T]):
    """One call of ``write``. ``answered``: ``answer`` is that of a run whose commit may have succeeded."""

    fn: Callable[[Connection], T]
    token: str
    answered: bool = False
    answer: T | None = None


class Database:
    """One database, given by an SQLAlchemy URL (``sqlite:///FILE``, ``postgresql://...``, ``mariadb://...``). ``patience_seconds``: how long
    reads and writes wait for a server that is away.

    Raises ``DatabaseUnusable`` when the URL can't be understood or its driver is missing.
    """

    def __init__(self, url: str, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.url = parse(url)
        self._patience_seconds = patience_seconds
        self._latest: float | None = None
        self.engine, self._reader = _engines(self.url)
        self._writer = FairLock() if self.is_sqlite else None
        self._writing = threading.local()

    @cached_property
    def kind(self) -> str:
        """sqlite, postgresql or mariadb."""
        return self.url.get_backend_name()

    @cached_property
    def is_sqlite(self) -> bool:
        return self.kind == "sqlite"

    @cached_property
    def shown_url(self) -> str:
        """The URL without its password, for messages."""
        return shown(self.url)

    def hurry(self, seconds: float) -> None:
        """From now on reads and writes, those under way too, wait until in ``seconds`` at most for a server that is away, not each for as
        long as it may: who is asked to stop has many. Again: the first time stands."""
        if self._latest is None:
            self._latest = time.monotonic() + seconds

    def close(self) -> None:
        self.engine.dispose()
        self._reader.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one state of the database throughout, and whose changes are refused or thrown away. Only when the server
        was lost in between, later statements may see a later state. Raises ``DatabaseAway``."""
        if self.is_sqlite:
            with self.read_once() as connection:
                yield connection
            return
        reader = persistently(lambda: _ReadingConnection(self._reader, self._patience), self._patience())
        try:
            yield reader
        finally:
            reader.end()

    @contextmanager
    def read_once(self) -> Iterator[Connection]:
        """As ``read``, without waiting for a server that is away: raises ``DBAPIError`` then."""
        with self._reader.connect() as connection:
            yield connection

    def write(self, fn: Callable[[Connection], T]) -> T:
        """Run ``fn`` in one transaction and commit; its answer is returned.

        ``fn`` may run several times (the database was busy, a deadlock, a connection lost), each time after everything it did was rolled
        back: it must not change anything else than the database. It takes effect once, also when the connection was lost in the middle of
        the commit. An error it raises rolls back and comes through. Must not be nested. Raises ``DatabaseAway``,
        ``DatabaseOutOfOrder``.
        """
        if getattr(self._writing, "active", False):
            raise RuntimeError("Database.write was called inside Database.write: pass the connection on instead")
        self._writing.active = True
        work = _Work(fn, uuid.uuid4().hex)
        try:
            return persistently(lambda: self._write_once(work), self._patience())
        finally:
            self._writing.active = False

    def _write_once(self, work: _Work[T]) -> T:
        if self._writer is None:
            with self.engine.connect() as connection:
                return self._write_on_server(connection, work)
        with self._writer, self.engine.begin() as connection:
            return work.fn(connection)

    def _write_on_server(self, connection: Connection, work: _Work[T]) -> T:
        try:
            commits.insert(connection, work.token)
        except IntegrityError:
            if not work.answered:
                raise
            connection.rollback()
            return work.answer  # type: ignore[return-value]  # the earlier run was committed after all
        work.answered = False
        work.answer = work.fn(connection)
        work.answered = True
        connection.commit()
        return work.answer

    def change_schema(self, fn: Callable[[Connection], T]) -> T:
        """As ``write`` for changes of tables: of several processes one at a time. Tried once. On MariaDB changes of tables can't be rolled
        back."""
        if self._writer is not None:
            return self.write(fn)
        with self.engine.connect() as connection:
            try:
                self._wait_for_other_changes(connection)
                answer = fn(connection)
                connection.commit()
                return answer
            finally:
                connection.invalidate()  # and with it MariaDB's lock is gone, however this ended

    def _wait_for_other_changes(self, connection: Connection) -> None:
        if self.kind == "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('jetbridge schema'))")
            return
        # Changes of tables commit at once on MariaDB, so the lock must not be one of the transaction.
        lock = "SELECT GET_LOCK(CONCAT('jetbridge schema ', LEFT(DATABASE(), 40)), 60)"
        if connection.exec_driver_sql(lock).scalar() != 1:
            raise DatabaseUnusable(url=self.shown_url, reason="another upgrade of it is running; try again later")

    def _patience(self) -> Patience:
        return Patience(self.shown_url, self._patience_seconds, lambda: self._latest)

    def use_wal(self) -> None:
        """Switch an SQLite file to WAL mode, which it keeps. Not done by opening it: it may turn out to be another program's."""
        if not self.is_sqlite:
            return

        def switch() -> None:
            with self.engine.connect() as connection:
                driver = connection.connection.dbapi_connection
                assert driver is not None
                driver.execute("PRAGMA journal_mode = WAL")

        persistently(switch, self._patience())

    @contextmanager
    def statement_hook(self, callback: Callable[[str], None]) -> Iterator[None]:
        """While open, ``callback`` gets the text of every statement that runs (transaction control excluded), in the thread that
        runs it. For tests and benchmarks that count statements."""

        def listener(
            connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
        ) -> None:
            callback(statement)

        engines = (self.engine, self._reader)
        for engine in engines:
            event.listen(engine, "before_cursor_execute", listener)
        try:
            yield
        finally:
            for engine in engines:
                event.remove(engine, "before_cursor_execute", listener)

    def upgrade(self) -> bool:
        """Bring the schema to the newest revision; True when anything had to be done.

        Raises ``DatabaseUnusable`` when the server does not answer, and when the database holds tables that aren't ours: nothing is touched
        then.
        """
        if is_at_head(self):
            return False
        from jetbridge.db.migrations import runner  # Alembic takes a while to import, and most processes don't need it

        return runner.upgrade(self)

    def check_schema(self) -> None:
        """Raises ``DatabaseUnusable`` unless the schema is of the revision this program works with."""
        if is_at_head(self):
            return
        from jetbridge.db.migrations import runner

        runner.check(self)


class _ReadingConnection(Connection):
    """Runs a statement again when the server was lost. Only for readers: what a transaction wrote before would be lost."""

    def __init__(self, engine: Engine, patience: Callable[[], Patience]) -> None:
        super().__init__(engine)
        self._new_patience = patience

    def execute(self, *arguments: Any, **options: Any) -> CursorResult[Any]:
        return self._again(lambda: super(_ReadingConnection, self).execute(*arguments, **options))

    def exec_driver_sql(self, *arguments: Any, **options: Any) -> CursorResult[Any]:
        return self._again(lambda: super(_ReadingConnection, self).exec_driver_sql(*arguments, **options))

    def end(self) -> None:
        """All was read that was asked for: that the server is lost now matters to nobody."""
        try:
            self.rollback()
        except DBAPIError as error:
            if failure_of(error) is not Failure.LOST:
                raise
        finally:
            self.close()

    def _again(self, act: Callable[[], CursorResult[Any]]) -> CursorResult[Any]:
        patience: Patience | None = None
        while True:
            try:
                return act()
            except DBAPIError as error:
                if failure_of(error) is not Failure.LOST:
                    raise
                patience = patience or self._new_patience()
                patience.wait(error)
                self.invalidate()
                self.rollback()  # SQLAlchemy connects again by itself once the lost transaction is given up


def _engines(url: URL) -> tuple[Engine, Engine]:
    """For writing and for reading."""
    makers = {"sqlite": sqlite_engine, "postgresql": postgresql_engine, "mariadb": mariadb_engine}
    make = makers[url.get_backend_name()]
    return make(url, writes=True), make(url, writes=False)

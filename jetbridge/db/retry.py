"""Which failures of a transaction go away when it is run again, and how long that is tried."""

from __future__ import annotations

import logging
import random
import sqlite3
import time
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from jetbridge.errors import DatabaseAway, DatabaseOutOfOrder

logger = logging.getLogger(__name__)

T = TypeVar("T")

WRITE_ATTEMPTS = 12
TAKEN_ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0

# Deadlocks, lost lock waits and serialization failures.
# https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
# https://mariadb.com/kb/en/mariadb-error-codes/
BUSY_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
BUSY_MARIADB = frozenset({1020, 1205, 1213})
# A unique key was taken by a transaction that ran at the same time.
TAKEN_SQLSTATES = frozenset({"23505"})
TAKEN_MARIADB = frozenset({1062})
# The server stops, starts, is full, or ended the connection.
# https://www.postgresql.org/docs/current/errcodes-appendix.html: classes 08 and 57P, too_many_connections
LOST_SQLSTATES = frozenset({"57P01", "57P02", "57P03", "57P05", "53300", "25P03"})
LOST_MARIADB = frozenset({1040, 1053, 1152, 1158, 1159, 1160, 1161, 1203, 1927, 2002, 2003, 2006, 2013, 2014, 2055})
# No room, or a disk that doesn't work. https://www.sqlite.org/rescode.html
FULL_SQLITE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN})
FULL_SQLSTATES = frozenset({"53100"})
FULL_MARIADB = frozenset({1021, 1114})


class Failure(Enum):
    """What a failed transaction is worth: run again soon; run again at most twice; run again once the database is back; nothing until
    somebody makes room; nothing."""

    BUSY = "busy"
    TAKEN = "taken"
    LOST = "lost"
    FULL = "full"
    FINAL = "final"


def failure_of(error: BaseException) -> Failure:
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        code: int = getattr(original, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Failure.BUSY
        return Failure.FULL if code in FULL_SQLITE else Failure.FINAL
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return Failure.LOST
    sqlstate: str | None = getattr(original, "sqlstate", None)
    arguments: tuple[object, ...] = getattr(original, "args", ())
    code_of = arguments[0] if arguments and isinstance(arguments[0], int) else None
    if sqlstate in BUSY_SQLSTATES or code_of in BUSY_MARIADB:
        return Failure.BUSY
    if sqlstate in TAKEN_SQLSTATES or code_of in TAKEN_MARIADB:
        return Failure.TAKEN
    if sqlstate in FULL_SQLSTATES or code_of in FULL_MARIADB:
        return Failure.FULL
    if sqlstate in LOST_SQLSTATES or (sqlstate or "").startswith("08") or code_of in LOST_MARIADB:
        return Failure.LOST
    # libpq tells no SQLSTATE when it can't connect or the connection breaks.
    if isinstance(error, OperationalError | InterfaceError) and sqlstate is None and code_of is None:
        return Failure.LOST
    return Failure.FINAL


def mark_lost(context: ExceptionContext) -> None:
    """For SQLAlchemy's ``handle_error``: connections that the server ended are given up, also where SQLAlchemy doesn't know the code."""
    original = context.original_exception
    if isinstance(original, sqlite3.Error):
        return
    arguments = original.args
    if getattr(original, "sqlstate", None) in ("57P01", "57P02", "57P03", "57P05", "25P03") or (
        arguments and arguments[0] in (1053, 1927)
    ):
        context.is_disconnect = True


class Patience:
    """How often one piece of work was in vain, and whether to try once more. ``away_seconds``: how long the server may be away;
    ``latest`` is asked until when at most (``time.monotonic``; None: no such limit), which may change during the wait."""

    def __init__(self, shown_url: str, away_seconds: float, latest: Callable[[], float | None] = lambda: None) -> None:
        self._shown_url = shown_url
        self._away_seconds = away_seconds
        self._latest = latest
        self._failures = 0
        self._taken = 0
        self._lost_at: float | None = None

    def wait(self, error: BaseException) -> None:
        """Returns when it is time to try again. Raises ``error`` when that is of no use, ``DatabaseAway`` when the server stays away,
        ``DatabaseOutOfOrder`` when the database stays locked, or can't be written."""
        kind = failure_of(error)
        self._failures += 1
        if kind is Failure.LOST:
            self._wait_for_server(error)
            return
        self._lost_at = None
        if kind is Failure.TAKEN:
            self._taken += 1
        if kind is Failure.FULL or (kind is Failure.BUSY and self._failures >= WRITE_ATTEMPTS):
            raise DatabaseOutOfOrder(url=self._shown_url, reason=first_line(error)) from error
        if kind is Failure.FINAL or self._taken >= TAKEN_ATTEMPTS or self._failures >= WRITE_ATTEMPTS:
            raise error
        logger.info(
            "Database %s, transaction is run again (attempt %d): %s", kind.value, self._failures, first_line(error)
        )
        _pause(self._failures)

    def _wait_for_server(self, error: BaseException) -> None:
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            self._failures = 1
            logger.warning("Database %s is away, waiting for it: %s", self._shown_url, first_line(error))
        latest = self._latest()
        limit = self._away_seconds if latest is None else max(min(self._away_seconds, latest - self._lost_at), 0)
        if now - self._lost_at >= limit:
            raise DatabaseAway(url=self._shown_url, seconds=f"{limit:.3g}", reason=first_line(error)) from error
        _pause(self._failures)


def persistently(act: Callable[[], T], patience: Patience) -> T:
    """Run ``act`` until it succeeds, as long as ``patience`` lasts."""
    while True:
        try:
            return act()
        except (DBAPIError, sqlite3.Error) as error:
            patience.wait(error)


def first_line(error: BaseException) -> str:
    """What the driver said, without the statement and its values."""
    original = error.orig if isinstance(error, DBAPIError) else error
    return (str(original) or type(original).__name__).splitlines()[0]


def _pause(failures: int) -> None:
    pause = min(FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 20), LONGEST_PAUSE_SECONDS)
    time.sleep(pause * random.uniform(0.5, 1.0))  # two losers of a deadlock shouldn't meet again

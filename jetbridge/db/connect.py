"""How each kind of database is connected to."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import PoolProxiedConnection, event
from sqlalchemy.engine import URL, Engine

from jetbridge.db.connection import WRITES
from jetbridge.db.retry import first_line, mark_lost
from jetbridge.db.url import shown
from jetbridge.errors import DatabaseUnusable

BUSY_TIMEOUT_MS = 5000

# A process has at most as many connections as threads that use the database at once; a few stay open.
POOL: dict[str, Any] = {"pool_size": 10, "max_overflow": 50}
CONNECT_SECONDS = 10
ANSWER_SECONDS = 120
"""A server that says nothing for so long is lost. Longer than ``MARIADB_LOCK_WAIT_SECONDS``."""
MARIADB_LOCK_WAIT_SECONDS = 20


def url_unusable(shown_url: str, error: Exception) -> DatabaseUnusable:
    """Of a parameter that the driver doesn't know or can't use."""
    return DatabaseUnusable(url=shown_url, reason=f"its URL can't be used: {first_line(error)}")


def sqlite_engine(url: URL, *, writes: bool) -> Engine:
    """Raises ``DatabaseUnusable``."""
    assert url.database is not None
    folder = Path(url.database).absolute().parent
    if not folder.is_dir():
        raise DatabaseUnusable(url=str(url), reason=f"the folder {folder} does not exist")
    try:
        engine = sa.create_engine(url, pool_size=20, max_overflow=-1, execution_options={WRITES: writes})
    except (TypeError, ValueError) as error:
        raise url_unusable(str(url), error) from error
    event.listen(engine, "connect", _set_up_sqlite)
    # Not by its event "begin": an engine with listeners prepares every statement for them.
    engine.dialect.do_begin = _begin_immediate if writes else _begin  # type: ignore[method-assign]
    return engine


def postgresql_engine(url: URL, *, writes: bool) -> Engine:
    """Raises ``DatabaseUnusable``."""
    # libpq: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
    defaults = {
        "connect_timeout": str(CONNECT_SECONDS),
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "application_name": "jetbridge",
    }
    arguments = {name: value for name, value in defaults.items() if name not in url.query}
    engine = _server_engine(url, writes, arguments)
    if not writes:
        event.listen(engine, "connect", _postgresql_read_only)
    return engine


def mariadb_engine(url: URL, *, writes: bool) -> Engine:
    """Raises ``DatabaseUnusable``."""
    # The server's own defaults differ from system to system.
    set_up = (
        "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', "
        "time_zone = '+00:00', default_storage_engine = InnoDB, max_sort_length = 65536, "
        f"innodb_lock_wait_timeout = {MARIADB_LOCK_WAIT_SECONDS}" + ("" if writes else ", tx_read_only = 1")
    )
    defaults = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": ANSWER_SECONDS,
        "write_timeout": ANSWER_SECONDS,
    }
    arguments: dict[str, Any] = {name: value for name, value in defaults.items() if name not in url.query}
    return _server_engine(url, writes, {**arguments, "init_command": set_up})


def _server_engine(url: URL, writes: bool, arguments: dict[str, Any]) -> Engine:
    try:
        # No pre-ping: a connection that broke while it was idle shows with the first statement, which is run again then.
        engine = sa.create_engine(
            url,
            isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
            execution_options={WRITES: writes},
            connect_args=arguments,
            hide_parameters=True,
            **POOL,
        )
    except ImportError as error:
        raise DatabaseUnusable(url=shown(url), reason=f"its driver isn't installed: {error}") from error
    except (TypeError, ValueError) as error:
        raise url_unusable(shown(url), error) from error
    event.listen(engine, "handle_error", mark_lost)
    return engine


def _postgresql_read_only(connection: Any, record: object) -> None:
    connection.read_only = True


def _set_up_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # the driver must not begin by itself: we choose the kind of transaction
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
    finally:
        cursor.close()


def _begin(dbapi_connection: PoolProxiedConnection) -> None:
    dbapi_connection.cursor().execute("BEGIN")


def _begin_immediate(dbapi_connection: PoolProxiedConnection) -> None:
    # It takes the write lock at once: a reader that turns writer half-way could only be refused.
    dbapi_connection.cursor().execute("BEGIN IMMEDIATE")

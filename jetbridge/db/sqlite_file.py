"""SQLite files of other programs' schemas that we serve: kept as our own is."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import PoolProxiedConnection, event
from sqlalchemy.engine import Engine

from jetbridge.db.connect import BUSY_TIMEOUT_MS
from jetbridge.errors import DatabaseUnusable

logger = logging.getLogger(__name__)


def prepare(path: Path) -> bool:
    """Make the file its owner's alone, and have it write ahead; whether it is new, that is without tables. Raises
    ``DatabaseUnusable``."""
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise DatabaseUnusable(url=path, reason=error) from error
    return _open_and_close(path) == 0


def fold(path: Path) -> None:
    """Nobody has the file open any more: what its log still holds goes into it, so that the file alone can be copied, or replaced by an
    older one: SQLite would take a log that is left beside it for that one's."""
    if not path.exists():
        return
    try:
        _open_and_close(path)
    except DatabaseUnusable as error:  # nothing is lost: whoever opens it next reads the log
        logger.warning("The log beside %s stays: %s", path, error.message)


def _open_and_close(path: Path) -> int:
    """Have the file write ahead, and count its tables. SQLite opens the log to read them, and whoever closes the file last folds it.
    Raises ``DatabaseUnusable``."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.execute("PRAGMA journal_mode = WAL")
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.DatabaseError, OSError) as error:
        raise DatabaseUnusable(url=path, reason=error) from error
    return int(tables)


def tune_engine(engine: Engine) -> None:
    """What every connection needs and the file can't keep. Open ones are closed. The file stays open until the engine is disposed of."""

    def tune(connection: Any, record: object) -> None:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        # With a write-ahead log a power cut loses the last commits at most and breaks nothing; what is lost, agents write again.
        connection.execute("PRAGMA synchronous = NORMAL")

    event.listen(engine, "connect", tune)
    engine.dispose()
    # They open and close a connection for each transaction. Whoever closes the last one copies the whole log into the file, waits for the
    # disk, and deletes the log: https://www.sqlite.org/wal.html#ckpt
    kept = _reading(engine)
    event.listen(engine, "engine_disposed", lambda engine: kept.close())


def _reading(engine: Engine) -> PoolProxiedConnection:
    """SQLite opens the log only by reading. Nothing is under way afterwards, or else the log couldn't be emptied."""
    connection = engine.raw_connection()
    with closing(connection.cursor()) as cursor:
        cursor.execute("SELECT count(*) FROM sqlite_master")
        cursor.fetchall()
    return connection

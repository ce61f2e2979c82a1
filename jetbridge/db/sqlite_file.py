"""SQLite files of other programs' schemas that we serve: kept as our own is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from jetbridge.db.connect import BUSY_TIMEOUT_MS
from jetbridge.errors import DatabaseUnusable


def prepare(path: Path) -> bool:
    """Make the file its owner's alone, and have it write ahead; whether it is new, that is without tables. Raises
    ``DatabaseUnusable``."""
    try:
        path.touch(mode=0o600)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.execute("PRAGMA journal_mode = WAL")
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.DatabaseError, OSError) as error:
        raise DatabaseUnusable(url=path, reason=error) from error
    return int(tables) == 0


def tune_engine(engine: Engine) -> None:
    """What every connection needs and the file can't keep. Open ones are closed."""

    def tune(connection: Any, record: object) -> None:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        # With a write-ahead log a power cut loses the last commits at most and breaks nothing; what is lost, agents write again.
        connection.execute("PRAGMA synchronous = NORMAL")

    event.listen(engine, "connect", tune)
    engine.dispose()

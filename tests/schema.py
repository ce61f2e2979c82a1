"""Databases with our tables and no rows: made by the migrations once, and copied from then on, as making them takes longer than most tests."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.schema import metadata


def new_database(path: Path) -> Database:
    """An SQLite database in a file that isn't there yet."""
    path.write_bytes(migrated())
    return Database(f"sqlite:///{path}")


@cache
def migrated() -> bytes:
    """What such a file holds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.sqlite3"
        database = Database(f"sqlite:///{path}")
        database.upgrade()
        with database.read() as conn:
            conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        return path.read_bytes()


def empty(conn: Connection) -> None:
    """No table has a row any more."""
    for table in metadata.sorted_tables:
        conn.execute(table.delete())

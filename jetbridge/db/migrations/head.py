"""Whether a database is at the newest revision: the one question about revisions that every start asks, answered without Alembic, which
takes longer to import than all else that a start has to do."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import sqlalchemy as sa

from jetbridge.db.schema import metadata

if TYPE_CHECKING:
    from jetbridge.db.engine import Database

HEAD = "0010"
"""The last of ``versions/``."""

VERSION_TABLE = "alembic_version"


def is_at_head(database: Database) -> bool:
    """False also when it can't be told: the runner says what is the matter then. Another program may have a revision of that name: tables
    of ours tell."""
    try:
        with database.read_once() as connection:
            tables = set(sa.inspect(connection).get_table_names())
            if VERSION_TABLE not in tables or not metadata.tables.keys() & tables:
                return False
            stored = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}")
            return list(stored.scalars()) == [HEAD]
    except (sa.exc.DBAPIError, sqlite3.DatabaseError, TypeError, ValueError, OSError):
        return False

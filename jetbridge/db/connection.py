"""The type of an open connection, for rooms that pass one on without writing SQL."""

from __future__ import annotations

from sqlalchemy.engine import Connection

__all__ = ["WRITES", "Connection", "is_writer"]

WRITES = "jetbridge_write"
"""The execution option that writers' connections carry."""


def is_writer(conn: Connection) -> bool:
    """Whether the connection is one of ``Database.write``."""
    return bool(conn.get_execution_options().get(WRITES, False))

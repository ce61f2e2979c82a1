"""The type of an open connection, for rooms that pass one on without writing SQL."""

from __future__ import annotations

from sqlalchemy.engine import Connection

__all__ = ["Connection"]

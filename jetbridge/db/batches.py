"""Long lists of ids. A statement takes only so many variables (32766 on SQLite), and long ones are slow to prepare."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.sql import Select

T = TypeVar("T")

MOST = 500


def batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    return (values[start : start + MOST] for start in range(0, len(values), MOST))


def narrowed(query: Select[Any], column: sa.Column[Any], ids: Collection[int] | Collection[str] | None) -> Select[Any]:
    """``query`` for the given ids (None: for all). A list too long for one statement does not narrow: the caller, who wants one
    statement, gets all rows and picks."""
    if ids is None or len(ids) > MOST:
        return query
    return query.where(column.in_(list(ids)))


class Rows:
    """The rows of ``query`` whose ``column`` is among some values. Made once for what is asked often, as the statements at the head of the
    other modules here are: SQLAlchemy takes longer to build a statement than to run it."""

    def __init__(self, query: Select[Any], column: sa.Column[Any]) -> None:
        self._one = query.where(column == sa.bindparam("wanted"))
        self._many = query.where(column.in_(sa.bindparam("wanted", expanding=True)))

    def among(self, conn: Connection, values: Sequence[str]) -> Iterator[Row[Any]]:
        if len(values) == 1:
            yield from conn.execute(self._one, {"wanted": values[0]})
            return
        for batch in batches(values):
            yield from conn.execute(self._many, {"wanted": list(batch)})

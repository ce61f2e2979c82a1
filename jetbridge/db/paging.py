"""Lists in pages: limit, marker, sort keys, as the REST APIs ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.sql import ColumnElement, Select

from jetbridge.errors import Invalid

Direction = Literal["asc", "desc"]


@dataclass(frozen=True)
class Page:
    """``marker`` is the id (as users see it) of the last row of the page before. ``sort``: (key, direction) pairs,
    most significant first; empty: the list's own order."""

    limit: int | None = None
    marker: str | None = None
    sort: tuple[tuple[str, Direction], ...] = ()


EVERYTHING = Page()


def paged(
    conn: Connection,
    query: Select[Any],
    page: Page,
    *,
    keys: Mapping[str, sa.Column[Any]],
    default: tuple[tuple[str, Direction], ...],
    unique: sa.Column[Any],
    marker_column: sa.Column[Any],
) -> Select[Any]:
    """``query`` ordered and cut to ``page``. ``unique`` breaks ties, so that no row is shown twice or left out.

    Raises ``Invalid`` for an unknown sort key and for a marker that isn't there.
    """
    order: list[tuple[ColumnElement[Any], Direction]] = []
    for key, direction in page.sort or default:
        if key not in keys:
            raise Invalid(reason=f"sort key {key!r} is not known; use one of {', '.join(sorted(keys))}")
        order.append((_never_null(keys[key]), direction))
    order.append((unique, order[-1][1] if order else "asc"))
    if page.marker is not None:
        row = conn.execute(sa.select(*(column for column, _ in order)).where(marker_column == page.marker)).first()
        if row is None:
            raise Invalid(reason=f"marker {page.marker!r} could not be found")
        query = query.where(_after(order, tuple(row)))
    query = query.order_by(*(column.asc() if direction == "asc" else column.desc() for column, direction in order))
    return query if page.limit is None else query.limit(page.limit)


def _after(order: list[tuple[ColumnElement[Any], Direction]], values: tuple[Any, ...]) -> ColumnElement[bool]:
    alternatives = []
    for index, (column, direction) in enumerate(order):
        equal = [before == values[at] for at, (before, _) in enumerate(order[:index])]
        further = column > values[index] if direction == "asc" else column < values[index]
        alternatives.append(sa.and_(*equal, further))
    return sa.or_(*alternatives)


def _never_null(column: sa.Column[Any]) -> ColumnElement[Any]:
    """Databases disagree on where NULL sorts, and comparing with it is never true: a lowest value takes its place."""
    if not column.nullable:
        return column
    lowest: Any = ""
    if isinstance(column.type, sa.DateTime):
        lowest = datetime(1970, 1, 1)
    elif isinstance(column.type, sa.Integer | sa.Float):
        lowest = -1
    return sa.func.coalesce(column, sa.literal(lowest, column.type))

"""The spans of requests, kept so that the way of each can be shown afterwards."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables import spans
from jetbridge.model.events import Seam
from jetbridge.model.span import Span

_t = spans.c

MOST_REQUESTS = 100


def insert(conn: Connection, ended: Sequence[Span]) -> None:
    if ended:
        conn.execute(spans.insert(), [_values(span) for span in ended])


def of_requests(conn: Connection, request_ids: Collection[str]) -> tuple[Span, ...]:
    """In the order they began."""
    query = sa.select(spans).where(_t.request_id.in_(request_ids)).order_by(_t.started_at, _t.id)
    return tuple(_span(row) for row in conn.execute(query))


def requests_about(conn: Connection, server: str) -> tuple[str, ...]:
    """Requests that had to do with the server, the latest first; a hundred at most."""
    latest = sa.func.max(_t.started_at)
    query = (
        sa.select(_t.request_id)
        .where(_t.server == server, _t.request_id.is_not(None))
        .group_by(_t.request_id)
        .order_by(latest.desc())
        .limit(MOST_REQUESTS)
    )
    return tuple(conn.execute(query).scalars())


def purge(conn: Connection, older_than: datetime) -> int:
    """Forget spans that began before; how many."""
    return conn.execute(spans.delete().where(_t.started_at < older_than)).rowcount


def _values(span: Span) -> dict[str, Any]:
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "request_id": span.request_id,
        "server": span.server,
        "seam": span.seam.value,
        "source": _cut(span.source),
        "target": _cut(span.target),
        "what": _cut(span.what),
        "started_at": span.started_at,
        "duration": span.seconds,
        "essentials": canonical(dict(span.essentials)),
        "error": None if span.error is None else span.error.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
    }


def _cut(text: str) -> str:
    return text[:255]


def _span(row: Row[Any]) -> Span:
    return Span(
        trace_id=row.trace_id,
        span_id=row.span_id,
        parent_id=row.parent_id,
        request_id=row.request_id,
        server=row.server,
        seam=Seam(row.seam),
        source=row.source,
        target=row.target,
        what=row.what,
        started_at=row.started_at,
        seconds=row.duration,
        essentials=decoded(row.essentials),
        error=row.error,
    )

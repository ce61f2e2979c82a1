"""What was decided about each host and why, kept with the request: hosts with the same answer are one row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables import verdicts
from jetbridge.model.verdict import VerdictGroup
from jetbridge.reasons import Reason

_t = verdicts.c

_KEEP = verdicts.insert()
_OF_SERVER = sa.select(verdicts).where(_t.instance_uuid == sa.bindparam("server")).order_by(_t.id)


@dataclass(frozen=True)
class StoredVerdict:
    instance_uuid: str
    request_id: str
    attempt: int
    group: VerdictGroup
    created_at: datetime


def store(
    conn: Connection,
    instance_uuid: str,
    request_id: str,
    attempt: int,
    groups: Iterable[VerdictGroup],
    *,
    now: datetime | None = None,
) -> None:
    """Keep one scheduling pass (``attempt`` counts passes from 1)."""
    at = now or utcnow()
    rows = [
        {
            "instance_uuid": instance_uuid,
            "request_id": request_id,
            "attempt": attempt,
            "filter": group.filter,
            "rule": None if group.reason is None else group.reason.rule,
            "text": None if group.reason is None else group.reason.text,
            "details": canonical(_details(group.reason)),
            "host_count": group.host_count,
            "hosts": canonical(list(group.hosts)),
            "created_at": at,
        }
        for group in groups
    ]
    if rows:
        conn.execute(_KEEP, rows)


def of_server(conn: Connection, instance_uuid: str) -> tuple[StoredVerdict, ...]:
    """In the order they were made."""
    return tuple(_stored(row) for row in conn.execute(_OF_SERVER, {"server": instance_uuid}))


def purge(conn: Connection, older_than: datetime) -> int:
    """Forget what was decided before; how many rows."""
    return conn.execute(verdicts.delete().where(_t.created_at < older_than)).rowcount


def _details(reason: Reason | None) -> dict[str, Any]:
    if reason is None:
        return {}
    return {"request": reason.request, "before": reason.before, "after": reason.after, "hint": reason.hint}


def _stored(row: Row[Any]) -> StoredVerdict:
    reason = None if row.rule is None else Reason(rule=row.rule, text=row.text, **decoded(row.details))
    group = VerdictGroup(row.filter, reason, row.host_count, tuple(decoded(row.hosts)))
    return StoredVerdict(row.instance_uuid, row.request_id, row.attempt, group, row.created_at)

"""Builds in flight: which process works on which server, where it stands, and which builds are dead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables import builds
from jetbridge.errors import NotFound
from jetbridge.model.verdict import Selection

_t = builds.c

_AT: sa.BindParameter[Any] = sa.bindparam("at")
_SET_STEP = (
    builds.update()
    .where(_t.id == sa.bindparam("build"), _t.state == "running")
    .values(step=sa.bindparam("to"), heartbeat=_AT, updated_at=_AT)
)
_START = builds.insert()
_ONE = sa.select(builds).where(_t.id == sa.bindparam("build"))
_OF_SERVER = sa.select(builds).where(_t.instance_uuid == sa.bindparam("server")).order_by(_t.id)
_RUNNING = builds.update().where(_t.id == sa.bindparam("build"), _t.state == "running")

BuildState = Literal["running", "done", "failed"]

RETURNED = "returned"
"""The step of a build that its host has undone and given back: the conductor decides what comes next."""


@dataclass(frozen=True)
class Build:
    """``attempts`` counts failures of hosts so far, ``tried_hosts`` are those; ``alternates`` are selections not yet tried. ``owner``
    is the process that works on it, ``heartbeat`` its last sign of life."""

    id: int
    instance_uuid: str
    kind: str
    host: str | None
    step: str | None
    state: BuildState
    owner: str
    heartbeat: datetime
    attempts: int
    tried_hosts: tuple[str, ...]
    alternates: tuple[Selection, ...]
    reason: str | None
    created_at: datetime
    updated_at: datetime | None


def start(
    conn: Connection,
    instance_uuid: str,
    owner: str,
    *,
    kind: str = "build",
    host: str | None = None,
    step: str | None = None,
    attempts: int = 0,
    tried_hosts: Sequence[str] = (),
    alternates: Sequence[Selection] = (),
    now: datetime | None = None,
) -> Build:
    at = now or utcnow()
    row = {
        "instance_uuid": instance_uuid,
        "kind": kind,
        "host": host,
        "step": step,
        "state": "running",
        "owner": owner,
        "heartbeat": at,
        "attempts": attempts,
        "tried_hosts": canonical(list(tried_hosts)),
        "alternates": _selections(alternates),
        "created_at": at,
    }
    result = conn.execute(_START, row)
    key = result.inserted_primary_key
    assert key is not None
    return get(conn, key[0])


def get(conn: Connection, build_id: int) -> Build:
    """Raises ``NotFound``."""
    row = conn.execute(_ONE, {"build": build_id}).first()
    if row is None:
        raise NotFound(noun="Build", key=build_id)
    return _build(row)


def of_server(conn: Connection, instance_uuid: str) -> tuple[Build, ...]:
    """All of a server's, oldest first."""
    return tuple(_build(row) for row in conn.execute(_OF_SERVER, {"server": instance_uuid}))


def running(conn: Connection, *, instance_uuid: str | None = None, host: str | None = None) -> tuple[Build, ...]:
    """Those in flight, oldest first."""
    query = sa.select(builds).where(_t.state == "running").order_by(_t.id)
    if instance_uuid is not None:
        query = query.where(_t.instance_uuid == instance_uuid)
    if host is not None:
        query = query.where(_t.host == host)
    return tuple(_build(row) for row in conn.execute(query))


def set_step(conn: Connection, build_id: int, step: str, *, now: datetime | None = None) -> bool:
    """Say where a running build stands; also a sign of life. False: it isn't running any more (declared dead, or ended)."""
    return conn.execute(_SET_STEP, {"build": build_id, "to": step, "at": now or utcnow()}).rowcount == 1


def begin(conn: Connection, build_id: int, host: str, owner: str, step: str, *, now: datetime | None = None) -> bool:
    """A process of ``host`` begins a build with ``step``. False: it is over, or elsewhere by now, or begun already. Of several that begin
    it, or take it from the host by ``take_unbegun``, one gets True."""
    return _while_running(conn, build_id, now, _t.host == host, _t.step.is_(None), owner=owner, step=step)


def move(
    conn: Connection,
    build_id: int,
    *,
    host: str | None,
    alternates: Sequence[Selection],
    attempts: int,
    tried_hosts: Sequence[str],
    owner: str | None = None,
    now: datetime | None = None,
) -> bool:
    """A running build goes to another host. False: it isn't running any more."""
    values: dict[str, Any] = {
        "host": host,
        "step": None,
        "alternates": _selections(alternates),
        "attempts": attempts,
        "tried_hosts": canonical(list(tried_hosts)),
    }
    if owner is not None:
        values["owner"] = owner
    return _while_running(conn, build_id, now, **values)


def give_back(conn: Connection, build_id: int, host: str, *, now: datetime | None = None) -> bool:
    """``host`` has undone it. False: it isn't running any more, or not there."""
    return _while_running(conn, build_id, now, _t.host == host, step=RETURNED)


def accept_back(conn: Connection, build_id: int, host: str, owner: str, *, now: datetime | None = None) -> Build | None:
    """Take a build that ``host`` gave back; it is on no host then. Answers what it was, or None: it is over, elsewhere by now, or
    taken already. Of several that are told of it, one gets it."""
    at = now or utcnow()
    row = conn.execute(sa.select(builds).where(_t.id == build_id)).first()
    query = builds.update().where(_t.id == build_id, _t.state == "running", _t.host == host, _t.step == RETURNED)
    taken = conn.execute(query.values(host=None, step=None, owner=owner, heartbeat=at, updated_at=at)).rowcount == 1
    return _build(row) if row is not None and taken else None


def take_unbegun(
    conn: Connection, build_id: int, owner: str, *, quiet_since: datetime, now: datetime | None = None
) -> Build | None:
    """Take a build of ``owner`` that was sent to a host and not begun there since ``quiet_since``: it is on no host then, and what
    still arrives there is too late. Answers what it was, or None: it was begun, or is over."""
    at = now or utcnow()
    row = conn.execute(sa.select(builds).where(_t.id == build_id)).first()
    query = builds.update().where(
        _t.id == build_id,
        _t.state == "running",
        _t.owner == owner,
        _t.step.is_(None),
        sa.func.coalesce(_t.updated_at, _t.created_at) < quiet_since,
    )
    taken = conn.execute(query.values(host=None, heartbeat=at, updated_at=at)).rowcount == 1
    return _build(row) if row is not None and taken else None


def quiet(conn: Connection, owner: str, since: datetime) -> tuple[Build, ...]:
    """Running builds of a process that haven't moved since then."""
    moved = sa.func.coalesce(_t.updated_at, _t.created_at)
    query = sa.select(builds).where(_t.state == "running", _t.owner == owner, moved < since).order_by(_t.id)
    return tuple(_build(row) for row in conn.execute(query))


def finish(conn: Connection, build_id: int, *, now: datetime | None = None) -> bool:
    """False: it wasn't running any more."""
    return _while_running(conn, build_id, now, state="done")


def fail(conn: Connection, build_id: int, reason: str, *, now: datetime | None = None) -> bool:
    """False: it wasn't running any more. Of two that declare a build dead, one gets True."""
    return _while_running(conn, build_id, now, state="failed", reason=reason)


def heartbeat(conn: Connection, owner: str, *, now: datetime | None = None) -> int:
    """All running builds of one process in one statement; how many there are."""
    query = builds.update().where(_t.owner == owner, _t.state == "running")
    return conn.execute(query.values(heartbeat=now or utcnow())).rowcount


def dead(
    conn: Connection, *, now: datetime, service_down_time: int, gone_owners: Collection[str] = ()
) -> tuple[Build, ...]:
    """Running builds whose process was silent for more than ``service_down_time`` seconds or is known to be gone."""
    silent = _t.heartbeat < now - timedelta(seconds=service_down_time)
    condition = sa.or_(silent, _t.owner.in_(sorted(gone_owners))) if gone_owners else silent
    query = sa.select(builds).where(_t.state == "running", condition).order_by(_t.id)
    return tuple(_build(row) for row in conn.execute(query))


def purge(conn: Connection, older_than: datetime) -> int:
    """Forget builds that ended before; how many."""
    ended = sa.func.coalesce(_t.updated_at, _t.created_at)
    return conn.execute(builds.delete().where(_t.state != "running", ended < older_than)).rowcount


def _while_running(
    conn: Connection, build_id: int, now: datetime | None, *conditions: sa.ColumnElement[bool], **values: Any
) -> bool:
    at = now or utcnow()
    query = _RUNNING.where(*conditions) if conditions else _RUNNING
    return conn.execute(query, {"build": build_id, "heartbeat": at, "updated_at": at, **values}).rowcount == 1


def _selections(selections: Sequence[Selection]) -> str:
    return canonical([selection.to_message() for selection in selections])


def _build(row: Row[Any]) -> Build:
    alternates: list[Mapping[str, Any]] = decoded(row.alternates)
    return Build(
        id=row.id,
        instance_uuid=row.instance_uuid,
        kind=row.kind,
        host=row.host,
        step=row.step,
        state=row.state,
        owner=row.owner,
        heartbeat=row.heartbeat,
        attempts=row.attempts,
        tried_hosts=tuple(decoded(row.tried_hosts)),
        alternates=tuple(Selection.from_message(selection) for selection in alternates),
        reason=row.reason,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )

"""Services: who is alive, who is switched off. A service is alive while its process writes heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.batches import Rows
from jetbridge.db.clock import utcnow
from jetbridge.db.tables import services
from jetbridge.errors import NotFound

_t = services.c

COMPUTE = "nova-compute"
"""What the agents are called."""


@dataclass(frozen=True)
class Service:
    """``owner`` is the process that serves it. Binaries: nova-compute, nova-conductor, nova-scheduler."""

    id: int
    uuid: str
    host: str
    binary: str
    topic: str
    disabled: bool
    disabled_reason: str | None
    forced_down: bool
    last_seen_up: datetime | None
    owner: str | None
    created_at: datetime | None
    updated_at: datetime | None

    def is_alive(self, now: datetime, service_down_time: int) -> bool:
        """``service_down_time`` in seconds."""
        if self.forced_down or self.last_seen_up is None:
            return False
        return now - self.last_seen_up <= timedelta(seconds=service_down_time)


def register(
    conn: Connection,
    hosts: Sequence[str],
    binary: str,
    topic: str,
    owner: str,
    new_id: Callable[[], str],
    *,
    now: datetime | None = None,
) -> None:
    """The process ``owner`` serves ``binary`` on ``hosts`` from now on. Rows that exist keep their id and whether they are disabled."""
    at = now or utcnow()
    known = set(conn.execute(sa.select(_t.host).where(_t.binary == binary, _t.deleted == 0)).scalars())
    returning = [{"its_host": host} for host in hosts if host in known]
    if returning:
        conn.execute(
            services.update()
            .where(_t.binary == binary, _t.deleted == 0, _t.host == sa.bindparam("its_host"))
            .values(owner=owner, topic=topic, last_seen_up=at),
            returning,
        )
    fresh = [host for host in dict.fromkeys(hosts) if host not in known]
    if fresh:
        common = {"binary": binary, "topic": topic, "owner": owner, "last_seen_up": at, "created_at": at, "deleted": 0}
        conn.execute(services.insert(), [{"uuid": new_id(), "host": host, **common} for host in fresh])


def heartbeat(conn: Connection, owner: str, *, now: datetime | None = None) -> int:
    """Every service of one process in one statement; how many there are."""
    result = conn.execute(
        services.update().where(_t.owner == owner, _t.deleted == 0).values(last_seen_up=now or utcnow())
    )
    return result.rowcount


def withdraw(conn: Connection, owner: str, hosts: Sequence[str] | None = None) -> None:
    """The process ends (or gives up ``hosts``): its services are down at once instead of after the silence."""
    query = services.update().where(_t.owner == owner, _t.deleted == 0).values(owner=None, last_seen_up=None)
    conn.execute(query if hosts is None else query.where(_t.host.in_(list(hosts))))


def listing(conn: Connection, *, binary: str | None = None, host: str | None = None) -> list[Service]:
    query = sa.select(services).where(_t.deleted == 0).order_by(_t.id)
    if binary is not None:
        query = query.where(_t.binary == binary)
    if host is not None:
        query = query.where(_t.host == host)
    return [_service(row) for row in conn.execute(query)]


def computes(conn: Connection, hosts: Collection[str] | None = None) -> dict[str, Service]:
    """The agents by host, of the given hosts (None: of all)."""
    found = conn.execute(_COMPUTES) if hosts is None else _COMPUTES_OF.among(conn, sorted(hosts))
    return {row.host: _service(row) for row in found if hosts is None or row.host in hosts}


def up(conn: Connection, now: datetime, service_down_time: int) -> frozenset[str]:
    """The hosts whose agents are alive."""
    return frozenset(host for host, agent in computes(conn).items() if agent.is_alive(now, service_down_time))


def unwell(conn: Connection, binary: str, silent_since: datetime) -> dict[str, Service]:
    """The services that are disabled, forced down or silent, by host: few, as a rule, however many there are."""
    query = sa.select(services).where(_t.binary == binary, _t.deleted == 0, _is_unwell(silent_since)).order_by(_t.id)
    return {row.host: _service(row) for row in conn.execute(query)}


@dataclass(frozen=True)
class Census:
    """``services`` and ``newest`` (an id) change whenever services come or go; ``unwell`` counts those of ``unwell()``."""

    services: int
    newest: int
    unwell: int


def census(conn: Connection, binary: str, silent_since: datetime) -> Census:
    count, newest, sick = conn.execute(_CENSUS, {"kind": binary, "since": silent_since}).one()
    return Census(count, newest or 0, int(sick or 0))


def hosts_of(conn: Connection, binary: str) -> frozenset[str]:
    """The hosts that have such a service, whatever its state."""
    query = sa.select(_t.host).where(_t.binary == binary, _t.deleted == 0)
    return frozenset(conn.execute(query).scalars())


def _is_unwell(silent_since: datetime | sa.BindParameter[datetime]) -> sa.ColumnElement[bool]:
    return sa.or_(_t.disabled, _t.forced_down, _t.last_seen_up.is_(None), _t.last_seen_up < silent_since)


_COMPUTES = sa.select(services).where(_t.binary == COMPUTE, _t.deleted == 0).order_by(_t.id)
_COMPUTES_OF = Rows(_COMPUTES, _t.host)
_CENSUS = sa.select(
    sa.func.count(),
    sa.func.max(_t.id),
    sa.func.sum(sa.case((_is_unwell(sa.bindparam("since", type_=sa.DateTime())), 1), else_=0)),
).where(_t.binary == sa.bindparam("kind"), _t.deleted == 0)


def get(conn: Connection, key: str | int) -> Service:
    """By UUID, or by number. Raises ``NotFound``."""
    condition = _t.id == key if isinstance(key, int) else _t.uuid == key
    row = conn.execute(sa.select(services).where(condition, _t.deleted == 0)).first()
    if row is None:
        raise NotFound(noun="Service", key=key)
    return _service(row)


def find(conn: Connection, host: str, binary: str) -> Service:
    """Raises ``NotFound``."""
    row = conn.execute(sa.select(services).where(_t.host == host, _t.binary == binary, _t.deleted == 0)).first()
    if row is None:
        raise NotFound(noun="Service", key=f"{binary} on host {host}")
    return _service(row)


def set_disabled(
    conn: Connection, key: str | int, disabled: bool, reason: str | None = None, *, now: datetime | None = None
) -> Service:
    """Switch a service off (no new servers) or on. Raises ``NotFound``."""
    service = get(conn, key)
    conn.execute(
        services.update()
        .where(_t.id == service.id)
        .values(disabled=disabled, disabled_reason=reason if disabled else None, updated_at=now or utcnow())
    )
    return get(conn, service.id)


def set_forced_down(conn: Connection, key: str | int, forced_down: bool, *, now: datetime | None = None) -> Service:
    """Declare a service dead, whatever its heartbeats say. Raises ``NotFound``."""
    service = get(conn, key)
    conn.execute(
        services.update().where(_t.id == service.id).values(forced_down=forced_down, updated_at=now or utcnow())
    )
    return get(conn, service.id)


def delete(conn: Connection, key: str | int, *, now: datetime | None = None) -> None:
    """Soft-deletes. Raises ``NotFound``."""
    service = get(conn, key)
    conn.execute(
        services.update().where(_t.id == service.id).values(deleted=_t.id, owner=None, updated_at=now or utcnow())
    )


def _service(row: Row[Any]) -> Service:
    return Service(
        id=row.id,
        uuid=row.uuid,
        host=row.host,
        binary=row.binary,
        topic=row.topic,
        disabled=row.disabled,
        disabled_reason=row.disabled_reason,
        forced_down=row.forced_down,
        last_seen_up=row.last_seen_up,
        owner=row.owner,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )

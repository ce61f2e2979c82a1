"""The accelerator requests of our servers, wherever they are kept: written before each call that changes them, so that a process which
dies leaves nothing that nobody knows of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables_accelerator import server_arqs
from jetbridge.model.accelerator import ServerArq

_t = server_arqs.c

_OF_HOST = sa.select(server_arqs).where(_t.hostname == sa.bindparam("at")).order_by(_t.id)


def insert(conn: Connection, rows: Iterable[ServerArq], *, now: datetime | None = None) -> None:
    at = now or utcnow()
    for arq in rows:
        conn.execute(
            server_arqs.insert().values(
                instance_uuid=arq.instance_uuid,
                build_id=arq.build_id,
                profile=arq.profile,
                project_id=arq.project_id,
                requester_id=arq.requester_id,
                port_id=arq.port_id,
                arq_uuid=arq.arq_uuid,
                hostname=arq.hostname,
                rp_uuid=arq.rp_uuid,
                attach_info=canonical(dict(arq.attach_info)),
                created_at=at,
            )
        )


def of_server(conn: Connection, instance_uuid: str) -> tuple[ServerArq, ...]:
    """In the order they were made, those about to be created included."""
    query = sa.select(server_arqs).where(_t.instance_uuid == instance_uuid).order_by(_t.id)
    return tuple(_arq(row) for row in conn.execute(query))


def attached_to(conn: Connection, instance_uuids: Collection[str]) -> dict[str, list[ServerArq]]:
    """Those whose device the guest may have, of each server that has any."""
    found: dict[str, list[ServerArq]] = {}
    mine = _t.instance_uuid.in_(list(instance_uuids)), _t.attach_type.is_not(None)
    for row in conn.execute(sa.select(server_arqs).where(*mine).order_by(_t.id)):
        found.setdefault(row.instance_uuid, []).append(_arq(row))
    return found


def of_host(conn: Connection, hostname: str) -> tuple[ServerArq, ...]:
    """Those that were bound there, or about to be."""
    return tuple(_arq(row) for row in conn.execute(_OF_HOST, {"at": hostname}))


def everything(conn: Connection) -> tuple[ServerArq, ...]:
    return tuple(_arq(row) for row in conn.execute(sa.select(server_arqs).order_by(_t.id)))


def bound_to(conn: Connection, arq_uuid: str, hostname: str, rp_uuid: str, *, now: datetime | None = None) -> None:
    """About to be bound there."""
    query = server_arqs.update().where(_t.arq_uuid == arq_uuid)
    conn.execute(query.values(hostname=hostname, rp_uuid=rp_uuid, updated_at=now or utcnow()))


def note_event(
    conn: Connection, instance_uuid: str, arq_uuid: str, event: str, *, now: datetime | None = None
) -> ServerArq | None:
    """How the binding ended, as the service tells; again: the same. None: no server of ours has that request."""
    mine = (_t.instance_uuid == instance_uuid, _t.arq_uuid == arq_uuid)
    conn.execute(server_arqs.update().where(*mine).values(event=event, updated_at=now or utcnow()))
    row = conn.execute(sa.select(server_arqs).where(*mine)).first()
    return None if row is None else _arq(row)


def note_attached(
    conn: Connection,
    arq_uuid: str,
    attach_type: str,
    attach_info: Mapping[str, str],
    handle_uuid: str | None,
    identity: str | None,
    *,
    now: datetime | None = None,
) -> None:
    """What the guest is about to be given for it."""
    conn.execute(
        server_arqs.update()
        .where(_t.arq_uuid == arq_uuid)
        .values(
            attach_type=attach_type,
            attach_info=canonical(dict(attach_info)),
            handle_uuid=handle_uuid,
            identity=identity,
            updated_at=now or utcnow(),
        )
    )


def note_returned(conn: Connection, instance_uuid: str, *, now: datetime | None = None) -> None:
    """The server's guest is gone: what it was given for its requests is in no guest any more. Which mediated device it was stays."""
    query = server_arqs.update().where(_t.instance_uuid == instance_uuid, _t.attach_type.is_not(None))
    conn.execute(query.values(attach_type=None, updated_at=now or utcnow()))


def guest_of(conn: Connection, arq_uuid: str) -> str | None:
    """The server whose guest may have what the request was given."""
    query = sa.select(_t.instance_uuid).where(_t.arq_uuid == arq_uuid, _t.attach_type.is_not(None))
    return conn.execute(query).scalar()


def forget(conn: Connection, ids: Collection[int]) -> None:
    """Requests that no longer exist."""
    if ids:
        conn.execute(server_arqs.delete().where(_t.id.in_(list(ids))))


def _arq(row: Row[Any]) -> ServerArq:
    return ServerArq(
        instance_uuid=row.instance_uuid,
        build_id=row.build_id,
        profile=row.profile,
        project_id=row.project_id,
        requester_id=row.requester_id,
        port_id=row.port_id,
        arq_uuid=row.arq_uuid,
        hostname=row.hostname,
        rp_uuid=row.rp_uuid,
        event=row.event,
        attach_type=row.attach_type,
        attach_info=decoded(row.attach_info),
        handle_uuid=row.handle_uuid,
        identity=row.identity,
        id=row.id,
        created_at=row.created_at,
    )

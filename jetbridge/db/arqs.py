"""Accelerator requests of the embedded service. Every query that a tenant's call leads to names the project."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db import accelerators
from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables_accelerator import accelerator_requests
from jetbridge.errors import NotFound
from jetbridge.model.accelerator import TRANSITIONS, Arq, ArqState, AttachHandle

_t = accelerator_requests.c


def create(conn: Connection, requests: Sequence[Arq], *, now: datetime | None = None) -> tuple[Arq, ...]:
    at = now or utcnow()
    for arq in requests:
        conn.execute(
            accelerator_requests.insert().values(
                uuid=arq.uuid,
                state=arq.state.value,
                project_id=arq.project_id,
                device_profile_name=arq.device_profile_name,
                device_profile_group_id=arq.device_profile_group_id,
                profile_group=canonical(dict(arq.group)),
                created_at=at,
            )
        )
    return tuple(get(conn, arq.uuid) for arq in requests)


def get(conn: Connection, uuid: str, *, project_id: str | None = None) -> Arq:
    """``project_id``: of the caller; None sees all. Raises ``NotFound``, also for another project's."""
    query = sa.select(accelerator_requests).where(_t.uuid == uuid)
    if project_id is not None:
        query = query.where(_t.project_id == project_id)
    row = conn.execute(query).first()
    if row is None:
        raise NotFound(noun="Accelerator request", key=uuid)
    return _arq(row, accelerators.handle_of(conn, uuid))


def listing(
    conn: Connection,
    *,
    project_id: str | None = None,
    instance_uuid: str | None = None,
    states: Collection[ArqState] | None = None,
) -> tuple[Arq, ...]:
    """In the order they were made. ``project_id``: of the caller; None sees all."""
    query = sa.select(accelerator_requests).order_by(_t.id)
    if project_id is not None:
        query = query.where(_t.project_id == project_id)
    if instance_uuid is not None:
        query = query.where(_t.instance_uuid == instance_uuid)
    if states is not None:
        query = query.where(_t.state.in_(sorted(state.value for state in states)))
    rows = conn.execute(query).all()
    handles = accelerators.handles_of(conn, [row.uuid for row in rows])
    return tuple(_arq(row, handles.get(row.uuid)) for row in rows)


def servers_of(conn: Connection, uuids: Collection[str]) -> Mapping[str, str]:
    """The server that each of the requests is bound for."""
    if not uuids:
        return {}
    query = sa.select(_t.uuid, _t.instance_uuid).where(_t.uuid.in_(list(uuids)), _t.instance_uuid.is_not(None))
    return {row.uuid: row.instance_uuid for row in conn.execute(query)}


def change(conn: Connection, uuid: str, state: ArqState, *, now: datetime | None = None, **values: str | None) -> bool:
    """Into ``state`` with ``values`` (hostname, device_rp_uuid, instance_uuid, project_id). False: it was in a state that doesn't lead
    there."""
    sources = sorted(source.value for source in TRANSITIONS[state])
    query = accelerator_requests.update().where(_t.uuid == uuid, _t.state.in_(sources))
    return conn.execute(query.values(state=state.value, updated_at=now or utcnow(), **values)).rowcount == 1


def delete(conn: Connection, uuid: str) -> bool:
    """False: it was gone already. Its handle must have been given back."""
    return conn.execute(accelerator_requests.delete().where(_t.uuid == uuid)).rowcount == 1


def _arq(row: Row[Any], handle: AttachHandle | None) -> Arq:
    return Arq(
        uuid=row.uuid,
        state=ArqState(row.state),
        project_id=row.project_id,
        device_profile_name=row.device_profile_name,
        device_profile_group_id=row.device_profile_group_id,
        group=decoded(row.profile_group),
        hostname=row.hostname,
        device_rp_uuid=row.device_rp_uuid,
        instance_uuid=row.instance_uuid,
        handle=handle,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )

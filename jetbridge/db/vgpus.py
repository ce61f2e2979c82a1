"""Our vGPUs: whose they are is what stands here, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.tables import compute_nodes, instances
from jetbridge.db.tables_vgpu import vgpus
from jetbridge.mdev.values import Kind, State, Vgpu

_t = vgpus.c

_OF_NODE = sa.select(vgpus).where(_t.compute_node_id == sa.bindparam("node")).order_by(_t.parent, _t.uuid)
_OF_SERVER = sa.select(vgpus).where(_t.instance_uuid == sa.bindparam("server")).order_by(_t.id)


@dataclass(frozen=True)
class ListedVgpu:
    """With the names people know its host and its server by."""

    vgpu: Vgpu
    host: str
    server_name: str | None


def of_node(conn: Connection, compute_node_id: int) -> tuple[Vgpu, ...]:
    """All of a host, by parent and UUID."""
    return tuple(_vgpu(row) for row in conn.execute(_OF_NODE, {"node": compute_node_id}))


def of_server(conn: Connection, server_uuid: str) -> tuple[Vgpu, ...]:
    """Those that a server has, in the order in which it got them: its guest sees them in that order."""
    return tuple(_vgpu(row) for row in conn.execute(_OF_SERVER, {"server": server_uuid}))


def of_servers(conn: Connection, server_uuids: Collection[str]) -> dict[str, list[Vgpu]]:
    """Of each server that has any, in the order in which it got them."""
    found: dict[str, list[Vgpu]] = {}
    query = sa.select(vgpus).where(_t.instance_uuid.in_(list(server_uuids))).order_by(_t.id)
    for row in conn.execute(query):
        found.setdefault(row.instance_uuid, []).append(_vgpu(row))
    return found


def listing(conn: Connection, host: str | None = None) -> list[ListedVgpu]:
    """Of one host, or of all, by host, parent and UUID."""
    query = (
        sa.select(vgpus, compute_nodes.c.host, instances.c.display_name)
        .join(compute_nodes, compute_nodes.c.id == _t.compute_node_id)
        .outerjoin(instances, instances.c.uuid == _t.instance_uuid)
        .where(compute_nodes.c.deleted == 0)
        .order_by(compute_nodes.c.host, _t.parent, _t.uuid)
    )
    if host is not None:
        query = query.where(compute_nodes.c.host == host)
    return [ListedVgpu(_vgpu(row), row.host, row.display_name) for row in conn.execute(query)]


def save(conn: Connection, compute_node_id: int, changed: Iterable[Vgpu], *, now: datetime | None = None) -> None:
    """Insert or update, known by ``uuid``. The host's row must have been locked before (``compute_nodes.lock``)."""
    at = now or utcnow()
    for vgpu in changed:
        values = _columns(vgpu)
        updated = conn.execute(vgpus.update().where(_t.uuid == vgpu.uuid).values(updated_at=at, **values))
        if updated.rowcount == 0:
            conn.execute(vgpus.insert().values(compute_node_id=compute_node_id, created_at=at, **values))


def set_state(
    conn: Connection, uuids: Collection[str], state: State, *, before: Collection[State], now: datetime
) -> None:
    """Of those that are in one of the states ``before``."""
    if uuids:
        query = vgpus.update().where(_t.uuid.in_(list(uuids)), _t.state.in_([one.value for one in before]))
        conn.execute(query.values(state=state.value, updated_at=now))


def release(
    conn: Connection, compute_node_id: int, server_uuid: str, *, now: datetime | None = None
) -> tuple[Vgpu, ...]:
    """The server has none any more; answers those that it had. What was taken down with it is forgotten, the others can be used
    again. The host's row must have been locked before."""
    held = [vgpu for vgpu in of_server(conn, server_uuid) if vgpu.server is not None]
    delete(conn, [vgpu.uuid for vgpu in held if vgpu.state is State.REMOVED])
    query = vgpus.update().where(_t.instance_uuid == server_uuid, _t.compute_node_id == compute_node_id)
    conn.execute(query.values(instance_uuid=None, updated_at=now or utcnow()))
    return tuple(held)


def delete(conn: Connection, uuids: Collection[str]) -> None:
    if uuids:
        conn.execute(vgpus.delete().where(_t.uuid.in_(list(uuids))))


def forget_node(conn: Connection, compute_node_id: int) -> None:
    """The host is gone for good."""
    conn.execute(vgpus.delete().where(_t.compute_node_id == compute_node_id))


def _columns(vgpu: Vgpu) -> dict[str, Any]:
    return {
        "uuid": vgpu.uuid,
        "kind": vgpu.kind.value,
        "card": vgpu.card,
        "parent": vgpu.parent,
        "type": vgpu.type,
        "resource_class": vgpu.resource_class,
        "instance_uuid": vgpu.server,
        "state": vgpu.state.value,
    }


def _vgpu(row: Row[Any]) -> Vgpu:
    return Vgpu(
        uuid=row.uuid,
        kind=Kind(row.kind),
        card=row.card,
        parent=row.parent,
        type=row.type,
        resource_class=row.resource_class,
        server=row.instance_uuid,
        state=State(row.state),
    )

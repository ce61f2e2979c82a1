"""Which networks and bridges each host has."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from jetbridge.db.batches import narrowed
from jetbridge.db.tables import compute_nodes, host_networks

_t = host_networks.c

_OF_NODE = sa.select(_t.name, _t.kind).where(_t.compute_node_id == sa.bindparam("node")).order_by(_t.name)


@dataclass(frozen=True)
class HostNetwork:
    """``kind``: network (libvirt's) or bridge (the host's)."""

    name: str
    kind: str


def replace(conn: Connection, compute_node_id: int, networks: Iterable[HostNetwork]) -> bool:
    """The host has exactly these now; whether anything changed. Lock the host before, so that schedulers look again."""
    wanted = {network.name: network.kind for network in networks}
    stored = {network.name: network.kind for network in of_node(conn, compute_node_id)}
    if stored == wanted:
        return False
    conn.execute(host_networks.delete().where(_t.compute_node_id == compute_node_id))
    if wanted:
        rows = [{"compute_node_id": compute_node_id, "name": name, "kind": kind} for name, kind in wanted.items()]
        conn.execute(host_networks.insert(), rows)
    return True


def by_node(conn: Connection, compute_node_ids: Collection[int] | None = None) -> dict[int, frozenset[str]]:
    """Names by host; hosts without any are left out."""
    query = narrowed(sa.select(_t.compute_node_id, _t.name), _t.compute_node_id, compute_node_ids)
    found: dict[int, set[str]] = {}
    for row in conn.execute(query):
        if compute_node_ids is None or row.compute_node_id in compute_node_ids:
            found.setdefault(row.compute_node_id, set()).add(row.name)
    return {node: frozenset(names) for node, names in found.items()}


def of_node(conn: Connection, compute_node_id: int) -> tuple[HostNetwork, ...]:
    return tuple(HostNetwork(row.name, row.kind) for row in conn.execute(_OF_NODE, {"node": compute_node_id}))


def listing(conn: Connection) -> tuple[HostNetwork, ...]:
    """Every network that any living host has, once per name and kind, by name."""
    query = (
        sa.select(_t.name, _t.kind)
        .distinct()
        .join(compute_nodes, compute_nodes.c.id == _t.compute_node_id)
        .where(compute_nodes.c.deleted == 0)
        .order_by(_t.name, _t.kind)
    )
    return tuple(HostNetwork(row.name, row.kind) for row in conn.execute(query))

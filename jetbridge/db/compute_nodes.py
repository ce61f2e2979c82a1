"""Hosts: what they have, the generation that serialises their changes, and what their servers hold of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.batches import narrowed
from jetbridge.db.clock import utcnow
from jetbridge.db.codec import guest_topology_from_text, host_topology_from_text, topology_to_text
from jetbridge.db.tables import compute_nodes, instance_extra, instances
from jetbridge.errors import HostNotFound
from jetbridge.numa.topology import GuestTopology, HostTopology

_t = compute_nodes.c
_i = instances.c

_THIS = _t.id == sa.bindparam("node")
_NEXT_GENERATION = compute_nodes.update().where(_THIS, _t.deleted == 0).values(generation=_t.generation + 1)
_GENERATION = sa.select(_t.generation).where(_THIS)
_GENERATIONS = sa.select(_t.id, _t.generation).where(_t.deleted == 0)
_ONE = sa.select(compute_nodes).where(_THIS, _t.deleted == 0)
_OF_HOST = sa.select(compute_nodes).where(_t.host == sa.bindparam("host"), _t.deleted == 0).order_by(_t.id)


@dataclass(frozen=True)
class ComputeNode:
    """A row of ``compute_nodes``. Memory in MiB, disk in GiB. ``numa`` is the hardware, without usage. ``probe_error`` says why the
    last discovery failed (its devices are unknown then). ``reported``: its resource providers are in Placement, so that servers may be
    placed on it (``set_reported`` says so). ``id`` 0: not stored yet."""

    uuid: str
    host: str
    hypervisor_hostname: str
    hypervisor_type: str
    hypervisor_version: int
    vcpus: int
    memory_mb: int
    local_gb: int
    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    disk_allocation_ratio: float
    reserved_memory_mb: int = 0
    reserved_disk_gb: int = 0
    numa: HostTopology | None = None
    cpu_info: str | None = None
    probe_error: str | None = None
    host_ip: str | None = None
    reported: bool = False
    id: int = 0
    generation: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True)
class Usage:
    """What the servers of a host hold: memory in MiB, disk (root, ephemeral and swap) in GiB."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    servers: int = 0


def lock(conn: Connection, compute_node_id: int) -> int:
    """Serialise the host: the first statement of every transaction that changes its devices or its usage. Answers the new
    generation. Raises ``HostNotFound``."""
    if conn.execute(_NEXT_GENERATION, {"node": compute_node_id}).rowcount == 0:
        raise HostNotFound(host=_name(conn, compute_node_id))
    return int(conn.execute(_GENERATION, {"node": compute_node_id}).scalar_one())


def _name(conn: Connection, compute_node_id: int) -> str:
    """Also of a host that is gone: people know its name, not its row."""
    name = conn.execute(sa.select(_t.host).where(_THIS), {"node": compute_node_id}).scalar()
    return f"with number {compute_node_id}" if name is None else str(name)


def generations(conn: Connection) -> dict[int, int]:
    """Generation of every host by id: what moved since the last look."""
    rows: Any = conn.execute(_GENERATIONS).all()
    return dict(rows)


def get(conn: Connection, compute_node_id: int) -> ComputeNode:
    """Raises ``HostNotFound``."""
    row = conn.execute(_ONE, {"node": compute_node_id}).first()
    if row is None:
        raise HostNotFound(host=_name(conn, compute_node_id))
    return _node(row, host_topology_from_text(row.numa_topology))


def of_host(conn: Connection, host: str) -> ComputeNode:
    """Raises ``HostNotFound``."""
    row = conn.execute(_OF_HOST, {"host": host}).first()
    if row is None:
        raise HostNotFound(host=host)
    return _node(row, host_topology_from_text(row.numa_topology))


def by_uuid(conn: Connection, uuid: str) -> ComputeNode:
    """Raises ``HostNotFound``."""
    row = conn.execute(sa.select(compute_nodes).where(_t.uuid == uuid, _t.deleted == 0)).first()
    if row is None:
        raise HostNotFound(host=uuid)
    return _node(row, host_topology_from_text(row.numa_topology))


def listing(conn: Connection, compute_node_ids: Collection[int] | None = None) -> list[ComputeNode]:
    """All hosts (or the given ones) by id."""
    query = sa.select(compute_nodes).where(_t.deleted == 0).order_by(_t.id)
    rows = conn.execute(narrowed(query, _t.id, compute_node_ids))
    hardware: dict[str | None, HostTopology | None] = {}  # a fleet has few kinds of hosts
    found = []
    for row in rows:
        if compute_node_ids is None or row.id in compute_node_ids:
            if row.numa_topology not in hardware:
                hardware[row.numa_topology] = host_topology_from_text(row.numa_topology)
            found.append(_node(row, hardware[row.numa_topology]))
    return found


def upsert(conn: Connection, node: ComputeNode, *, now: datetime | None = None) -> ComputeNode:
    """Store what a host is, known by ``host`` and ``hypervisor_hostname``; an existing row keeps its id and UUID. Its generation
    moves when anything changed, so that schedulers look again."""
    query = sa.select(compute_nodes).where(
        _t.host == node.host, _t.hypervisor_hostname == node.hypervisor_hostname, _t.deleted == 0
    )
    row = conn.execute(query).first()
    at = now or utcnow()
    if row is None:
        result = conn.execute(
            compute_nodes.insert().values(uuid=node.uuid, generation=1, deleted=0, created_at=at, **_columns(node))
        )
        key = result.inserted_primary_key
        assert key is not None
        return replace(node, id=key[0], generation=1, created_at=at)
    changed = {name: value for name, value in _columns(node).items() if getattr(row, name) != value}
    if changed:
        conn.execute(
            compute_nodes.update().where(_t.id == row.id).values(generation=_t.generation + 1, updated_at=at, **changed)
        )
    return get(conn, row.id)


def set_probe_error(conn: Connection, compute_node_id: int, error: str | None) -> None:
    """Record why discovery failed (None: it works again). The host must have been locked before."""
    conn.execute(compute_nodes.update().where(_t.id == compute_node_id).values(probe_error=error))


def set_reported(conn: Connection, compute_node_id: int, reported: bool = True) -> None:
    """Whether the host's providers are in Placement, from now on. Raises ``HostNotFound``."""
    lock(conn, compute_node_id)  # schedulers look again
    conn.execute(compute_nodes.update().where(_t.id == compute_node_id).values(reported=reported))


def delete(conn: Connection, compute_node_id: int, *, now: datetime | None = None) -> None:
    """Soft-deletes. Raises ``HostNotFound``."""
    lock(conn, compute_node_id)
    conn.execute(
        compute_nodes.update().where(_t.id == compute_node_id).values(deleted=_t.id, updated_at=now or utcnow())
    )


def usage(conn: Connection, compute_node_ids: Collection[int] | None = None) -> dict[int, Usage]:
    """What servers hold, by one grouped query; hosts without servers are left out."""
    swap_gb = (_i.swap_mb + 1023) // 1024
    query = (
        sa.select(
            _i.compute_node_id,
            sa.func.sum(_i.vcpus).label("vcpus"),
            sa.func.sum(_i.memory_mb).label("memory_mb"),
            sa.func.sum(_i.root_gb + _i.ephemeral_gb + swap_gb).label("disk_gb"),
            sa.func.count().label("servers"),
        )
        .where(_i.compute_node_id.is_not(None), _i.deleted == 0)
        .group_by(_i.compute_node_id)
    )
    rows = conn.execute(narrowed(query, _i.compute_node_id, compute_node_ids))
    return {
        row.compute_node_id: Usage(int(row.vcpus), int(row.memory_mb), int(row.disk_gb), int(row.servers))
        for row in rows
        if compute_node_ids is None or row.compute_node_id in compute_node_ids
    }


def guest_topologies(
    conn: Connection, compute_node_ids: Collection[int] | None = None
) -> dict[int, tuple[GuestTopology, ...]]:
    """The fitted topologies of the servers of each host, in one statement; hosts without any are left out."""
    by_server = guest_topologies_by_server(conn, compute_node_ids)
    return {node: tuple(servers.values()) for node, servers in by_server.items()}


def guest_topologies_by_server(
    conn: Connection, compute_node_ids: Collection[int] | None = None
) -> dict[int, Mapping[str, GuestTopology]]:
    """As ``guest_topologies``, with the server's UUID as the key within a host."""
    query = (
        sa.select(_i.compute_node_id, _i.uuid, instance_extra.c.numa_topology)
        .join(instance_extra, instance_extra.c.instance_uuid == _i.uuid)
        .where(_i.compute_node_id.is_not(None), _i.deleted == 0, instance_extra.c.numa_topology.is_not(None))
        .order_by(_i.id)
    )
    found: dict[int, dict[str, GuestTopology]] = {}
    for row in conn.execute(narrowed(query, _i.compute_node_id, compute_node_ids)):
        if compute_node_ids is not None and row.compute_node_id not in compute_node_ids:
            continue
        topology = guest_topology_from_text(row.numa_topology)
        assert topology is not None
        found.setdefault(row.compute_node_id, {})[row.uuid] = topology
    return dict(found)


def _columns(node: ComputeNode) -> dict[str, Any]:
    return {
        "host": node.host,
        "hypervisor_hostname": node.hypervisor_hostname,
        "hypervisor_type": node.hypervisor_type,
        "hypervisor_version": node.hypervisor_version,
        "vcpus": node.vcpus,
        "memory_mb": node.memory_mb,
        "local_gb": node.local_gb,
        "cpu_allocation_ratio": node.cpu_allocation_ratio,
        "ram_allocation_ratio": node.ram_allocation_ratio,
        "disk_allocation_ratio": node.disk_allocation_ratio,
        "reserved_memory_mb": node.reserved_memory_mb,
        "reserved_disk_gb": node.reserved_disk_gb,
        "numa_topology": topology_to_text(node.numa),
        "cpu_info": node.cpu_info,
        "probe_error": node.probe_error,
        "host_ip": node.host_ip,
    }


def _node(row: Row[Any], numa: HostTopology | None) -> ComputeNode:
    return ComputeNode(
        uuid=row.uuid,
        host=row.host,
        hypervisor_hostname=row.hypervisor_hostname,
        hypervisor_type=row.hypervisor_type,
        hypervisor_version=row.hypervisor_version,
        vcpus=row.vcpus,
        memory_mb=row.memory_mb,
        local_gb=row.local_gb,
        cpu_allocation_ratio=row.cpu_allocation_ratio,
        ram_allocation_ratio=row.ram_allocation_ratio,
        disk_allocation_ratio=row.disk_allocation_ratio,
        reserved_memory_mb=row.reserved_memory_mb,
        reserved_disk_gb=row.reserved_disk_gb,
        numa=numa,
        cpu_info=row.cpu_info,
        probe_error=row.probe_error,
        host_ip=row.host_ip,
        reported=row.reported,
        id=row.id,
        generation=row.generation,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )

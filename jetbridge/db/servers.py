"""Servers: rows of ``instances``, and of ``instance_extra`` what the build needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, TypedDict, Unpack

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.sql import Select

from jetbridge.db import actions, interfaces, server_labels
from jetbridge.db.batches import batches
from jetbridge.db.clock import utcnow
from jetbridge.db.codec import (
    canonical,
    decoded,
    flavor_from_json,
    flavor_to_json,
    guest_topology_from_text,
    requests_from_text,
    requests_to_text,
    topology_to_text,
)
from jetbridge.db.connection import is_writer
from jetbridge.db.paging import EVERYTHING, Page, paged
from jetbridge.db.server_filter import COLUMNS, conditions, in_task_states, refused_pattern
from jetbridge.db.server_filter import SORT_KEYS as SORT_KEYS
from jetbridge.db.server_filter import ServerFilter as ServerFilter
from jetbridge.db.tables import instance_extra, instances
from jetbridge.errors import ServerNotFound
from jetbridge.model.server import NetworkRequest, PowerState, Server, TaskState, VmState
from jetbridge.numa.topology import GuestTopology
from jetbridge.pci.request import PciRequest

_t = instances.c
_x = instance_extra.c


class Changes(TypedDict, total=False):
    """What ``update`` can change."""

    vm_state: VmState
    task_state: TaskState | None
    power_state: PowerState
    display_name: str
    display_description: str | None
    hostname: str | None
    availability_zone: str | None
    launched_at: datetime | None
    terminated_at: datetime | None
    host: str | None
    node: str | None
    compute_node_id: int | None
    image_ref: str | None
    config_drive: bool
    locked: bool
    locked_reason: str | None


def create(
    conn: Connection,
    server: Server,
    *,
    pci_requests: Sequence[PciRequest] = (),
    numa_topology: GuestTopology | None = None,
    keypair: Mapping[str, str] | None = None,
) -> Server:
    """Store a new server (``server.id`` is ignored) with what it asked for, its metadata and tags. ``keypair`` is kept as it was when
    the server was made: {"name", "public_key", "type", "fingerprint"}."""
    flavor = server.flavor
    row = {
        "uuid": server.uuid,
        "display_name": server.display_name,
        "display_description": server.display_description,
        "hostname": server.hostname,
        "project_id": server.project_id,
        "user_id": server.user_id,
        "vm_state": server.vm_state.value,
        "task_state": None if server.task_state is None else server.task_state.value,
        "power_state": int(server.power_state),
        "image_ref": server.image_ref,
        "host": server.host,
        "node": server.node,
        "compute_node_id": server.compute_node_id,
        "flavorid": flavor.flavorid,
        "vcpus": flavor.vcpus,
        "memory_mb": flavor.memory_mb,
        "root_gb": flavor.root_gb,
        "ephemeral_gb": flavor.ephemeral_gb,
        "swap_mb": flavor.swap_mb,
        "key_name": server.key_name,
        "user_data": server.user_data,
        "config_drive": server.config_drive,
        "availability_zone": server.availability_zone,
        "reservation_id": server.reservation_id,
        "launch_index": server.launch_index,
        "locked": server.locked,
        "locked_reason": server.locked_reason,
        "request_id": server.request_id,
        "launched_at": server.launched_at,
        "deleted": 0,
        "created_at": server.created_at,
    }
    extra = {
        "instance_uuid": server.uuid,
        "pci_requests": requests_to_text(pci_requests),
        "numa_topology": topology_to_text(numa_topology),
        "flavor": canonical(flavor_to_json(flavor)),
        "keypair": None if keypair is None else canonical(dict(keypair)),
    }
    result = conn.execute(_INSERT, row)
    conn.execute(_INSERT_EXTRA, extra)
    interfaces.add(conn, server.uuid, server.networks, now=server.created_at)
    if server.metadata:
        server_labels.set_metadata(conn, server.uuid, server.metadata)
    if server.tags:
        server_labels.replace_tags(conn, server.uuid, server.tags)
    key = result.inserted_primary_key
    assert key is not None
    return replace(server, id=key[0])


def get(conn: Connection, uuid: str, *, project_id: str | None = None, deleted_too: bool = False) -> Server:
    """``project_id``: only a server of this project (None: of any). What a writer gets stays as it is until it commits. Raises
    ``ServerNotFound``."""
    query = _one(held=is_writer(conn), of_project=project_id is not None, deleted_too=deleted_too)
    servers = _load(conn, query, {"uuid": uuid} if project_id is None else {"uuid": uuid, "project_id": project_id})
    if not servers:
        raise ServerNotFound(server=uuid)
    return servers[0]


def states(conn: Connection, uuid: str) -> tuple[VmState, TaskState | None]:
    """The states of a living server. Raises ``ServerNotFound``."""
    row = conn.execute(_STATES, {"uuid": uuid}).first()
    if row is None:
        raise ServerNotFound(server=uuid)
    return VmState(row.vm_state), None if row.task_state is None else TaskState(row.task_state)


def get_many(conn: Connection, uuids: Iterable[str]) -> dict[str, Server]:
    """Those of the given living servers that exist. What a writer gets stays as it is until it commits."""
    found: dict[str, Server] = {}
    wanted = list(dict.fromkeys(uuids))
    query = _many(held=is_writer(conn))
    for batch in batches(wanted):
        found.update((server.uuid, server) for server in _load(conn, query, {"uuids": list(batch)}))
    return {uuid: found[uuid] for uuid in wanted if uuid in found}


def waiting(conn: Connection, uuids: Iterable[str]) -> frozenset[str]:
    """Those of the given servers that are alive, on no host yet, and not in ERROR: their claim is still to come."""
    found: set[str] = set()
    wanted = list(dict.fromkeys(uuids))
    for batch in batches(wanted):
        found.update(conn.execute(_WAITING, {"uuids": list(batch)}).scalars())
    return frozenset(found)


def by_name(conn: Connection, name: str, *, project_id: str | None = None) -> tuple[Server, ...]:
    """Living servers of exactly this name."""
    query = _select().where(_t.display_name == name, _t.deleted == 0)
    if project_id is not None:
        query = query.where(_t.project_id == project_id)
    return _load(conn, query.order_by(_t.id))


def of_host(conn: Connection, host: str) -> tuple[Server, ...]:
    """Living servers placed on a host."""
    return _load(conn, _OF_HOST, {"on": host})


def of_node(conn: Connection, compute_node_id: int) -> tuple[Server, ...]:
    """Living servers whose usage counts on a host."""
    return _load(conn, _select().where(_t.compute_node_id == compute_node_id, _t.deleted == 0).order_by(_t.id))


def find(conn: Connection, wanted: ServerFilter, page: Page = EVERYTHING) -> tuple[Server, ...]:
    """Newest first. The page's marker is a UUID. Raises ``Invalid`` for an unknown marker or sort key, and for a ``name_pattern`` that the
    database doesn't take."""
    query = _select().where(*conditions(wanted))
    with refused_pattern(wanted):
        return _load(conn, _ordered(conn, query, page))


def find_uuids(conn: Connection, wanted: ServerFilter, page: Page = EVERYTHING) -> tuple[str, ...]:
    """As ``find``, but only the UUIDs."""
    query = sa.select(_t.uuid).where(*conditions(wanted))
    with refused_pattern(wanted):
        return tuple(conn.execute(_ordered(conn, query, page)).scalars())


def _ordered(conn: Connection, query: Select[Any], page: Page) -> Select[Any]:
    return paged(
        conn,
        query,
        page,
        keys=COLUMNS,
        default=(("created_at", "desc"),),
        unique=_t.id,
        marker_column=_t.uuid,
    )


def counts_by_state(conn: Connection) -> dict[VmState, int]:
    """How many living servers are in each state."""
    query = sa.select(_t.vm_state, sa.func.count().label("servers")).where(_t.deleted == 0).group_by(_t.vm_state)
    return {VmState(row.vm_state): row.servers for row in conn.execute(query)}


def update(
    conn: Connection,
    uuid: str,
    *,
    expected_task_states: Collection[TaskState | None] | None = None,
    expected_vm_states: Collection[VmState] | None = None,
    now: datetime | None = None,
    **changes: Unpack[Changes],
) -> bool:
    """Change a living server in one statement, only if its states are among the expected ones (None: any). Answers whether it
    matched: False also when it doesn't exist."""
    query = _change(
        None if expected_task_states is None else frozenset(expected_task_states),
        None if expected_vm_states is None else frozenset(expected_vm_states),
    )
    return conn.execute(query, {"of": uuid, "updated_at": now or utcnow(), **changes}).rowcount == 1


def set_task_state(
    conn: Connection,
    uuid: str,
    expected: Collection[TaskState | None] | None,
    new: TaskState | None,
    *,
    now: datetime | None = None,
) -> bool:
    """As ``update`` of the task state alone: of two that try the same step, one gets True."""
    return update(conn, uuid, expected_task_states=expected, now=now, task_state=new)


def place(
    conn: Connection, uuid: str, host: str, node: str, compute_node_id: int, *, now: datetime | None = None
) -> bool:
    """The claim: from now on the server's CPUs, memory and disk count on this host. The host must have been locked before."""
    return update(conn, uuid, now=now, host=host, node=node, compute_node_id=compute_node_id)


def unplace(conn: Connection, uuid: str, *, now: datetime | None = None) -> bool:
    """Undoes ``place``. The host must have been locked before."""
    return update(conn, uuid, now=now, host=None, node=None, compute_node_id=None)


def soft_delete(conn: Connection, uuid: str, *, now: datetime | None = None) -> bool:
    """The server is gone: row kept with ``deleted = id``, its tags and NICs dropped, its unfinished actions ended. The host's row must have been
    locked before, since its usage ends here. Answers whether there was a living one."""
    at = now or utcnow()
    gone = conn.execute(_SOFT_DELETE, {"of": uuid, "at": at})
    server_labels.replace_tags(conn, uuid, ())
    interfaces.forget(conn, uuid)
    actions.finish_all(conn, uuid, now=at)
    return gone.rowcount == 1


def pci_requests(conn: Connection, uuid: str) -> tuple[PciRequest, ...]:
    """What the server asked for. Raises ``ServerNotFound``."""
    return requests_from_text(_extra(conn, uuid).pci_requests)


def set_pci_requests(conn: Connection, uuid: str, requests: Sequence[PciRequest]) -> None:
    conn.execute(_CHANGE_EXTRA, {"of": uuid, "pci_requests": requests_to_text(requests)})


def numa_topology(conn: Connection, uuid: str) -> GuestTopology | None:
    """As fitted by the claim; before it, as asked for. Raises ``ServerNotFound``."""
    return guest_topology_from_text(_extra(conn, uuid).numa_topology)


def set_numa_topology(conn: Connection, uuid: str, topology: GuestTopology | None) -> None:
    conn.execute(_CHANGE_EXTRA, {"of": uuid, "numa_topology": topology_to_text(topology)})


def keypair(conn: Connection, uuid: str) -> dict[str, str] | None:
    """The key as it was when the server was made. Raises ``ServerNotFound``."""
    value: dict[str, str] | None = decoded(_extra(conn, uuid).keypair)
    return value


def _extra(conn: Connection, uuid: str) -> Row[Any]:
    row = conn.execute(_EXTRA, {"uuid": uuid}).first()
    if row is None:
        raise ServerNotFound(server=uuid)
    return row


def _select(*, held: bool = False) -> Select[Any]:
    query = sa.select(instances, _x.flavor.label("flavor_json")).join(instance_extra, _x.instance_uuid == _t.uuid)
    # Writers run beside each other on PostgreSQL and MariaDB: of two that decide by the state of a server the second must see what the
    # first made of it.
    return query.with_for_update(of=instances) if held else query


# What an insert or an update sets is known by the names of the values it is run with.
_INSERT = instances.insert()
_INSERT_EXTRA = instance_extra.insert()
_CHANGE_EXTRA = instance_extra.update().where(_x.instance_uuid == sa.bindparam("of"))
_EXTRA = sa.select(instance_extra).where(_x.instance_uuid == sa.bindparam("uuid"))
_STATES = sa.select(_t.vm_state, _t.task_state).where(_t.uuid == sa.bindparam("uuid"), _t.deleted == 0)
_OF_HOST = _select().where(_t.host == sa.bindparam("on"), _t.deleted == 0).order_by(_t.id)
_WAITING = sa.select(_t.uuid).where(
    _t.uuid.in_(sa.bindparam("uuids", expanding=True)),
    _t.deleted == 0,
    _t.compute_node_id.is_(None),
    _t.vm_state != VmState.ERROR.value,
)
_AT: sa.BindParameter[datetime] = sa.bindparam("at", type_=sa.DateTime())
_SOFT_DELETE = (
    instances.update()
    .where(_t.uuid == sa.bindparam("of"), _t.deleted == 0)
    .values(
        deleted=_t.id,
        deleted_at=_AT,
        updated_at=_AT,
        terminated_at=sa.func.coalesce(_t.terminated_at, _AT),
        vm_state=VmState.DELETED.value,
        task_state=None,
        power_state=int(PowerState.NOSTATE),
    )
)


@cache
def _many(*, held: bool) -> Select[Any]:
    return _select(held=held).where(_t.uuid.in_(sa.bindparam("uuids", expanding=True)), _t.deleted == 0)


@cache
def _change(task_states: frozenset[TaskState | None] | None, vm_states: frozenset[VmState] | None) -> sa.Update:
    query = instances.update().where(_t.uuid == sa.bindparam("of"), _t.deleted == 0)
    if task_states is not None:
        query = query.where(in_task_states(task_states))
    if vm_states is not None:
        query = query.where(_t.vm_state.in_(sorted(state.value for state in vm_states)))
    return query


@cache
def _one(*, held: bool, of_project: bool, deleted_too: bool) -> Select[Any]:
    query = _select(held=held).where(_t.uuid == sa.bindparam("uuid"))
    if of_project:
        query = query.where(_t.project_id == sa.bindparam("project_id"))
    return query if deleted_too else query.where(_t.deleted == 0)


def _load(conn: Connection, query: Select[Any], values: Mapping[str, object] | None = None) -> tuple[Server, ...]:
    rows = conn.execute(query, values or {}).all()
    uuids = [row.uuid for row in rows]
    metadata = server_labels.metadata_of(conn, uuids)
    tags = server_labels.tags_of(conn, uuids)
    nics = interfaces.of_servers(conn, uuids)
    return tuple(
        _server(row, metadata.get(row.uuid, {}), tags.get(row.uuid, ()), nics.get(row.uuid, ())) for row in rows
    )


def _server(
    row: Row[Any], metadata: Mapping[str, str], tags: tuple[str, ...], nics: tuple[NetworkRequest, ...]
) -> Server:
    return Server(
        id=row.id,
        uuid=row.uuid,
        display_name=row.display_name,
        project_id=row.project_id,
        user_id=row.user_id,
        vm_state=VmState(row.vm_state),
        task_state=None if row.task_state is None else TaskState(row.task_state),
        power_state=PowerState(row.power_state),
        flavor=flavor_from_json(decoded(row.flavor_json)),
        image_ref=row.image_ref,
        created_at=row.created_at,
        updated_at=row.updated_at,
        launched_at=row.launched_at,
        terminated_at=row.terminated_at,
        host=row.host,
        node=row.node,
        compute_node_id=row.compute_node_id,
        key_name=row.key_name,
        user_data=row.user_data,
        config_drive=row.config_drive,
        display_description=row.display_description,
        hostname=row.hostname,
        availability_zone=row.availability_zone,
        reservation_id=row.reservation_id,
        launch_index=row.launch_index,
        locked=row.locked,
        locked_reason=row.locked_reason,
        metadata=metadata,
        tags=tags,
        networks=nics,
        request_id=row.request_id,
        deleted=row.deleted,
    )

"""NICs of servers: which ports they have, who has bound them, and which are being put in or taken out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.batches import Rows
from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables import virtual_interfaces
from jetbridge.model.server import NetworkRequest
from jetbridge.pci.port import VnicType

_t = virtual_interfaces.c

_OF_SERVERS = Rows(sa.select(virtual_interfaces).order_by(_t.id), _t.instance_uuid)
_OF_HOST = sa.select(virtual_interfaces).where(_t.host == sa.bindparam("at")).order_by(_t.id)
_UNSETTLED = sa.select(_t.instance_uuid).where(_t.task.is_not(None))


class Changes(TypedDict, total=False):
    """What ``update`` can change."""

    port_id: str | None
    mac: str
    host: str | None
    task: Literal["attach", "detach"] | None


_COLUMNS = {"port_id": "uuid", "mac": "address"}


def add(
    conn: Connection, server_uuid: str, nics: Iterable[NetworkRequest], *, now: datetime | None = None
) -> tuple[NetworkRequest, ...]:
    """Store NICs of a server after those it has; answers them with their ids."""
    at = now or utcnow()
    added = []
    for nic in nics:
        key = conn.execute(
            virtual_interfaces.insert().values(
                instance_uuid=server_uuid,
                address=nic.mac,
                network=nic.network,
                network_id=nic.network_id,
                uuid=nic.port_id,
                tag=nic.tag,
                vnic_type=nic.vnic_type.value,
                request_id=nic.request_id,
                made=nic.made,
                fixed_ips=canonical(list(nic.fixed_ips)),
                host=nic.host,
                task=nic.task,
                created_at=at,
            )
        ).inserted_primary_key
        assert key is not None
        added.append(replace(nic, id=key[0]))
    return tuple(added)


def of_servers(conn: Connection, uuids: Sequence[str]) -> dict[str, tuple[NetworkRequest, ...]]:
    """By server, in order, without those that are still being put in; servers without any are left out."""
    found: dict[str, list[NetworkRequest]] = {}
    for row in _OF_SERVERS.among(conn, uuids):
        if row.task != "attach":
            found.setdefault(row.instance_uuid, []).append(_nic(row))
    return {uuid: tuple(nics) for uuid, nics in found.items()}


def of_server(conn: Connection, uuid: str) -> tuple[NetworkRequest, ...]:
    """All of them, in order, those being put in too."""
    return tuple(_nic(row) for row in _OF_SERVERS.among(conn, [uuid]))


def of_host(conn: Connection, host: str) -> Mapping[str, tuple[NetworkRequest, ...]]:
    """By server, what a host has bound or was about to, whether the server is still there or not."""
    found: dict[str, list[NetworkRequest]] = {}
    for row in conn.execute(_OF_HOST, {"at": host}):
        found.setdefault(row.instance_uuid, []).append(_nic(row))
    return {uuid: tuple(nics) for uuid, nics in found.items()}


def unsettled(conn: Connection) -> frozenset[str]:
    """Servers with NICs that are being put in or taken out."""
    return frozenset(conn.execute(_UNSETTLED).scalars())


def holder(conn: Connection, port_id: str) -> str | None:
    """The server that has a port as a NIC, or is getting it."""
    return conn.execute(sa.select(_t.instance_uuid).where(_t.uuid == port_id)).scalar()


def update(conn: Connection, nic_id: int, *, now: datetime | None = None, **changes: Unpack[Changes]) -> bool:
    """Whether there was such a NIC."""
    values: dict[str, Any] = {_COLUMNS.get(name, name): value for name, value in changes.items()}
    query = virtual_interfaces.update().where(_t.id == nic_id)
    return conn.execute(query.values(updated_at=now or utcnow(), **values)).rowcount == 1


def delete(conn: Connection, nic_id: int) -> bool:
    """Whether there was such a NIC."""
    return conn.execute(virtual_interfaces.delete().where(_t.id == nic_id)).rowcount == 1


def forget(conn: Connection, server_uuid: str) -> None:
    """The NICs of a server that is gone, except those that a host still has to release."""
    conn.execute(virtual_interfaces.delete().where(_t.instance_uuid == server_uuid, _t.host.is_(None)))


def _nic(row: Row[Any]) -> NetworkRequest:
    return NetworkRequest(
        network=row.network,
        mac=row.address,
        tag=row.tag,
        network_id=row.network_id,
        port_id=row.uuid,
        vnic_type=VnicType(row.vnic_type),
        request_id=row.request_id,
        made=row.made,
        fixed_ips=tuple(decoded(row.fixed_ips)),
        host=row.host,
        task=row.task,
        id=row.id,
    )

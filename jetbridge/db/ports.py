"""Ports of the embedded Network API."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.connection import is_writer
from jetbridge.db.tables import ports
from jetbridge.errors import Conflict, NotFound
from jetbridge.model.network import Port
from jetbridge.pci.port import VnicType
from jetbridge.pci.request import NumaPolicy

_t = ports.c


def create(conn: Connection, port: Port, *, now: datetime | None = None) -> None:
    """Raises ``Conflict`` when the network has the MAC address already."""
    _check_mac(conn, port)
    conn.execute(ports.insert().values(**_columns(port), created_at=now or utcnow()))


def save(conn: Connection, port: Port, *, now: datetime | None = None) -> None:
    """Replace a stored port. Raises ``NotFound``, and ``Conflict`` as ``create``."""
    _check_mac(conn, port)
    query = ports.update().where(_t.id == port.id).values(**_columns(port), updated_at=now or utcnow())
    if conn.execute(query).rowcount == 0:
        raise NotFound(noun="Port", key=port.id)


def get(conn: Connection, port_id: str) -> Port:
    """What a writer gets stays as it is until it commits. Raises ``NotFound``."""
    query = sa.select(ports).where(_t.id == port_id)
    row = conn.execute(query.with_for_update() if is_writer(conn) else query).first()
    if row is None:
        raise NotFound(noun="Port", key=port_id)
    return _port(row)


def listing(
    conn: Connection, *, project_id: str | None = None, device_id: str | None = None, host: str | None = None
) -> tuple[Port, ...]:
    """Oldest first; of one project, of one server, of one host (None: of any)."""
    query = sa.select(ports)
    if project_id is not None:
        query = query.where(_t.project_id == project_id)
    if device_id is not None:
        query = query.where(_t.device_id == device_id)
    if host is not None:
        query = query.where(_t.host == host)
    return tuple(_port(row) for row in conn.execute(query.order_by(_t.created_at, _t.id)))


def of_network(conn: Connection, network_id: str) -> int:
    """How many ports a network has."""
    return conn.execute(sa.select(sa.func.count()).select_from(ports).where(_t.network_id == network_id)).scalar_one()


def delete(conn: Connection, port_id: str) -> bool:
    """Whether there was one."""
    return conn.execute(ports.delete().where(_t.id == port_id)).rowcount == 1


def _check_mac(conn: Connection, port: Port) -> None:
    query = sa.select(_t.id).where(_t.network_id == port.network_id, _t.mac_address == port.mac, _t.id != port.id)
    if (other := conn.execute(query).scalar()) is not None:
        raise Conflict(f"Port {other} of network {port.network_id} has the MAC address {port.mac} already.")


def _columns(port: Port) -> dict[str, Any]:
    return {
        "id": port.id,
        "name": port.name,
        "network_id": port.network_id,
        "project_id": port.project_id,
        "mac_address": port.mac,
        "description": port.description,
        "admin_state_up": port.admin_state_up,
        "device_id": port.device_id,
        "device_owner": port.device_owner,
        "fixed_ips": canonical(list(port.fixed_ips)),
        "vnic_type": port.vnic_type.value,
        "profile": canonical(dict(port.profile)),
        "host": port.host,
        "vif_type": port.vif_type,
        "vif_details": canonical(dict(port.vif_details)),
        "numa_affinity_policy": port.numa_policy.value if port.numa_policy else None,
        "device_profile": port.device_profile,
    }


def _port(row: Row[Any]) -> Port:
    return Port(
        id=row.id,
        network_id=row.network_id,
        project_id=row.project_id,
        mac=row.mac_address,
        name=row.name,
        vnic_type=VnicType(row.vnic_type),
        profile=decoded(row.profile),
        host=row.host,
        device_id=row.device_id,
        device_owner=row.device_owner,
        vif_type=row.vif_type,
        vif_details=decoded(row.vif_details),
        fixed_ips=tuple(decoded(row.fixed_ips)),
        numa_policy=NumaPolicy(row.numa_affinity_policy) if row.numa_affinity_policy else None,
        device_profile=row.device_profile,
        description=row.description,
        admin_state_up=row.admin_state_up,
    )

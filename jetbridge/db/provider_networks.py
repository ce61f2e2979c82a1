"""Networks that somebody made, with what they are on the wire. Which networks hosts have is ``db.networks``."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict, Unpack

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.tables import networks
from jetbridge.errors import Conflict, NotFound
from jetbridge.model.network import Network

_t = networks.c


class Changes(TypedDict, total=False):
    """What ``update`` can change."""

    shared: bool
    description: str


def create(conn: Connection, network: Network, *, now: datetime | None = None) -> None:
    """Raises ``Conflict`` when the name is taken."""
    if conn.execute(sa.select(_t.id).where(_t.name == network.name)).first() is not None:
        raise Conflict(f"There is a network of the name {network.name!r} already: a network is its name here.")
    conn.execute(
        networks.insert().values(
            id=network.id,
            name=network.name,
            project_id=network.project_id,
            shared=network.shared,
            network_type=network.network_type,
            physical_network=network.physical_network,
            segmentation_id=network.segmentation_id,
            description=network.description,
            created_at=now or utcnow(),
        )
    )


def listing(conn: Connection) -> tuple[Network, ...]:
    """All of them, by name."""
    return tuple(_network(row) for row in conn.execute(sa.select(networks).order_by(_t.name)))


def update(conn: Connection, network_id: str, *, now: datetime | None = None, **changes: Unpack[Changes]) -> None:
    """Raises ``NotFound``."""
    query = networks.update().where(_t.id == network_id).values(updated_at=now or utcnow(), **changes)
    if conn.execute(query).rowcount == 0:
        raise NotFound(noun="Network", key=network_id)


def delete(conn: Connection, network_id: str) -> None:
    """Raises ``NotFound``."""
    if conn.execute(networks.delete().where(_t.id == network_id)).rowcount == 0:
        raise NotFound(noun="Network", key=network_id)


def _network(row: Row[Any]) -> Network:
    return Network(
        id=row.id,
        name=row.name,
        project_id=row.project_id,
        shared=row.shared,
        network_type=row.network_type,
        physical_network=row.physical_network,
        segmentation_id=row.segmentation_id,
        description=row.description,
    )

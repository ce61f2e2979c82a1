"""Servers that may have an allocation in Placement: noted before one is written, forgotten after it is taken back."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from jetbridge.db.batches import Rows
from jetbridge.db.clock import utcnow
from jetbridge.db.tables import builds, instances
from jetbridge.db.tables_providers import placement_consumers

_c = placement_consumers.c


def note(conn: Connection, instance_uuid: str, *, now: datetime | None = None) -> None:
    """From now on; again: nothing happens."""
    if conn.execute(_KNOWN, {"server": instance_uuid}).first() is None:
        conn.execute(_NOTE, {"instance_uuid": instance_uuid, "created_at": now or utcnow()})


def forget(conn: Connection, instance_uuid: str) -> None:
    conn.execute(_FORGET, {"server": instance_uuid})


def forget_unless_building(conn: Connection, instance_uuid: str) -> None:
    """For those who don't know: a scheduler that still works on a build of the server may yet write an allocation."""
    conn.execute(
        placement_consumers.delete().where(_c.instance_uuid == instance_uuid, _c.instance_uuid.not_in(_building()))
    )


def entitled(conn: Connection, instance_uuids: Collection[str]) -> frozenset[str]:
    """Those of the servers that have a right to an allocation: they live, and are on a host or being built."""
    return frozenset(row.uuid for row in _ENTITLED.among(conn, list(instance_uuids)))


def abandoned(conn: Connection) -> tuple[str, ...]:
    """Servers that may have an allocation and have no right to one, those noted first first."""
    query = sa.select(_c.instance_uuid).where(_c.instance_uuid.not_in(_living())).order_by(_c.created_at)
    return tuple(conn.execute(query).scalars())


def _living() -> sa.Select[Any]:
    on_a_host_or_soon = sa.or_(instances.c.compute_node_id.is_not(None), instances.c.uuid.in_(_building()))
    return sa.select(instances.c.uuid).where(instances.c.deleted == 0, on_a_host_or_soon)


def _building() -> sa.Select[Any]:
    return sa.select(builds.c.instance_uuid).where(builds.c.state == "running", builds.c.kind == "build")


_KNOWN = sa.select(_c.instance_uuid).where(_c.instance_uuid == sa.bindparam("server"))
_NOTE = placement_consumers.insert()
_FORGET = placement_consumers.delete().where(_c.instance_uuid == sa.bindparam("server"))
_ENTITLED = Rows(_living(), instances.c.uuid)

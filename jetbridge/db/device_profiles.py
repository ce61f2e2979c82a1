"""Device profiles: what flavors ask the accelerator service for, by name."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables_accelerator import device_profiles
from jetbridge.errors import Conflict, NotFound
from jetbridge.model.accelerator import DeviceProfile

_t = device_profiles.c


def create(conn: Connection, profile: DeviceProfile, *, now: datetime | None = None) -> DeviceProfile:
    """Raises ``Conflict`` when there is one of that name or UUID."""
    for what, column, value in (("name", _t.name, profile.name), ("UUID", _t.uuid, profile.uuid)):
        if conn.execute(sa.select(_t.id).where(column == value)).first() is not None:
            raise Conflict(
                f"A device profile with {what} {value!r} already exists: choose another {what}, or delete that one first"
                f" (openstack accelerator device profile delete)"
            )
    conn.execute(
        device_profiles.insert().values(
            uuid=profile.uuid,
            name=profile.name,
            description=profile.description,
            groups=canonical([dict(group) for group in profile.groups]),
            created_at=now or utcnow(),
        )
    )
    return get(conn, profile.uuid)


def get(conn: Connection, key: str) -> DeviceProfile:
    """By UUID or name. Raises ``NotFound``."""
    row = conn.execute(sa.select(device_profiles).where(sa.or_(_t.uuid == key, _t.name == key))).first()
    if row is None:
        raise NotFound(noun="Device profile", key=key)
    return _profile(row)


def listing(conn: Connection, names: Collection[str] | None = None) -> tuple[DeviceProfile, ...]:
    """By name; ``names``: only those."""
    query = sa.select(device_profiles).order_by(_t.name)
    if names is not None:
        query = query.where(_t.name.in_(sorted(names)))
    return tuple(_profile(row) for row in conn.execute(query))


def delete(conn: Connection, key: str) -> None:
    """By UUID or name. Requests made of it keep their own copy of its group. Raises ``NotFound``."""
    found = get(conn, key)
    conn.execute(device_profiles.delete().where(_t.uuid == found.uuid))


def _profile(row: Row[Any]) -> DeviceProfile:
    return DeviceProfile(
        uuid=row.uuid,
        name=row.name,
        groups=tuple(decoded(row.groups)),
        description=row.description,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )

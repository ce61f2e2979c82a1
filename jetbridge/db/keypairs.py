"""Public keys of users."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.paging import EVERYTHING, Page, paged
from jetbridge.db.tables import key_pairs
from jetbridge.errors import Conflict, NotFound

_t = key_pairs.c


@dataclass(frozen=True)
class KeyPair:
    """``type``: ssh or x509."""

    name: str
    user_id: str
    type: str
    fingerprint: str
    public_key: str
    id: int = 0
    created_at: datetime | None = None


def create(conn: Connection, pair: KeyPair, *, now: datetime | None = None) -> KeyPair:
    """Raises ``Conflict`` when the user has one of that name."""
    taken = sa.select(_t.id).where(_t.user_id == pair.user_id, _t.name == pair.name)
    if conn.execute(taken).first() is not None:
        raise Conflict(f"Key pair '{pair.name}' already exists.")
    conn.execute(
        key_pairs.insert().values(
            name=pair.name,
            user_id=pair.user_id,
            type=pair.type,
            fingerprint=pair.fingerprint,
            public_key=pair.public_key,
            created_at=now or utcnow(),
        )
    )
    return get(conn, pair.user_id, pair.name)


def get(conn: Connection, user_id: str, name: str) -> KeyPair:
    """Raises ``NotFound``."""
    row = conn.execute(sa.select(key_pairs).where(_t.user_id == user_id, _t.name == name)).first()
    if row is None:
        raise NotFound(f"Keypair {name} not found for user {user_id}")
    return _pair(row)


def find(conn: Connection, user_id: str, page: Page = EVERYTHING) -> tuple[KeyPair, ...]:
    """By name; the page's marker is a name. Raises ``Invalid`` for an unknown marker."""
    query = paged(
        conn,
        sa.select(key_pairs).where(_t.user_id == user_id),
        page,
        keys={"name": _t.name},
        default=(("name", "asc"),),
        unique=_t.id,
        marker_column=_t.name,
    )
    return tuple(_pair(row) for row in conn.execute(query))


def delete(conn: Connection, user_id: str, name: str) -> None:
    """Raises ``NotFound``. Servers keep their own copy of the key."""
    if conn.execute(key_pairs.delete().where(_t.user_id == user_id, _t.name == name)).rowcount == 0:
        raise NotFound(f"Keypair {name} not found for user {user_id}")


def _pair(row: Row[Any]) -> KeyPair:
    return KeyPair(
        name=row.name,
        user_id=row.user_id,
        type=row.type,
        fingerprint=row.fingerprint,
        public_key=row.public_key,
        id=row.id,
        created_at=row.created_at,
    )

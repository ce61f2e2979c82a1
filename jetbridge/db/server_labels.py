"""What hangs on servers as text: metadata and tags."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from jetbridge.db.batches import Rows
from jetbridge.db.tables import instance_metadata, tags

_m = instance_metadata.c

_METADATA = Rows(sa.select(_m.instance_uuid, _m.key, _m.value).order_by(_m.key), _m.instance_uuid)
_TAGS = Rows(sa.select(tags.c.resource_id, tags.c.tag).order_by(tags.c.tag), tags.c.resource_id)
_NO_TAGS = tags.delete().where(tags.c.resource_id == sa.bindparam("server"))


def metadata_of(conn: Connection, uuids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Metadata by server; servers without any are left out."""
    found: dict[str, dict[str, str]] = {}
    for row in _METADATA.among(conn, uuids):
        found.setdefault(row.instance_uuid, {})[row.key] = row.value
    return found


def set_metadata(conn: Connection, uuid: str, values: Mapping[str, str], *, replace: bool = False) -> None:
    """Adds or replaces the given keys; with ``replace`` the others go."""
    gone = instance_metadata.delete().where(_m.instance_uuid == uuid)
    conn.execute(gone if replace else gone.where(_m.key.in_(list(values))))
    if values:
        rows = [{"instance_uuid": uuid, "key": key, "value": value} for key, value in values.items()]
        conn.execute(instance_metadata.insert(), rows)


def delete_metadata(conn: Connection, uuid: str, key: str) -> bool:
    """Whether there was such a key."""
    gone = conn.execute(instance_metadata.delete().where(_m.instance_uuid == uuid, _m.key == key))
    return gone.rowcount == 1


def tags_of(conn: Connection, uuids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Tags by server, sorted; servers without any are left out."""
    found: dict[str, list[str]] = {}
    for row in _TAGS.among(conn, uuids):
        found.setdefault(row.resource_id, []).append(row.tag)
    return {uuid: tuple(values) for uuid, values in found.items()}


def replace_tags(conn: Connection, uuid: str, values: Iterable[str]) -> None:
    conn.execute(_NO_TAGS, {"server": uuid})
    rows = [{"resource_id": uuid, "tag": tag} for tag in dict.fromkeys(values)]
    if rows:
        conn.execute(tags.insert(), rows)


def tag_conditions(
    uuid: sa.Column[Any],
    all_of: Collection[str] | None,
    any_of: Collection[str] | None,
    not_all_of: Collection[str] | None,
    not_any_of: Collection[str] | None,
) -> list[sa.ColumnElement[bool]]:
    """Conditions on a query over servers whose UUID is ``uuid``."""

    def having(wanted: Collection[str], least: int) -> sa.ColumnElement[bool]:
        query = sa.select(tags.c.resource_id).where(tags.c.tag.in_(sorted(wanted))).group_by(tags.c.resource_id)
        return uuid.in_(query.having(sa.func.count() >= least))

    conditions: list[sa.ColumnElement[bool]] = []
    if all_of:
        conditions.append(having(all_of, len(all_of)))
    if any_of:
        conditions.append(having(any_of, 1))
    if not_all_of:
        conditions.append(sa.not_(having(not_all_of, len(not_all_of))))
    if not_any_of:
        conditions.append(sa.not_(having(not_any_of, 1)))
    return conditions

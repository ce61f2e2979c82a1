"""Which servers a list shows."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from jetbridge.db import server_labels
from jetbridge.db.retry import first_line
from jetbridge.db.tables import instances
from jetbridge.errors import Invalid
from jetbridge.model.server import PowerState, TaskState, VmState

_t = instances.c

COLUMNS: dict[str, sa.Column[Any]] = {
    "created_at": _t.created_at,
    "updated_at": _t.updated_at,
    "launched_at": _t.launched_at,
    "terminated_at": _t.terminated_at,
    "display_name": _t.display_name,
    "display_description": _t.display_description,
    "uuid": _t.uuid,
    "host": _t.host,
    "node": _t.node,
    "hostname": _t.hostname,
    "vm_state": _t.vm_state,
    "task_state": _t.task_state,
    "power_state": _t.power_state,
    "image_ref": _t.image_ref,
    "key_name": _t.key_name,
    "availability_zone": _t.availability_zone,
    "project_id": _t.project_id,
    "user_id": _t.user_id,
    "launch_index": _t.launch_index,
}
SORT_KEYS = frozenset(COLUMNS)


@dataclass(frozen=True)
class ServerFilter:
    """None: not asked for. ``name`` matches a part of the display name, letter case ignored. ``deleted``: only deleted ones (True),
    only living ones (False), both (None). ``name_pattern`` is a regular expression found in the display name, letter case ignored."""

    project_id: str | None = None
    user_id: str | None = None
    name: str | None = None
    name_pattern: str | None = None
    uuids: frozenset[str] | None = None
    host: str | None = None
    node: str | None = None
    vm_states: frozenset[VmState] | None = None
    task_states: frozenset[TaskState | None] | None = None
    power_state: PowerState | None = None
    flavorid: str | None = None
    image_ref: str | None = None
    key_name: str | None = None
    hostname: str | None = None
    availability_zone: str | None = None
    reservation_id: str | None = None
    locked: bool | None = None
    changes_since: datetime | None = None
    changes_before: datetime | None = None
    tags: frozenset[str] | None = None  # has all of them
    tags_any: frozenset[str] | None = None
    not_tags: frozenset[str] | None = None
    not_tags_any: frozenset[str] | None = None
    deleted: bool | None = False


def conditions(wanted: ServerFilter) -> list[sa.ColumnElement[bool]]:
    """On a query over ``instances``."""
    equal: dict[sa.Column[Any], Any] = {
        _t.project_id: wanted.project_id,
        _t.user_id: wanted.user_id,
        _t.host: wanted.host,
        _t.node: wanted.node,
        _t.flavorid: wanted.flavorid,
        _t.image_ref: wanted.image_ref,
        _t.key_name: wanted.key_name,
        _t.hostname: wanted.hostname,
        _t.availability_zone: wanted.availability_zone,
        _t.reservation_id: wanted.reservation_id,
        _t.locked: wanted.locked,
        _t.power_state: None if wanted.power_state is None else int(wanted.power_state),
    }
    found: list[sa.ColumnElement[bool]] = [column == value for column, value in equal.items() if value is not None]
    if wanted.deleted is not None:
        found.append(_t.deleted != 0 if wanted.deleted else _t.deleted == 0)
    if wanted.name is not None:
        found.append(sa.func.lower(_t.display_name).contains(wanted.name.lower(), autoescape=True))
    if wanted.name_pattern is not None:
        found.append(_t.display_name.regexp_match(f"(?i){wanted.name_pattern}"))
    if wanted.uuids is not None:
        found.append(_t.uuid.in_(sorted(wanted.uuids)))
    if wanted.vm_states is not None:
        found.append(_t.vm_state.in_(sorted(state.value for state in wanted.vm_states)))
    if wanted.task_states is not None:
        found.append(in_task_states(wanted.task_states))
    touched = sa.func.coalesce(_t.updated_at, _t.created_at)
    if wanted.changes_since is not None:
        found.append(touched >= wanted.changes_since)
    if wanted.changes_before is not None:
        found.append(touched <= wanted.changes_before)
    found += server_labels.tag_conditions(_t.uuid, wanted.tags, wanted.tags_any, wanted.not_tags, wanted.not_tags_any)
    return found


@contextmanager
def refused_pattern(wanted: ServerFilter) -> Iterator[None]:
    """Around a query with ``conditions``: a regular expression that its database doesn't take is the caller's mistake. Which ones it takes
    differs: PostgreSQL's are POSIX's with additions, MariaDB's PCRE's, SQLite's those of Python. Raises ``Invalid``."""
    try:
        yield
    except DBAPIError as error:
        if wanted.name_pattern is None or not _is_about_pattern(error.orig):
            raise
        raise Invalid(
            f"Invalid regular expression {wanted.name_pattern!r} for the names of servers: the database does not take it"
            f" ({first_line(error)}). Use characters, ., [...], |, (...), *, + and ? only."
        ) from error


def _is_about_pattern(error: BaseException | None) -> bool:
    """https://www.postgresql.org/docs/current/errcodes-appendix.html: invalid_regular_expression;
    https://mariadb.com/kb/en/mariadb-error-codes/: ER_REGEXP_ERROR."""
    if isinstance(error, sqlite3.Error):
        return "user-defined function" in str(error)  # SQLAlchemy's REGEXP for SQLite is the one we have
    arguments: tuple[object, ...] = getattr(error, "args", ())
    return getattr(error, "sqlstate", None) == "2201B" or arguments[:1] == (1139,)


def in_task_states(states: Collection[TaskState | None]) -> sa.ColumnElement[bool]:
    named = _t.task_state.in_(sorted(state.value for state in states if state is not None))
    return sa.or_(_t.task_state.is_(None), named) if None in states else named

"""What was done to a server, by which request, and the events each action consisted of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.tables import instance_actions, instance_actions_events, instances
from jetbridge.errors import NotFound

_a = instance_actions.c
_e = instance_actions_events.c

_AT: sa.BindParameter[Any] = sa.bindparam("at")
_ACTION_ID = sa.select(sa.func.max(_a.id)).where(
    _a.instance_uuid == sa.bindparam("server"), _a.request_id == sa.bindparam("request")
)
_START = instance_actions.insert()
_END_ALL = instance_actions.update().where(_a.instance_uuid == sa.bindparam("server"), _a.finish_time.is_(None))
_END = _END_ALL.where(_a.request_id == sa.bindparam("request"))
_END_EVENTS = instance_actions_events.update().where(
    _e.action_id.in_(sa.select(_a.id).where(_a.instance_uuid == sa.bindparam("server"))), _e.finish_time.is_(None)
)
_START_EVENT = instance_actions_events.insert()
_NEWEST_EVENT = sa.select(sa.func.max(_e.id)).where(
    _e.action_id == sa.bindparam("b_action"), _e.event == sa.bindparam("of")
)
_END_EVENT = (
    instance_actions_events.update()
    .where(_e.id == sa.bindparam("newest"))
    .values(finish_time=_AT, result=sa.bindparam("how"), details=sa.bindparam("why"))
)
_TOUCH = instance_actions.update().where(_a.id == sa.bindparam("b_action")).values(updated_at=_AT)
_FAIL = _TOUCH.values(message="Error")


@dataclass(frozen=True)
class Action:
    """``message`` is set when it failed ("Error")."""

    id: int
    instance_uuid: str
    action: str
    request_id: str
    user_id: str | None
    project_id: str | None
    start_time: datetime
    finish_time: datetime | None
    message: str | None
    updated_at: datetime | None


@dataclass(frozen=True)
class ActionEvent:
    """``result``: Success, Error, or None while it runs. ``details``: why it failed."""

    event: str
    start_time: datetime
    finish_time: datetime | None
    result: str | None
    details: str | None
    host: str | None


def start(
    conn: Connection,
    instance_uuid: str,
    action: str,
    request_id: str,
    *,
    user_id: str | None = None,
    project_id: str | None = None,
    now: datetime | None = None,
) -> int:
    """The action's id. ``action``: create, delete, start, stop, reboot."""
    at = now or utcnow()
    row = {
        "instance_uuid": instance_uuid,
        "action": action,
        "request_id": request_id,
        "user_id": user_id,
        "project_id": project_id,
        "start_time": at,
        "created_at": at,
        "updated_at": at,
    }
    result = conn.execute(_START, row)
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])


def finish(
    conn: Connection, instance_uuid: str, request_id: str, *, error: str | None = None, now: datetime | None = None
) -> None:
    """End the request's action on a server; ``error``: it failed. One that has ended stays as it ended: the message that ends it may
    come twice."""
    at = now or utcnow()
    values: dict[str, Any] = {"finish_time": at, "updated_at": at}
    if error is not None:
        values["message"] = "Error"
    conn.execute(_END, {"server": instance_uuid, "request": request_id, **values})


def finish_all(conn: Connection, instance_uuid: str, *, error: str | None = None, now: datetime | None = None) -> None:
    """End what is unfinished of a server's actions, whoever asked for them: nobody goes on with any. ``error``: they failed."""
    at = now or utcnow()
    ended: dict[str, Any] = {"finish_time": at}
    if error is not None:
        ended |= {"result": "Error", "details": error}
    conn.execute(_END_EVENTS, {"server": instance_uuid, **ended})
    values: dict[str, Any] = {"finish_time": at, "updated_at": at}
    if error is not None:
        values["message"] = "Error"
    conn.execute(_END_ALL, {"server": instance_uuid, **values})


def forgotten(
    conn: Connection, *, compute_node_id: int | None = None, before: datetime | None = None
) -> Mapping[str, str | None]:
    """Servers that are in no task though one of their requests has no answer, with their hosts: nobody will give it by that task's end.
    ``compute_node_id``: of this host (None: of any); ``before``: asked before then (None: ever)."""
    at = instances.c
    query = (
        sa.select(at.uuid, at.host)
        .join(instance_actions, _a.instance_uuid == at.uuid)
        .where(at.deleted == 0, at.task_state.is_(None), _a.finish_time.is_(None))
    )
    if compute_node_id is not None:
        query = query.where(at.compute_node_id == compute_node_id)
    if before is not None:
        query = query.where(_a.start_time < before)
    return {row.uuid: row.host for row in conn.execute(query)}


def is_answered(conn: Connection, instance_uuid: str, request_id: str) -> bool:
    """Whether the request's action on the server has ended. Without a recorded action it hasn't."""
    query = sa.select(_a.finish_time).where(_a.id == _action_id(conn, instance_uuid, request_id))
    return conn.execute(query).scalar() is not None


def start_event(
    conn: Connection,
    instance_uuid: str,
    request_id: str,
    event: str,
    *,
    host: str | None = None,
    now: datetime | None = None,
) -> None:
    """``event``: conductor_build_servers, compute_build_server, ... Without a recorded action nothing is kept."""
    action_id = _action_id(conn, instance_uuid, request_id)
    if action_id is None:
        return
    at = now or utcnow()
    conn.execute(_START_EVENT, {"action_id": action_id, "event": event, "start_time": at, "host": host})
    conn.execute(_TOUCH, {"b_action": action_id, "at": at})


def finish_event(
    conn: Connection,
    instance_uuid: str,
    request_id: str,
    event: str,
    *,
    result: Literal["Success", "Error"] = "Success",
    details: str | None = None,
    now: datetime | None = None,
) -> None:
    """Ends the newest event of that name. An event that failed marks its action as failed."""
    action_id = _action_id(conn, instance_uuid, request_id)
    if action_id is None:
        return
    at = now or utcnow()
    newest_id = conn.execute(_NEWEST_EVENT, {"b_action": action_id, "of": event}).scalar()
    if newest_id is not None:
        conn.execute(_END_EVENT, {"newest": newest_id, "at": at, "how": result, "why": details})
    conn.execute(_FAIL if result == "Error" else _TOUCH, {"b_action": action_id, "at": at})


def of_server(conn: Connection, instance_uuid: str, *, limit: int | None = None) -> tuple[Action, ...]:
    """Newest first."""
    query = sa.select(instance_actions).where(_a.instance_uuid == instance_uuid).order_by(_a.id.desc())
    return tuple(_action(row) for row in conn.execute(query if limit is None else query.limit(limit)))


def get(conn: Connection, instance_uuid: str, request_id: str) -> tuple[Action, tuple[ActionEvent, ...]]:
    """The request's action with its events, newest first. Raises ``NotFound``."""
    query = sa.select(instance_actions).where(_a.instance_uuid == instance_uuid, _a.request_id == request_id)
    row = conn.execute(query.order_by(_a.id.desc())).first()
    if row is None:
        raise NotFound(f"Action for request_id {request_id} on instance {instance_uuid} not found")
    return _action(row), events_of(conn, [row.id]).get(row.id, ())


def events_of(conn: Connection, action_ids: Sequence[int]) -> dict[int, tuple[ActionEvent, ...]]:
    """Events by action, newest first."""
    if not action_ids:
        return {}
    query = sa.select(instance_actions_events).where(_e.action_id.in_(list(action_ids))).order_by(_e.id.desc())
    found: dict[int, list[ActionEvent]] = {}
    for row in conn.execute(query):
        event = ActionEvent(row.event, row.start_time, row.finish_time, row.result, row.details, row.host)
        found.setdefault(row.action_id, []).append(event)
    return {action_id: tuple(events) for action_id, events in found.items()}


def _action_id(conn: Connection, instance_uuid: str, request_id: str) -> int | None:
    found: int | None = conn.execute(_ACTION_ID, {"server": instance_uuid, "request": request_id}).scalar()
    return found


def _action(row: Row[Any]) -> Action:
    return Action(
        id=row.id,
        instance_uuid=row.instance_uuid,
        action=row.action,
        request_id=row.request_id,
        user_id=row.user_id,
        project_id=row.project_id,
        start_time=row.start_time,
        finish_time=row.finish_time,
        message=row.message,
        updated_at=row.updated_at,
    )

"""``os-instance-actions``: what was done to a server, and how it went. Works for deleted servers from 2.21 on."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from jetbridge.api.call import Call, ComputeCall
from jetbridge.api.paging import Listing, cut, next_link, page_of, refuse_unknown
from jetbridge.api.server_views import host_id, microseconds
from jetbridge.api.times import parse_time
from jetbridge.db import actions as db
from jetbridge.db import servers
from jetbridge.db.actions import Action, ActionEvent
from jetbridge.db.connection import Connection
from jetbridge.errors import Invalid, NotFound
from jetbridge.model.server import Server

router = APIRouter(tags=["servers"])

DELETED_SINCE = 21
EVENTS_FOR_ALL_SINCE = 51
PAGES_SINCE = 58


class ActionListing(Listing):
    changes_since: Annotated[str | None, Query(alias="changes-since")] = None
    changes_before: Annotated[str | None, Query(alias="changes-before")] = None


def _server(call: Call, conn: Connection, server_id: str) -> Server:
    project = None if call.context.is_admin else call.context.project
    return servers.get(conn, server_id, project_id=project, deleted_too=call.at_least(DELETED_SINCE))


@router.get("/servers/{server_id}/os-instance-actions")
def index(
    server_id: str, listing: Annotated[ActionListing, Query()], request: Request, call: ComputeCall
) -> dict[str, Any]:
    refuse_unknown(call, request.query_params, {"limit", "marker", "changes-since", "changes-before"})
    with call.services.database.read() as conn:
        found = list(db.of_server(conn, _server(call, conn, server_id).uuid))
    if not call.at_least(PAGES_SINCE):
        return {"instanceActions": [_action(call, action) for action in found]}
    since, before = (
        parse_time("changes-since", listing.changes_since),
        parse_time("changes-before", listing.changes_before),
    )
    page = page_of(listing, {})
    rows = [action for action in _after(found, listing.marker) if _touched_within(action, since, before)]
    shown, more = cut(rows, page)
    answer: dict[str, Any] = {"instanceActions": [_action(call, action) for action in shown]}
    if more:
        path = f"/servers/{server_id}/os-instance-actions"
        answer["links"] = next_link(request, call, path, shown[-1].request_id)
    return answer


def _after(found: list[Action], marker: str | None) -> list[Action]:
    if marker is None:
        return found
    for position, action in enumerate(found):
        if action.request_id == marker:
            return found[position + 1 :]
    raise Invalid(f"marker [{marker}] not found: give the request id of an action of this server.")


def _touched_within(action: Action, since: datetime | None, before: datetime | None) -> bool:
    touched = action.updated_at or action.start_time
    return (since is None or touched >= since) and (before is None or touched <= before)


@router.get("/servers/{server_id}/os-instance-actions/{request_id}")
def show(server_id: str, request_id: str, call: ComputeCall) -> dict[str, Any]:
    with call.services.database.read() as conn:
        server = _server(call, conn, server_id)
        try:
            action, events = db.get(conn, server.uuid, request_id)
        except NotFound:
            raise NotFound(f"Action {request_id} not found on server {server_id}.") from None
    shown = _action(call, action)
    if call.context.is_admin or call.at_least(EVENTS_FOR_ALL_SINCE):
        shown["events"] = [_event(call, server, event) for event in events]
    return {"instanceAction": shown}


def _action(call: Call, action: Action) -> dict[str, Any]:
    return call.shape(
        "action",
        {
            "action": action.action,
            "instance_uuid": action.instance_uuid,
            "request_id": action.request_id,
            "user_id": action.user_id,
            "project_id": action.project_id,
            "start_time": microseconds(action.start_time),
            "message": action.message,
            "updated_at": microseconds(action.updated_at),
        },
    )


def _event(call: Call, server: Server, event: ActionEvent) -> dict[str, Any]:
    on_its_host = server.host is not None and server.host == event.host
    return call.shape(
        "event",
        {
            "event": event.event,
            "start_time": microseconds(event.start_time),
            "finish_time": microseconds(event.finish_time),
            "result": event.result,
            "traceback": None,
            "host": event.host,
            "hostId": host_id(server) if on_its_host else "",
            "details": event.details,
        },
    )

"""Servers: make, list, show, change, delete."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from jetbridge.api import server_create, server_views
from jetbridge.api.call import Call, ComputeCall
from jetbridge.api.fields import Body, Description, Hostname, Name
from jetbridge.api.microversions import check_request
from jetbridge.api.paging import cut, next_link
from jetbridge.api.server_queries import Filters, server_filter, server_page
from jetbridge.api.server_requests import CreateServer
from jetbridge.db import actions, faults
from jetbridge.db import servers as db
from jetbridge.db.connection import Connection
from jetbridge.errors import Conflict, Invalid, ServiceUnavailable
from jetbridge.model.server import Server, TaskState, VmState

logger = logging.getLogger(__name__)
router = APIRouter(tags=["servers"])

SOURCE = "api"


class ServerChange(Body):
    name: Name | None = None
    description: Description | None = None
    hostname: Hostname | None = None


class UpdateServer(Body):
    server: ServerChange = Field(...)


def find(call: Call, server_id: str, conn: Connection | None = None) -> Server:
    """A living server that the caller may see. Raises ``ServerNotFound``, also for another project's."""
    project = None if call.context.is_admin else call.context.project
    if conn is not None:
        return db.get(conn, server_id, project_id=project)
    with call.services.database.read() as reading:
        return db.get(reading, server_id, project_id=project)


@router.post("/servers", status_code=202)
def create(body: CreateServer, call: ComputeCall, response: Response) -> dict[str, Any]:
    planned = server_create.plan(call, body)
    made = server_create.create(call, planned)
    for server in made:
        logger.info(
            "[%s] server %s (%s) accepted: flavor %s, image %s",
            call.context.request_id,
            server.uuid,
            server.display_name,
            planned.flavor.name,
            planned.image.id,
        )
    _schedule(call, [server.uuid for server in made])
    if planned.new.return_reservation_id:
        return {"reservation_id": planned.reservation_id}
    response.headers["Location"] = f"{call.url}/servers/{made[0].uuid}"
    return {"server": server_views.created(call, made[0])}


def _schedule(call: Call, uuids: list[str]) -> None:
    try:
        call.services.bus.cast(call.context, "conductor", "build_servers", {"server_uuids": uuids}, source=SOURCE)
    except ServiceUnavailable as error:
        # Nobody will ever build them: said on each, since they are kept.
        message = error.message

        def give_up(conn: Connection) -> None:
            for uuid in uuids:
                db.update(conn, uuid, vm_state=VmState.ERROR, task_state=None)
                faults.add(conn, uuid, 503, message)
                actions.finish(conn, uuid, call.context.request_id, error=message)

        call.services.database.write(give_up)
        raise


@router.get("/servers")
def index(request: Request, call: ComputeCall) -> dict[str, Any]:
    return _list(request, call, "/servers", lambda conn, rows: [server_views.brief(call, row) for row in rows])


@router.get("/servers/detail")
def detail(request: Request, call: ComputeCall) -> dict[str, Any]:
    def views(conn: Connection, rows: Sequence[Server]) -> list[dict[str, Any]]:
        around = server_views.surroundings(call, conn, rows)
        return [server_views.detailed(call, row, around) for row in rows]

    return _list(request, call, "/servers/detail", views)


def _list(
    request: Request,
    call: Call,
    path: str,
    views: Callable[[Connection, Sequence[Server]], list[dict[str, Any]]],
) -> dict[str, Any]:
    filters = Filters(call, request)
    wanted, page = server_filter(filters), server_page(filters)
    if wanted is None:
        return {"servers": []}
    with call.services.database.read() as conn:
        rows, more = cut(db.find(conn, wanted, page), page)
        answer: dict[str, Any] = {"servers": views(conn, rows)}
    if more:
        answer["servers_links"] = next_link(request, call, path, rows[-1].uuid)
    return answer


@router.get("/servers/{server_id}")
def show(server_id: str, call: ComputeCall) -> dict[str, Any]:
    return {"server": _shown(call, server_id, server_views.detailed)}


def _shown(call: Call, server_id: str, view: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    with call.services.database.read() as conn:
        server = find(call, server_id, conn)
        return view(call, server, server_views.surroundings(call, conn, [server]))


@router.put("/servers/{server_id}")
def update(server_id: str, body: UpdateServer, call: ComputeCall) -> dict[str, Any]:
    change = body.server
    given = change.model_fields_set
    check_request("server", given, call.version)
    if "name" in given and change.name is None:
        raise Invalid("Invalid input for field/attribute name. Value: None. A name is a text.")
    if change.hostname is not None and "." in change.hostname and not call.at_least(94):
        raise Invalid(f"Invalid hostname={change.hostname!r}: a name with dots exists from 2.94; use one label.")
    changes: db.Changes = {}
    if change.name is not None:
        changes["display_name"] = change.name
    if "description" in given:
        changes["display_description"] = change.description
    if change.hostname is not None:
        changes["hostname"] = change.hostname

    def write(conn: Connection) -> None:
        server = find(call, server_id, conn)
        if changes:
            db.update(conn, server.uuid, **changes)

    call.services.database.write(write)
    return {"server": _shown(call, server_id, server_views.updated)}


@router.delete("/servers/{server_id}", status_code=204)
def delete(server_id: str, call: ComputeCall) -> Response:
    """Deleting a server that is being deleted already starts it again: the earlier attempt may have been lost."""

    def mark(conn: Connection) -> Server:
        server = find(call, server_id, conn)
        if server.locked and not call.context.is_admin:
            raise Conflict(f"Instance {server_id} is locked: unlock it first.")
        db.set_task_state(conn, server.uuid, None, TaskState.DELETING)
        actions.start(
            conn,
            server.uuid,
            "delete",
            call.context.request_id,
            user_id=call.context.user,
            project_id=call.context.project,
        )
        return server

    server = call.services.database.write(mark)
    logger.info("[%s] server %s: delete accepted", call.context.request_id, server.uuid)
    call.services.bus.cast(call.context, "conductor", "delete_server", {"server_uuid": server.uuid}, source=SOURCE)
    return Response(status_code=204)

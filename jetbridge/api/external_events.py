"""``os-server-external-events``: what other services tell about servers. An accelerator service tells how bindings ended."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from jetbridge.accelerator import events as arq_events
from jetbridge.accelerator.service import BoundEvent
from jetbridge.api.call import ComputeCall
from jetbridge.api.fields import Body, Text, Uuid
from jetbridge.db import servers
from jetbridge.errors import Invalid, NotFound

router = APIRouter(tags=["external events"])

ACCELERATOR_SINCE = 82
IN_PROGRESS = "in-progress"
"""Nothing has ended yet: it is answered, and ends nobody's wait."""
RULE = "os_compute_api:os-server-external-events:create"

Kind = Literal[
    "accelerator-request-bound",
    "network-changed",
    "network-vif-deleted",
    "network-vif-plugged",
    "network-vif-unplugged",
    "power-update",
    "volume-extended",
    "volume-reimaged",
]


class Event(Body):
    name: Kind
    server_uuid: Uuid
    tag: Annotated[Text, StringConstraints(max_length=255)] | None = None
    status: Literal["completed", "failed", "in-progress"] = "completed"


class Events(Body):
    events: Annotated[list[Event], Field(min_length=1, max_length=256)]


@router.post("/os-server-external-events", responses={207: {"description": "Some are about no server there is."}})
def create(body: Events, call: ComputeCall, response: Response) -> dict[str, Any]:
    """Answers each event with a code of its own: 200, 404 for a server that is not there, 400 for a request it doesn't have."""
    call.require(RULE)
    for event in body.events:
        if event.name == arq_events.NAME and not call.at_least(ACCELERATOR_SINCE):
            raise Invalid(f"Invalid event name {event.name}: it is known from microversion 2.{ACCELERATOR_SINCE} on.")
    with call.services.database.read() as conn:
        known = servers.get_many(conn, [event.server_uuid for event in body.events])
    if not known:
        raise NotFound("No instances found for any event: name the UUID of a server in server_uuid.")
    bound = [
        BoundEvent(event.server_uuid, event.tag or "", event.status)
        for event in body.events
        if event.name == arq_events.NAME and event.server_uuid in known and event.status != IN_PROGRESS
    ]
    unknown = set(arq_events.deliver(call.services.database, call.services.bus, call.context, bound, source="api"))
    answers = []
    for event in body.events:
        code = 200
        if event.server_uuid not in known:
            code = 404
        elif event.name == arq_events.NAME and BoundEvent(event.server_uuid, event.tag or "", event.status) in unknown:
            code = 400
        answers.append(
            {**event.model_dump(exclude_none=True), "code": code, "status": event.status if code == 200 else "failed"}
        )
    response.status_code = 200 if all(answer["code"] == 200 for answer in answers) else 207
    return {"events": answers}

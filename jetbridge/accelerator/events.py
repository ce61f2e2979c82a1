"""What an accelerator service tells: how the binding of a server's request ended. The embedded one tells it here, another one through
``POST /os-server-external-events``."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jetbridge.accelerator.service import BoundEvent
from jetbridge.db import server_arqs
from jetbridge.db.engine import Database
from jetbridge.errors import ServiceUnavailable
from jetbridge.model.context import RequestContext
from jetbridge.rpc.bus import Bus

logger = logging.getLogger(__name__)

NAME = "accelerator-request-bound"
SOURCE = "accelerator"


def deliver(
    database: Database, bus: Bus, context: RequestContext, events: Sequence[BoundEvent], *, source: str = SOURCE
) -> tuple[BoundEvent, ...]:
    """Keep each event with the request it is about, and wake the agent that may be waiting for it. Early or twice: the same. Answers
    those that no server of ours has a request for."""
    unknown = []
    for event in events:
        noted = database.write(
            lambda conn, event=event: server_arqs.note_event(  # type: ignore[misc]
                conn, event.instance_uuid, event.arq_uuid, event.status
            )
        )
        if noted is None:
            unknown.append(event)
            continue
        logger.info(
            "[%s] Accelerator request %s of server %s: %s",
            context.request_id,
            event.arq_uuid,
            event.instance_uuid,
            event.status,
            extra={"request_id": context.request_id, "server": event.instance_uuid},
        )
        if noted.hostname is None:
            continue
        payload = {"server_uuid": event.instance_uuid, "name": NAME, "tag": event.arq_uuid, "status": event.status}
        try:
            bus.cast(context, "compute", "external_event", payload, source=source, server=noted.hostname)
        except ServiceUnavailable as error:
            logger.info("Host %s is not woken by %s: %s", noted.hostname, NAME, error)  # it looks by itself, too
    return tuple(unknown)

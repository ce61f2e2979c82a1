"""What is written down about an operation on a server while it runs: action events, faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from jetbridge.compute.host import AgentHost, about
from jetbridge.db import actions, faults, servers
from jetbridge.db.connection import Connection
from jetbridge.errors import JetbridgeError, in_words
from jetbridge.model.context import RequestContext
from jetbridge.model.server import TaskState, VmState

logger = logging.getLogger(__name__)

UNDELETED = (None, *(state for state in TaskState if state is not TaskState.DELETING))
"""The tasks that end with the operation that they are of."""


@contextmanager
def action_event(host: AgentHost, context: RequestContext, server_uuid: str, event: str) -> Iterator[None]:
    """Around the host's part of an action, which is its last: the action ends with it."""
    host.database.write(
        lambda conn: actions.start_event(conn, server_uuid, context.request_id, event, host=host.name, now=host.now())
    )
    try:
        yield
    except Exception as error:
        text = str(error)

        def failed(conn: Connection) -> None:
            actions.finish_event(
                conn, server_uuid, context.request_id, event, result="Error", details=text, now=host.now()
            )
            actions.finish(conn, server_uuid, context.request_id, error=text, now=host.now())

        host.database.write(failed)
        raise

    def succeeded(conn: Connection) -> None:
        actions.finish_event(conn, server_uuid, context.request_id, event, now=host.now())
        actions.finish(conn, server_uuid, context.request_id, now=host.now())

    host.database.write(succeeded)


def operation_failed(
    host: AgentHost,
    context: RequestContext | None,
    server_uuid: str,
    error: Exception,
    *,
    to_error: bool,
    of_delete: bool = False,
) -> None:
    """Record the fault and end the task; ``to_error``: the server is in ERROR from now on, else it stays as it was. A server that somebody
    began to delete meanwhile keeps that task, unless the delete is what failed."""
    message = in_words(error)
    code = error.http_status if isinstance(error, JetbridgeError) else 500

    def write(conn: Connection) -> None:
        faults.add(conn, server_uuid, code, message, host=host.name, now=host.now())
        states = None if of_delete else UNDELETED
        changes: servers.Changes = {"task_state": None}
        if to_error:
            changes["vm_state"] = VmState.ERROR
        servers.update(conn, server_uuid, expected_task_states=states, now=host.now(), **changes)

    host.database.write(write)
    logger.error(
        "Operation on server %s on host %s failed: %s",
        server_uuid,
        host.name,
        message,
        extra=about(context, server_uuid),
        exc_info=None if isinstance(error, JetbridgeError) else error,
    )

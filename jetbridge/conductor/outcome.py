"""What the tables say at the beginning and at the bad end of a build."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jetbridge.db import actions, builds, consumers, faults, servers
from jetbridge.db.builds import Build
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.server import Server, TaskState, VmState


def context_of(server: Server | None) -> RequestContext:
    """Who acts when no message asks: an administrator, under the request that made the server."""
    request_id = server.request_id if server and server.request_id else "req-reconcile"
    return RequestContext(user=ADMIN_ID, project=ADMIN_ID, roles=frozenset({"admin"}), request_id=request_id)


def start_builds(
    database: Database, context: RequestContext, uuids: Sequence[str], owner: str, now: datetime, event: str
) -> dict[str, Build]:
    """A build for each server that waits for one, in order. Servers that are gone, being deleted or being built already are left
    out: the message may arrive twice."""

    def write(conn: Connection) -> dict[str, Build]:
        started = {}
        for uuid, server in servers.get_many(conn, uuids).items():
            # The row is changed first, which locks it: of two conductors that got the message, one sees the other's build.
            waiting = servers.update(
                conn,
                uuid,
                expected_vm_states=(VmState.BUILDING,),
                expected_task_states=(None, TaskState.SCHEDULING),
                task_state=TaskState.SCHEDULING,
                now=now,
            )
            if not waiting or server.compute_node_id is not None or builds.of_server(conn, uuid):
                continue
            consumers.note(conn, uuid, now=now)
            started[uuid] = builds.start(conn, uuid, owner, now=now)
            actions.start_event(conn, uuid, context.request_id, event, now=now)
        return started

    return database.write(write)


def server_failed(
    conn: Connection,
    context: RequestContext,
    uuid: str,
    build_id: int | None,
    message: str,
    event: str,
    now: datetime,
) -> bool:
    """The server is in ERROR and says why; False: its build was over already, and nothing is changed. One that is being
    deleted keeps its task."""
    if build_id is not None and not builds.fail(conn, build_id, message, now=now):
        return False
    failed = servers.update(
        conn,
        uuid,
        expected_task_states=(TaskState.SCHEDULING, TaskState.SPAWNING, None),
        vm_state=VmState.ERROR,
        task_state=None,
        now=now,
    )
    if failed:
        faults.add(conn, uuid, faults.SERVER_ERROR, message, now=now)
    actions.finish_event(conn, uuid, context.request_id, event, result="Error", details=message, now=now)
    actions.finish(conn, uuid, context.request_id, error=message, now=now)
    return failed

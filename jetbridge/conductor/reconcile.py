"""Builds that no host has and whose process is gone: their owners get an answer. What a host has begun, the host ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from jetbridge.accelerator.bindings import ServerBindings
from jetbridge.conductor.accelerators import STEP_NAMES, drop_strays
from jetbridge.conductor.manager import EVENT
from jetbridge.conductor.outcome import context_of, server_failed
from jetbridge.db import builds, servers
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.servers import ServerFilter
from jetbridge.model.server import Server, TaskState, VmState

logger = logging.getLogger(__name__)

BEFORE_A_HOST = "scheduling"


def reconcile_unplaced(
    database: Database,
    *,
    now: Callable[[], datetime],
    service_down_time: int,
    gone_owners: Collection[str] = (),
    starting: bool = False,
    bindings: ServerBindings | None = None,
) -> int:
    """End what nobody works on any more; how many servers that were. ``starting``: no other process serves this database, so
    whatever is unfinished is. ``bindings``: the accelerator requests that nobody's server has any more are deleted."""
    with database.read() as conn:
        dead = builds.dead(conn, now=now(), service_down_time=service_down_time, gone_owners=gone_owners)
        unbegun = [
            build
            for build in dead
            if build.kind == "build" and (build.step is None or (build.step in STEP_NAMES and build.host is None))
        ]
    silent = now() - timedelta(seconds=service_down_time)

    def forgotten(server: Server) -> bool:
        touched = server.updated_at or server.created_at
        return server.compute_node_id is None and server.uuid not in running and (starting or touched < silent)

    ended = 0
    for build in unbegun:
        ended += _fail(database, build.instance_uuid, build.id, "the process that was scheduling it is gone", now)
    with database.read() as conn:  # only now: a build that was just ended must not hold back the delete of its server
        building = servers.find(conn, ServerFilter(vm_states=frozenset({VmState.BUILDING})))
        deleting = servers.find(conn, ServerFilter(task_states=frozenset({TaskState.DELETING})))
        running = {build.instance_uuid for build in builds.running(conn)}
    for server in building:
        if server.task_state is not TaskState.DELETING and forgotten(server):
            ended += _fail(database, server.uuid, None, "the request was lost before it was scheduled", now)
    for server in deleting:
        if forgotten(server):
            ended += _finish_delete(database, server.uuid, now)
    if bindings is not None:
        drop_strays(database, bindings)
    return ended


def _fail(database: Database, uuid: str, build_id: int | None, why: str, now: Callable[[], datetime]) -> int:
    message = f"The build stopped in step {BEFORE_A_HOST}: {why}. Delete the server and create it again."

    def write(conn: Connection) -> bool:
        server = servers.get_many(conn, [uuid]).get(uuid)  # held until the end
        if build_id is None and (
            server is None or server.vm_state is not VmState.BUILDING or builds.running(conn, instance_uuid=uuid)
        ):
            return False  # a conductor began it since the look, and its host may even have ended it
        return server_failed(conn, context_of(server), uuid, build_id, message, EVENT, now())

    failed = database.write(write)
    if failed:
        logger.warning("Server %s is in ERROR: %s", uuid, message, extra={"server": uuid})
    return int(failed)


def _finish_delete(database: Database, uuid: str, now: Callable[[], datetime]) -> int:
    def write(conn: Connection) -> bool:
        server = servers.get_many(conn, [uuid]).get(uuid)
        if server is None or server.compute_node_id is not None:
            return False
        return servers.soft_delete(conn, uuid, now=now())

    return int(database.write(write))

"""Requests that wait for a host that doesn't come back: they get an answer, and nothing is freed.

What such a host holds nobody can see. Its guests may run, so devices, CPUs and disks stay as they are, and a half-made build stays
recorded with its step: its host undoes it by that when it is back (``compute.reconcile``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from jetbridge.conductor.manager import EVENT
from jetbridge.conductor.outcome import context_of, server_failed
from jetbridge.db import actions, builds, faults, servers, services
from jetbridge.db.builds import RETURNED, Build
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.servers import ServerFilter
from jetbridge.db.services import Service
from jetbridge.errors import NotFound
from jetbridge.model.server import Server, TaskState, VmState

logger = logging.getLogger(__name__)

UNDER_WAY = frozenset[TaskState | None](TaskState)


def answer_for_gone_hosts(database: Database, *, now: Callable[[], datetime], service_down_time: int) -> int:
    """End what waits for a host whose agent and whose work have been silent for more than ``service_down_time`` seconds; how many
    servers that were. A build ends in ERROR and names its step, a delete is finished in the tables, any other task is given up."""
    silent = now() - timedelta(seconds=service_down_time)
    with database.read() as conn:
        agents = services.computes(conn)
        dead = builds.dead(conn, now=now(), service_down_time=service_down_time)
        waiting = servers.find(conn, ServerFilter(task_states=UNDER_WAY))
        forgotten = actions.forgotten(conn, before=silent)
    ended = 0
    for build in dead:
        if build.kind == "build" and build.step is not None and _is_gone(agents, build.host, silent):
            ended += _end_build(database, build, silent, now)
    for server in waiting:
        if server.vm_state is VmState.BUILDING and server.task_state is not TaskState.DELETING:
            continue  # by its build, above
        if _is_gone(agents, server.host, silent):
            ended += _end_task(database, server, silent, now)
    for uuid, host in forgotten.items():
        if _is_gone(agents, host, silent):
            ended += _answer(database, uuid, host, now)
    return ended


def _is_gone(agents: Mapping[str, Service], host: str | None, silent: datetime) -> bool:
    """By its own signs of life: a host that somebody declares down may be at work."""
    if host is None:
        return False
    seen = agents[host].last_seen_up if host in agents else None
    return seen is None or seen < silent


def _end_build(database: Database, known: Build, silent: datetime, now: Callable[[], datetime]) -> int:
    uuid, host = known.instance_uuid, known.host
    message = (
        f"The build stopped in step {known.step} on host {host}, which does not answer; it is undone there when the host is back."
        " Delete the server and create it again."
    )
    if known.step == RETURNED:  # all of it is undone: nothing is left for the host
        message = (
            f"The build failed on host {host}, which does not answer any more. Delete the server and create it again."
        )

    def write(conn: Connection) -> bool:
        server = servers.get_many(conn, [uuid]).get(uuid)  # held until the end, so that of two conductors one does this
        try:
            build = builds.get(conn, known.id)
        except NotFound:
            return False
        if build.state != "running" or (build.host, build.step) != (host, known.step) or build.heartbeat >= silent:
            return False  # it is back
        if known.step == RETURNED:
            return server_failed(conn, context_of(server), uuid, known.id, message, EVENT, now())
        failed = faults.end_building(conn, uuid, message, host=host, now=now())
        if failed:
            actions.finish_all(conn, uuid, error=message, now=now())
        return failed

    failed = database.write(write)
    if failed:
        logger.warning("Server %s is in ERROR: %s", uuid, message, extra={"server": uuid})
    return int(failed)


def _end_task(database: Database, known: Server, silent: datetime, now: Callable[[], datetime]) -> int:
    uuid, host, task = known.uuid, known.host, known.task_state

    def write(conn: Connection) -> bool:
        server = servers.get_many(conn, [uuid]).get(uuid)
        if server is None or (server.host, server.task_state) != (host, task):
            return False
        if (server.updated_at or server.created_at) >= silent:
            return False
        if task is TaskState.DELETING:
            return servers.soft_delete(conn, uuid, now=now())
        actions.finish_all(conn, uuid, error=_ask_again(host), now=now())
        return servers.set_task_state(conn, uuid, (task,), None, now=now())

    ended = database.write(write)
    if ended and task is TaskState.DELETING:
        logger.warning(
            "Server %s deleted while its host %s does not answer: the guest and its devices are cleaned up when it is back",
            uuid,
            host,
            extra={"server": uuid},
        )
    elif ended:
        logger.warning(
            "Task %s of server %s is given up: host %s does not answer", task, uuid, host, extra={"server": uuid}
        )
    return int(ended)


def _answer(database: Database, uuid: str, host: str | None, now: Callable[[], datetime]) -> int:
    """A request of a server that is in no task."""

    def write(conn: Connection) -> bool:
        server = servers.get_many(conn, [uuid]).get(uuid)
        if server is None or server.host != host or server.task_state is not None:
            return False
        if builds.running(conn, instance_uuid=uuid):
            return False  # its host ends that, and with it the request
        actions.finish_all(conn, uuid, error=_ask_again(host), now=now())
        return True

    answered = database.write(write)
    if answered:
        logger.warning(
            "A request for server %s is given up: host %s does not answer", uuid, host, extra={"server": uuid}
        )
    return int(answered)


def _ask_again(host: str | None) -> str:
    return f"Host {host} does not answer: ask again when it is back."

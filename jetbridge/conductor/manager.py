"""The conductor's service: who does what next in the life of a server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from jetbridge.accelerator.bindings import ServerBindings
from jetbridge.conductor.accelerators import STEP_NAMES, accelerate, wanted_of
from jetbridge.conductor.ledger import Ledger
from jetbridge.conductor.outcome import context_of, server_failed, start_builds
from jetbridge.config.settings import Settings
from jetbridge.db import actions, builds, request_specs, servers
from jetbridge.db.builds import Build
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import (
    JetbridgeError,
    MaxRetriesExceeded,
    NoValidHost,
    PlacementUnavailable,
    ServerNotFound,
    ServiceUnavailable,
    UnknownDestination,
)
from jetbridge.model.context import RequestContext
from jetbridge.model.server import Server, TaskState, VmState
from jetbridge.model.verdict import Selection
from jetbridge.rpc.bus import Bus, Handler, Payload
from jetbridge.steps.runtime import Observer, StepFailed, nobody

logger = logging.getLogger(__name__)

TOPIC = "conductor"
EVENT = "conductor_schedule_and_build_instances"
DELETE_EVENT = "conductor_delete_instance"


class ConductorManager:
    """One per process. ``owner`` names the process; ``now`` is UTC without zone."""

    def __init__(
        self,
        database: Database,
        bus: Bus,
        settings: Settings,
        *,
        owner: str,
        now: Callable[[], datetime],
        bindings: ServerBindings | None = None,
        observe: Observer = nobody,
        ledger: Ledger | None = None,
    ) -> None:
        self._database = database
        self._ledger = ledger or Ledger(database, None)
        self._bus = bus
        self._settings = settings
        self._owner = owner
        self._now = now
        self._bindings = bindings or ServerBindings(database, None, now)
        self._observe = observe

    def handlers(self) -> Mapping[str, Handler]:
        """For ``Bus.serve("conductor", ...)``."""
        return {
            "build_servers": self.build_servers,
            "build_failed": self.build_failed,
            "delete_server": self.delete_server,
        }

    def build_servers(self, context: RequestContext, payload: Payload) -> None:
        """Find hosts for the servers of one request and send each to its own."""
        started = start_builds(self._database, context, payload["server_uuids"], self._owner, self._now(), EVENT)
        if not started:
            return
        chosen = self._select(context, list(started), (), started)
        if chosen is None:
            return
        for (uuid, build), selections in zip(started.items(), chosen, strict=True):
            self._say(context, uuid, "Server %s goes to host %s", uuid, selections[0].host)
            self._finish_event(context, uuid)
            self._send(context, build, selections)

    def send_again(self) -> int:
        """Builds of this process that were sent to a host and not begun there for ``service_down_time``: their messages were lost, or their
        hosts are. Schedule them again; how many there were."""
        silent = self._now() - timedelta(seconds=self._settings.service_down_time)
        with self._database.read() as conn:
            quiet = [build for build in builds.quiet(conn, self._owner, silent) if build.step is None and build.host]
        self._end_unsent()
        sent = 0
        for known in quiet:
            build = self._database.write(
                lambda conn, known=known: builds.take_unbegun(  # type: ignore[misc]
                    conn, known.id, self._owner, quiet_since=silent, now=self._now()
                )
            )
            if build is not None:
                with self._database.read() as conn:
                    server = servers.get_many(conn, [build.instance_uuid]).get(build.instance_uuid)
                context = context_of(server)
                reason = f"host {build.host} did not begin it"
                self._say(context, build.instance_uuid, "Scheduling server %s again: %s", build.instance_uuid, reason)
                self._reschedule(context, build, build.attempts, build.tried_hosts, reason)
                sent += 1
        return sent

    def _end_unsent(self) -> None:
        """Builds that this process was to send to a host, and whose handler died of an error that nobody foresaw. One that still runs
        after that long finds its build over, and sends nothing."""
        limit = self._now() - timedelta(seconds=2 * self._settings.service_down_time)
        with self._database.read() as conn:
            unsent = [
                build
                for build in builds.quiet(conn, self._owner, limit)
                if build.step in (None, *STEP_NAMES) and not build.host
            ]
            found = servers.get_many(conn, [build.instance_uuid for build in unsent])
        for build in unsent:
            if build.kind == "build":
                error = JetbridgeError(
                    "The build stopped in step scheduling: the conductor failed in the middle of it, its log says why. Delete the server"
                    " and create it again."
                )
                self._fail(context_of(found.get(build.instance_uuid)), build.instance_uuid, build, error)

    def build_failed(self, context: RequestContext, payload: Payload) -> None:
        """A host gave a build back: another host, the same question again, or the end of it. A message that comes twice finds the
        build taken."""
        host, now = payload["host"], self._now()
        build = self._database.write(
            lambda conn: builds.accept_back(conn, payload["build_id"], host, self._owner, now=now)
        )
        if build is not None:
            self._given_back(context, build, host, payload["kind"], payload["reason"])

    def _given_back(self, context: RequestContext, build: Build, host: str, kind: str, reason: str) -> None:
        uuid = build.instance_uuid
        self._drop_accelerators(context, uuid)
        with self._database.read() as conn:
            server = servers.get_many(conn, [uuid]).get(uuid)
        over = _why_over(server)
        if over is not None:
            if server is None:  # its delete may have come before its allocation
                self._ledger.give_back(context, uuid, by_its_build=True)
            self._database.write(lambda conn: builds.fail(conn, build.id, over, now=self._now()))
            self._say(context, uuid, "Build of server %s ends: %s", uuid, over)
            return
        if kind == "claim_lost":
            # Somebody else was faster: no host failed, so nothing is counted, and every loss is another server's gain.
            self._say(context, uuid, "Server %s lost the claim on host %s, scheduling again: %s", uuid, host, reason)
            self._reschedule(context, build, build.attempts, build.tried_hosts)
            return
        if kind != "host_failed":
            self._fail(context, uuid, build, JetbridgeError(reason))
            return
        attempts, tried = build.attempts + 1, (*build.tried_hosts, host)
        if attempts >= self._settings.max_attempts:
            self._fail(context, uuid, build, MaxRetriesExceeded(attempts=attempts, server=uuid, reason=reason))
            return
        self._say(
            context,
            uuid,
            "Server %s failed on host %s (attempt %d of %d)",
            uuid,
            host,
            attempts,
            self._settings.max_attempts,
        )
        # Not to an alternate of then: it has no allocation in Placement, and is no better known than any other host now.
        self._reschedule(context, build, attempts, tried, reason)

    def delete_server(self, context: RequestContext, payload: Payload) -> None:
        """Delete on the server's host, or here when it is on none."""
        uuid = payload["server_uuid"]
        host = self._delete_unplaced(context, uuid)
        if host is None:
            return
        try:
            self._bus.cast(context, "compute", "delete_server", {"server_uuid": uuid}, source=TOPIC, server=host)
        except UnknownDestination:
            self._delete_without_host(context, uuid, host)

    # --- building ---

    def _select(
        self,
        context: RequestContext,
        uuids: Sequence[str],
        exclude_hosts: Collection[str],
        of_builds: Mapping[str, Build],
        failure: str | None = None,
    ) -> list[list[Selection]] | None:
        """Ask the scheduler; when it finds no host the servers are in ERROR and the answer is None."""
        try:
            answer = self._bus.call(
                context,
                "scheduler",
                "select_destinations",
                {"server_uuids": list(uuids), "exclude_hosts": list(exclude_hosts)},
                source=TOPIC,
            )
        except JetbridgeError as error:
            cause = error if failure is None else _after(failure, error)
            for uuid in uuids:
                self._fail(context, uuid, of_builds[uuid], cause)
            return None
        return [[Selection.from_message(selection) for selection in hosts] for hosts in answer["selections"]]

    def _reschedule(
        self,
        context: RequestContext,
        build: Build,
        attempts: int,
        tried: Sequence[str],
        failure: str | None = None,
    ) -> None:
        uuid = build.instance_uuid
        chosen = self._select(context, [uuid], tried, {uuid: build}, failure)
        if chosen is not None:
            self._send(context, build, chosen[0], attempts, tried)

    def _send(
        self,
        context: RequestContext,
        build: Build,
        selections: Sequence[Selection],
        attempts: int | None = None,
        tried: Sequence[str] | None = None,
    ) -> None:
        """Send a build to the first of ``selections``; the others are kept as alternates. A host whose agent is gone has failed; when
        nothing can be sent to anybody the server is in ERROR."""
        attempts = build.attempts if attempts is None else attempts
        tried = build.tried_hosts if tried is None else tried
        uuid, first = build.instance_uuid, selections[0]
        if not self._accelerate(context, build, first):
            return
        moved = self._database.write(
            lambda conn: builds.move(
                conn,
                build.id,
                host=first.host,
                alternates=selections[1:],
                attempts=attempts,
                tried_hosts=tried,
                owner=self._owner,
                now=self._now(),
            )
        )
        if not moved:
            return  # declared dead meanwhile: whoever did so told the owner
        payload = {"server_uuid": uuid, "build_id": build.id, "selection": first.to_message()}
        try:
            self._bus.cast(context, "compute", "build_server", payload, source=TOPIC, server=first.host)
        except UnknownDestination as error:
            sent = replace(build, attempts=attempts, tried_hosts=tuple(tried), alternates=tuple(selections[1:]))
            self._given_back(context, sent, first.host, "host_failed", error.message)
        except ServiceUnavailable as error:
            self._fail(context, uuid, build, error)

    def _accelerate(self, context: RequestContext, build: Build, selection: Selection) -> bool:
        """Bind what the server asks of accelerators. False: it can't be, and only this server is in ERROR."""
        uuid = build.instance_uuid
        with self._database.read() as conn:
            spec = request_specs.get_many(conn, [uuid]).get(uuid)
        if spec is None or not wanted_of(spec):
            return True
        try:
            accelerate(self._database, self._bindings.by(TOPIC, context, uuid), build, spec, selection, self._observe)
        except StepFailed as failed:
            cause = failed.cause
            if not isinstance(cause, JetbridgeError):
                logger.error("Binding accelerators of server %s failed", uuid, exc_info=cause, extra={"server": uuid})
                cause = JetbridgeError(f"Binding its accelerators failed: {type(cause).__name__}: {cause}")
            self._fail(context, uuid, build, cause)
            return False
        return True

    def _drop_accelerators(self, context: RequestContext, uuid: str) -> None:
        self._bindings.by(TOPIC, context, uuid).drop(uuid)

    def _fail(self, context: RequestContext, uuid: str, build: Build, error: JetbridgeError) -> None:
        if not isinstance(error, PlacementUnavailable):
            self._ledger.give_back(context, uuid, by_its_build=True)
        self._database.write(
            lambda conn: server_failed(conn, context, uuid, build.id, error.message, EVENT, self._now())
        )
        self._say(context, uuid, "Server %s is in ERROR: %s", uuid, error.message, level=logging.WARNING)

    def _finish_event(self, context: RequestContext, uuid: str) -> None:
        self._database.write(lambda conn: actions.finish_event(conn, uuid, context.request_id, EVENT, now=self._now()))

    # --- deleting ---

    def _delete_unplaced(self, context: RequestContext, uuid: str) -> str | None:
        """Delete a server that is on no host; answers the host of one that is. A claim in flight sees in its own
        transaction that the server is being deleted, so it can't be placed after this one has looked."""

        def write(conn: Connection) -> str | None:
            try:
                server = servers.get(conn, uuid)
            except ServerNotFound:
                return None
            if server.compute_node_id is not None:
                return server.host
            servers.soft_delete(conn, uuid, now=self._now())
            actions.finish(conn, uuid, context.request_id, now=self._now())
            return None

        host = self._database.write(write)
        if host is None:
            self._drop_accelerators(context, uuid)
            self._ledger.give_back(context, uuid)
            self._say(context, uuid, "Server %s deleted, it was on no host", uuid)
        return host

    def _delete_without_host(self, context: RequestContext, uuid: str, host: str) -> None:
        """The host's agent is gone. Its devices stay as they are until it returns and cleans up: the guest may run."""

        def write(conn: Connection) -> None:
            servers.soft_delete(conn, uuid, now=self._now())
            actions.finish(conn, uuid, context.request_id, now=self._now())

        self._database.write(write)
        logger.warning(
            "Server %s deleted while its host %s has no agent: the guest and its devices are cleaned up when it returns",
            uuid,
            host,
            extra={"request_id": context.request_id, "server": uuid},
        )

    def _say(self, context: RequestContext, uuid: str, text: str, *values: object, level: int = logging.INFO) -> None:
        logger.log(level, text, *values, extra={"request_id": context.request_id, "server": uuid})


def _why_over(server: Server | None) -> str | None:
    """Why nobody waits for a server's build any more; None: its owner does."""
    if server is None or server.task_state is TaskState.DELETING:
        return "the server is being deleted"
    if server.vm_state is VmState.ERROR:
        return "its host was silent for so long that the server was given up"
    return None


def _after(failure: str, error: JetbridgeError) -> JetbridgeError:
    """No other host for a build that failed on one: the failure first, for the message of a fault is short."""
    if not isinstance(error, NoValidHost):
        return JetbridgeError(f"{error.message} Last failure: {failure}")
    others = error.message.removeprefix(NoValidHost.template.format(reason=""))
    return NoValidHost(reason=f"Last failure: {failure}. Then: {others}")

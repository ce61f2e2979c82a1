"""The build of a server on its host: the steps, and what is told when one fails."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from jetbridge.compute import domain, nics, tracker, vgpus
from jetbridge.compute.arqs import attach_accelerators, drop_accelerators
from jetbridge.compute.host import AgentHost, about
from jetbridge.db import actions, builds, faults, servers
from jetbridge.db.builds import Build
from jetbridge.db.connection import Connection
from jetbridge.errors import (
    BuildAborted,
    ClaimLost,
    HostNotFound,
    JetbridgeError,
    NotFound,
    NotSupported,
    PortInUse,
    ServerNotFound,
    ServiceUnavailable,
    in_words,
)
from jetbridge.model.context import RequestContext
from jetbridge.model.server import PowerState, Server, TaskState, VmState
from jetbridge.model.verdict import Selection
from jetbridge.steps.runtime import Step, StepFailed, run_steps
from jetbridge.virt.guest import GuestNic

logger = logging.getLogger(__name__)

EVENT = "compute__do_build_and_run_instance"


@dataclass(frozen=True)
class BuildContext:
    """What the steps of one build know. After a crash it is made again without files and NICs: undos don't need them."""

    host: AgentHost
    context: RequestContext
    server: Server
    selection: Selection
    build_id: int
    root_disk: Path | None = None
    config_drive: Path | None = None
    nics: tuple[GuestNic, ...] = ()


def _claim(build: BuildContext) -> BuildContext:
    reserve = vgpus.reservation(build.host, build.context, build.server.uuid, build.selection)
    tracker.claim(build.host, build.context, build.server.uuid, build.selection, reserve)
    return replace(build, server=_server(build))


def _release(build: BuildContext) -> None:
    tracker.release(build.host, build.context, build.server.uuid, build.selection.compute_node_id)


def _attach_accelerators(build: BuildContext) -> BuildContext:
    attach_accelerators(build.host, build.context, build.server, lambda: _check_still_wanted(build))
    return build


def _drop_accelerators(build: BuildContext) -> None:
    drop_accelerators(build.host, build.context, build.server.uuid)


def _bind_ports(build: BuildContext) -> BuildContext:
    bound = nics.bind_ports(build.host, build.context, build.server)
    return replace(build, nics=bound, server=_server(build))


def _release_ports(build: BuildContext) -> None:
    nics.release_ports(build.host, build.context, build.server.uuid)


def _make_vgpus(build: BuildContext) -> BuildContext:
    vgpus.make(build.host, build.context, build.server.uuid)
    return build


def _unmake_vgpus(build: BuildContext) -> None:
    vgpus.unmake(build.host, build.context, build.server.uuid)


def _make_root_disk(build: BuildContext) -> BuildContext:
    return replace(build, root_disk=domain.make_root_disk(build.host, build.context, build.server))


def _make_config_drive(build: BuildContext) -> BuildContext:
    return replace(build, config_drive=domain.make_config_drive(build.host, build.context, build.server))


def _remove_files(build: BuildContext) -> None:
    domain.remove_files(build.host, build.context, build.server.domain_name, build.server.uuid)


def _define(build: BuildContext) -> BuildContext:
    domain.verify_devices(build.host, build.context, build.server)
    domain.define_domain(build.host, build.context, build.server, build.root_disk, build.config_drive, build.nics)
    return build


def _undefine(build: BuildContext) -> None:
    domain.undefine_domain(build.host, build.context, build.server.domain_name, build.server.uuid)


def _start(build: BuildContext) -> BuildContext:
    domain.start_domain(build.host, build.context, build.server)
    return build


def _stop(build: BuildContext) -> None:
    domain.destroy_domain(build.host, build.context, build.server.domain_name, build.server.uuid)


def _allocate(build: BuildContext) -> BuildContext:
    tracker.allocate(build.host, build.context, build.server.uuid, build.selection.compute_node_id)
    return build


def _activate(build: BuildContext) -> BuildContext:
    """The server is ACTIVE and the build done, in one transaction. Whoever began to delete it meanwhile comes first."""
    host, uuid, now = build.host, build.server.uuid, build.host.now()

    def write(conn: Connection) -> None:
        active = servers.update(
            conn,
            uuid,
            expected_task_states=(TaskState.SPAWNING,),
            vm_state=VmState.ACTIVE,
            task_state=None,
            power_state=PowerState.RUNNING,
            launched_at=now,
            now=now,
        )
        if not active:
            raise BuildAborted(
                server=uuid, reason=_why_unwanted(*servers.states(conn, uuid)) or "it is in another task"
            )
        if not builds.finish(conn, build.build_id, now=now):
            raise BuildAborted(server=uuid, reason="its build was declared dead")
        actions.finish_event(conn, uuid, build.context.request_id, EVENT, now=now)
        actions.finish(conn, uuid, build.context.request_id, now=now)

    host.database.write(write)
    return build


BUILD_STEPS: tuple[Step[BuildContext], ...] = (
    Step("claim", _claim, _release),
    Step("vgpus", _make_vgpus, _unmake_vgpus),
    Step("accelerators", _attach_accelerators, _drop_accelerators),
    Step("ports", _bind_ports, _release_ports),
    Step("root-disk", _make_root_disk, _remove_files),
    Step("config-drive", _make_config_drive, _remove_files),
    Step("define", _define, _undefine),
    Step("start", _start, _stop, holds=True),  # a guest that can't be stopped runs on with all of it
    Step("allocate", _allocate),  # its undo is the claim's, after the guest is gone
    Step("activate", _activate),
)
FIRST = BUILD_STEPS[0].name
"""Recorded with the beginning of the build."""


def build_server(host: AgentHost, context: RequestContext, build: Build, selection: Selection) -> None:
    """Run the build's steps; what fails is undone and told to the conductor. The server's lock is held by the caller."""
    uuid = build.instance_uuid
    begun, server = _begin(host, context, build)
    if server is None:
        logger.info("Build %d of server %s is over already", build.id, uuid, extra=about(context, uuid))
        if begun:
            _give_back(host, context, build, selection, "aborted", "it was deleted", FIRST)
        return
    unwanted = _why_unwanted(server.vm_state, server.task_state)
    if unwanted is not None:
        _tell(host, context, build, selection, StepFailed(FIRST, BuildAborted(server=uuid, reason=unwanted), ()))
        return
    logger.info("Building server %s on host %s", uuid, host.name, extra=about(context, uuid))
    start = BuildContext(host, context, server, selection, build.id)
    try:
        run_steps(
            BUILD_STEPS,
            start,
            record=lambda step: _record(host, build, step),
            recorded=FIRST,
            observe=host.observe,
        )
    except StepFailed as failed:
        _tell(host, context, build, selection, failed)
        return
    logger.info("Server %s is active on host %s", uuid, host.name, extra=about(context, uuid))


HOLDING = next(step.name for step in BUILD_STEPS if step.holds)


def failure_kind(cause: Exception) -> str:
    """What a failure means for the other hosts: see the messages of ``rpc.bus``."""
    if isinstance(cause, ClaimLost):
        return "claim_lost"
    if isinstance(cause, HostNotFound):
        return "host_failed"  # it left while the build was on its way to it
    if isinstance(cause, BuildAborted | NotSupported | PortInUse | NotFound):
        return "aborted"
    return "host_failed"


def _begin(host: AgentHost, context: RequestContext, build: Build) -> tuple[bool, Server | None]:
    """Whether it is this host's from now on, and of whom. A server that was deleted on the way left what the conductor got for it since
    then, which only the conductor can give back: its accelerators and its allocation."""

    def write(conn: Connection) -> tuple[bool, Server | None]:
        # With its first step: from here on the build is this host's to end, whatever happens to this process.
        # A conductor that waited too long for this may be taking the build away at this moment: one of the two gets it.
        if not builds.begin(conn, build.id, host.name, host.owner, FIRST, now=host.now()):
            return False, None
        try:
            server = servers.get(conn, build.instance_uuid)
        except ServerNotFound:
            return True, None
        # Not one that was given up meanwhile: the build ends at its first step, and nobody would take the task off it again.
        servers.update(
            conn,
            server.uuid,
            expected_vm_states=(VmState.BUILDING,),
            expected_task_states=(TaskState.SCHEDULING, None),
            task_state=TaskState.SPAWNING,
            now=host.now(),
        )
        actions.start_event(conn, server.uuid, context.request_id, EVENT, host=host.name, now=host.now())
        return True, server

    return host.database.write(write)


def _record(host: AgentHost, build: Build, step: str) -> None:
    """In one transaction with the question whether anybody still wants the server."""
    uuid = build.instance_uuid

    def write(conn: Connection) -> None:
        _check_wanted(conn, uuid)
        if not builds.set_step(conn, build.id, step, now=host.now()):
            raise BuildAborted(server=uuid, reason="its build was declared dead")

    host.database.write(write)


def _check_still_wanted(build: BuildContext) -> None:
    with build.host.database.read() as conn:
        _check_wanted(conn, build.server.uuid)


def _check_wanted(conn: Connection, uuid: str) -> None:
    try:
        unwanted = _why_unwanted(*servers.states(conn, uuid))
    except ServerNotFound:
        unwanted = "it was deleted"
    if unwanted is not None:
        raise BuildAborted(server=uuid, reason=unwanted)


def _why_unwanted(vm_state: VmState, task_state: TaskState | None) -> str | None:
    if task_state is TaskState.DELETING:
        return "it is being deleted"
    if vm_state is VmState.ERROR:
        return "this host was silent for so long that it was given up"
    return None


def _server(build: BuildContext) -> Server:
    with build.host.database.read() as conn:
        try:
            return servers.get(conn, build.server.uuid)
        except ServerNotFound:
            raise BuildAborted(server=build.server.uuid, reason="it was deleted") from None


def _tell(host: AgentHost, context: RequestContext, build: Build, selection: Selection, failed: StepFailed) -> None:
    uuid, cause = build.instance_uuid, failed.cause
    kind, reason = failure_kind(cause), in_words(cause)
    runs_on = next((left.error for left in failed.left if left.step == HOLDING), None)
    if runs_on is not None:
        # Not to another host: the server would run twice. Its owner's delete tries again.
        kind = "aborted"
        reason = (
            f"{reason} (step {failed.step}). Its guest can't be stopped, and keeps what it has: {in_words(runs_on)}"
        )
    logger.warning(
        "Build of server %s on host %s failed in step %s (%s): %s",
        uuid,
        host.name,
        failed.step,
        kind,
        reason,
        extra=about(context, uuid),
        exc_info=None if isinstance(cause, JetbridgeError) else cause,
    )
    _give_back(host, context, build, selection, kind, reason, failed.step)


def _give_back(
    host: AgentHost, context: RequestContext, build: Build, selection: Selection, kind: str, reason: str, step: str
) -> None:
    """The conductor's again, who knows what comes next; nothing of it is left here."""
    uuid = build.instance_uuid

    def write(conn: Connection) -> bool:
        # Back to SCHEDULING unless somebody deletes it: the next host begins as this one did.
        servers.set_task_state(conn, uuid, (TaskState.SPAWNING,), TaskState.SCHEDULING, now=host.now())
        actions.finish_event(conn, uuid, context.request_id, EVENT, result="Error", details=reason, now=host.now())
        return builds.give_back(conn, build.id, host.name, now=host.now())

    if not host.database.write(write):
        return  # declared dead meanwhile: whoever did so told the owner
    payload = {
        "server_uuid": uuid,
        "build_id": build.id,
        "host": host.name,
        "generation": selection.generation,
        "kind": kind,
        "reason": f"{reason} (step {step})" if kind == "host_failed" else reason,
    }
    try:
        host.bus.cast(context, "conductor", "build_failed", payload, source=host.source)
    except ServiceUnavailable as error:
        end_build(host, context, build, f"{reason} (step {step}). No other host was tried: {error.message}")


def end_build(host: AgentHost, context: RequestContext, build: Build, message: str) -> bool:
    """A build that nobody goes on with: the server is in ERROR and says why. False: it was over already."""
    uuid = build.instance_uuid

    def write(conn: Connection) -> bool:
        if not builds.fail(conn, build.id, message, now=host.now()):
            return False
        give_error(host, conn, context, uuid, message)
        return True

    ended = host.database.write(write)
    if ended:
        logger.warning("Server %s is in ERROR: %s", uuid, message, extra=about(context, uuid))
    return ended


def give_error(host: AgentHost, conn: Connection, context: RequestContext, uuid: str, message: str) -> None:
    """The server is in ERROR, unless somebody deletes it. One that was given up while this host was silent has its reason."""
    faults.end_building(conn, uuid, message, host=host.name, now=host.now())
    actions.finish(conn, uuid, context.request_id, error=message, now=host.now())

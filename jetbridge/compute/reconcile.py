"""Three ledgers agree again: our tables, the hypervisor's domains, and who works on what.

Runs at start and periodically, and never on a failed probe: what can't be seen is neither free nor gone. A domain is ours only
by record, that is when our tables know its UUID; others are never touched.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from jetbridge.compute import domain, tracker
from jetbridge.compute.arqs import drop_stray_accelerators
from jetbridge.compute.build import BUILD_STEPS, BuildContext, end_build, give_error
from jetbridge.compute.delete import delete_server
from jetbridge.compute.holders import holders_of, note_holders
from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.interfaces import take_out_lost
from jetbridge.compute.nics import release_ports
from jetbridge.compute.power import info_of, record_state, state_for
from jetbridge.compute.vgpu_reconcile import reconcile_vgpus
from jetbridge.db import actions, builds, compute_nodes, hosts, interfaces, pci_devices, servers
from jetbridge.db.builds import Build
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.servers import ServerFilter
from jetbridge.errors import HypervisorError, JetbridgeError, NetworkServiceFailed, ServerNotFound
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.server import Server, TaskState, VmState
from jetbridge.model.verdict import Selection
from jetbridge.pci.device import PciDevice, Status
from jetbridge.steps.runtime import begun_steps, undo_steps
from jetbridge.virt.connection import DomainInfo

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Ledgers:
    """One look at everything; each repair looks again before it acts."""

    node_id: int
    servers: Mapping[str, Server]  # living, placed here, by UUID
    busy: frozenset[str]  # servers with a running build
    devices: tuple[PciDevice, ...]
    domains: Mapping[str, DomainInfo]


def reconcile(host: AgentHost, *, gone_owners: Collection[str] = (), starting: bool = False) -> None:
    """Return what nobody has a right to, and end what nobody works on. ``gone_owners``: processes known to be dead;
    ``starting``: this host's agent has just begun, so no operation on its servers is under way."""
    try:
        with host.database.read() as conn:
            node = compute_nodes.of_host(conn, host.name)
        if node.probe_error is not None:
            logger.warning("Host %s is not reconciled: its last discovery failed", host.name)
            return
        if _is_idle(host, node):
            return
        _end_dead_builds(host, node.id, gone_owners)
        ledgers = _look(host, node.id)
        if _remove_stray_domains(host, ledgers):
            ledgers = _look(host, node.id)
        if _resume_tasks(host, ledgers, starting):
            ledgers = _look(host, node.id)
        if _take_out_lost_nics(host, ledgers):
            ledgers = _look(host, node.id)
        if _free_stray_devices(host, ledgers):
            ledgers = _look(host, node.id)
        _answer_forgotten(host, ledgers, starting)
        _release_stray_ports(host, ledgers)
        drop_stray_accelerators(
            host,
            node.hypervisor_hostname,
            placed=frozenset(ledgers.servers),
            domains=frozenset(info.uuid for info in ledgers.domains.values()),
        )
        _follow_domains(host, ledgers)
        note_holders(host, node.id, starting=starting)
        reconcile_vgpus(host, node.id)
    except (HypervisorError, NetworkServiceFailed) as error:
        logger.warning("Host %s is not reconciled: %s", host.name, error)


def _is_idle(host: AgentHost, node: ComputeNode) -> bool:
    """Nobody has anything of the host in any ledger, so there is nothing to compare: most hosts of a fleet that starts are so, and one
    question tells it. Tables first: a dead build has its answer whether the hypervisor lists its domains or not."""
    with host.database.read() as conn:
        if not hosts.holds_nothing(conn, node):
            return False
    return not host.connection.domains()


def _look(host: AgentHost, node_id: int) -> _Ledgers:
    # Domains first: a server that is built after this look has no domain in it, and its running build protects it.
    domains = {info.name: info for info in host.connection.domains()}
    with host.database.read() as conn:
        placed = servers.of_node(conn, node_id)
        return _Ledgers(
            node_id=node_id,
            servers={server.uuid: server for server in placed},
            busy=frozenset(build.instance_uuid for build in builds.running(conn)),
            devices=tuple(pci_devices.of_host(conn, node_id)),
            domains=domains,
        )


# --- builds and deletes whose process died ---


def _end_dead_builds(host: AgentHost, node_id: int, gone_owners: Collection[str]) -> None:
    silent = host.now() - timedelta(seconds=host.settings.service_down_time)
    with host.database.read() as conn:
        dead = builds.dead(
            conn, now=host.now(), service_down_time=host.settings.service_down_time, gone_owners=gone_owners
        )
        # This process lives, but what it told the conductor may be lost. What it works on it also holds the lock of.
        quiet = builds.quiet(conn, host.owner, silent)
    for build in {build.id: build for build in (*dead, *quiet)}.values():
        if build.host != host.name or build.step is None:
            continue
        with host.locks.try_hold(build.instance_uuid) as free:
            if free and build.kind == "build":
                _end_build(host, node_id, build)
            elif free and build.kind == "delete":
                _end_delete(host, node_id, build)
            elif free and build.kind in ("attach", "detach"):
                _end_change(host, build)


def _end_build(host: AgentHost, node_id: int, build: Build) -> None:
    uuid = build.instance_uuid
    with host.database.read() as conn:
        try:
            server = servers.get(conn, uuid, deleted_too=True)
        except ServerNotFound:
            host.database.write(lambda conn: builds.fail(conn, build.id, "the server is unknown", now=host.now()))
            return
    context = _context(server)
    start = BuildContext(host, context, server, Selection(host.name, node_id, 0), build.id)
    left = undo_steps(begun_steps(BUILD_STEPS, build.step), start)
    undone = "what it had done is undone" if not left else "some of what it had done is undone later"
    why = "the conductor did not answer" if build.owner == host.owner else "the process that worked on it is gone"
    message = (
        f"The build stopped in step {build.step} on host {host.name}: {why}, {undone}."
        " Delete the server and create it again."
    )
    end_build(host, context, build, message)


def _end_delete(host: AgentHost, node_id: int, build: Build) -> None:
    uuid = build.instance_uuid
    server = _living(host, uuid)
    if server is None:
        _remove_deleted(host, uuid)  # before the record that tells of it ends
    host.database.write(lambda conn: builds.fail(conn, build.id, "the process is gone", now=host.now()))
    if server is not None and server.task_state is TaskState.DELETING:
        delete_server(host, _deleting(host, server), server, node_id)


def _remove_deleted(host: AgentHost, uuid: str) -> None:
    """A conductor finished the delete in the tables meanwhile. A domain that is still there is found as a stray, but files that
    outlived theirs are known by the delete's record alone."""
    with host.database.read() as conn:
        try:
            server = servers.get(conn, uuid, deleted_too=True)
        except ServerNotFound:
            return
    domain.remove_domain(host, None, server.domain_name, uuid)


def _end_change(host: AgentHost, build: Build) -> None:
    """A NIC was being put in or taken out: what is left to do stands in its row."""
    message = f"The {build.kind} of a NIC stopped in step {build.step}: the process that worked on it is gone."

    def write(conn: Connection) -> None:
        builds.fail(conn, build.id, message, now=host.now())
        actions.finish_all(conn, build.instance_uuid, error=message, now=host.now())

    host.database.write(write)


def _take_out_lost_nics(host: AgentHost, ledgers: _Ledgers) -> bool:
    """Answers whether there was any."""
    found = False
    with host.database.read() as conn:
        unsettled = interfaces.unsettled(conn)
    for uuid in sorted((unsettled & ledgers.servers.keys()) - ledgers.busy):
        with host.locks.try_hold(uuid) as free:
            server = _living(host, uuid) if free and not _building(host, uuid) else None
            if server is None or server.compute_node_id != ledgers.node_id:
                continue
            try:
                found |= take_out_lost(host, server)
            except JetbridgeError as error:
                logger.error("A NIC of server %s can't be taken out yet: %s", uuid, error, extra=about(None, uuid))
    return found


def _resume_tasks(host: AgentHost, ledgers: _Ledgers, starting: bool) -> bool:
    """Servers in the middle of something that nobody does: a delete is finished, anything else ends as it is. Answers
    whether there was any."""
    resumed = False
    silent = host.now() - timedelta(seconds=host.settings.service_down_time)
    for seen in ledgers.servers.values():
        touched = seen.updated_at or seen.created_at
        if seen.task_state is None or seen.uuid in ledgers.busy or not (starting or touched < silent):
            continue
        with host.locks.try_hold(seen.uuid) as free:
            server = _living(host, seen.uuid) if free else None
            if server is None or server.task_state != seen.task_state or server.compute_node_id != ledgers.node_id:
                continue
            resumed = True
            if server.task_state is TaskState.DELETING:
                logger.info("Resuming the delete of server %s", server.uuid, extra=about(None, server.uuid))
                delete_server(host, _deleting(host, server), server, ledgers.node_id)
            elif server.vm_state is VmState.BUILDING:
                _give_up_build(host, server, ledgers.node_id)
            else:
                _end_actions(host, server)  # before the task ends: then the next request may begin one
                record_state(host, server, info_of(host, server), task_ended=True)
                logger.warning(
                    "Task %s of server %s was lost", server.task_state, server.uuid, extra=about(None, server.uuid)
                )

    return resumed


def _end_actions(host: AgentHost, server: Server) -> None:
    message = f"The process that worked on task {server.task_state} is gone: ask again."
    host.database.write(lambda conn: actions.finish_all(conn, server.uuid, error=message, now=host.now()))


def _answer_forgotten(host: AgentHost, ledgers: _Ledgers, starting: bool) -> None:
    """Requests that nobody works on, of servers whose task doesn't say so: the task was another request's, which ended it, or the
    request has none."""
    silent = host.now() - timedelta(seconds=host.settings.service_down_time)
    with host.database.read() as conn:
        found = actions.forgotten(conn, compute_node_id=ledgers.node_id, before=None if starting else silent)
    for uuid in sorted(found.keys() - ledgers.busy):

        def write(conn: Connection, uuid: str = uuid) -> bool:
            server = servers.get_many(conn, [uuid]).get(uuid)
            if server is None or server.task_state is not None or builds.running(conn, instance_uuid=uuid):
                return False
            message = f"Nobody on host {host.name} works on this any more: ask again."
            actions.finish_all(conn, uuid, error=message, now=host.now())
            return True

        with host.locks.try_hold(uuid) as free:
            if free and host.database.write(write):
                logger.warning("A request for server %s was lost: it is answered now", uuid, extra=about(None, uuid))


def _give_up_build(host: AgentHost, server: Server, node_id: int) -> None:
    """No record says how far it went. A guest of it that can't be stopped keeps what it has."""
    start = BuildContext(host, _context(server), server, Selection(host.name, node_id, 0), 0)
    undo_steps(BUILD_STEPS, start)
    message = f"The build on host {host.name} was lost. Delete the server and create it again."
    host.database.write(lambda conn: give_error(host, conn, _context(server), server.uuid, message))
    logger.warning("Server %s is in ERROR: %s", server.uuid, message, extra=about(None, server.uuid))


# --- domains and devices ---


def _remove_stray_domains(host: AgentHost, ledgers: _Ledgers) -> bool:
    """Answers whether there was any."""
    strays = [
        info for info in ledgers.domains.values() if info.uuid not in ledgers.servers and info.uuid not in ledgers.busy
    ]
    if not strays:
        return False
    with host.database.read() as conn:
        known = set(servers.find_uuids(conn, ServerFilter(uuids=frozenset(info.uuid for info in strays), deleted=None)))
    removed = False
    for info in strays:
        if info.uuid not in known:
            continue  # another system's, or another Jetbridge's
        with host.locks.try_hold(info.uuid) as free:
            if not free or _has_right(host, info.uuid, ledgers.node_id):
                continue
            logger.warning(
                "Domain %s on host %s belongs to server %s, which isn't here (any more): removing it",
                info.name,
                host.name,
                info.uuid,
                extra=about(None, info.uuid),
            )
            domain.remove_domain(host, None, info.name, info.uuid)
            removed = True
    return removed


def _free_stray_devices(host: AgentHost, ledgers: _Ledgers) -> bool:
    """Answers whether any was freed."""
    strays = [
        device
        for device in ledgers.devices
        if device.owned
        and device.instance_uuid not in ledgers.busy
        and (device.instance_uuid not in ledgers.servers or device.status is Status.CLAIMED)
    ]
    if not strays:
        return False
    freed: list[PciDevice] = []
    held = holders_of(host, ledgers.domains.values())
    for uuid in sorted({str(device.instance_uuid) for device in strays}):
        mine = [device for device in strays if device.instance_uuid == uuid]
        for device in mine:
            if device.address in held:
                logger.error(
                    "Device %s of host %s has no owner with a right to it, but domain %s runs with it: it is not freed",
                    device.identity,
                    host.name,
                    held[device.address].name,
                    extra=about(None, uuid),
                )
        with host.locks.try_hold(uuid) as free:
            if free and not _building(host, uuid):
                loose = [device for device in mine if device.address not in held]
                freed += tracker.free_strays(host, ledgers.node_id, loose)
                server = _living(host, uuid)
                if server is not None and server.launched_at is None and len(loose) == len(mine):
                    tracker.release(host, None, uuid, ledgers.node_id)  # a claim that nobody builds on
    return bool(freed)


def _release_stray_ports(host: AgentHost, ledgers: _Ledgers) -> None:
    """Ports that this host has for servers which aren't here any more."""
    with host.database.read() as conn:
        bound = interfaces.of_host(conn, host.name)
    for uuid in bound.keys() - ledgers.servers.keys() - ledgers.busy:
        with host.locks.try_hold(uuid) as free:
            if not free or _has_right(host, uuid, ledgers.node_id):
                continue
            logger.warning(
                "Ports on host %s belong to server %s, which isn't here", host.name, uuid, extra=about(None, uuid)
            )
            release_ports(host, None, uuid)
            if _living(host, uuid) is None:
                host.database.write(lambda conn, uuid=uuid: interfaces.forget(conn, uuid))  # type: ignore[misc]


def _follow_domains(host: AgentHost, ledgers: _Ledgers) -> None:
    """Servers follow what their domains do; one whose domain is gone is stopped, not deleted."""
    for seen in ledgers.servers.values():
        states = state_for(seen, ledgers.domains.get(seen.domain_name), task_ended=False)
        as_it_was = (seen.vm_state, seen.power_state)
        if seen.task_state is not None or seen.uuid in ledgers.busy or as_it_was == states:
            continue
        if seen.vm_state is VmState.ERROR and seen.launched_at is None:
            continue  # its build failed: a guest of it that can't be stopped makes it no server that can be used
        with host.locks.try_hold(seen.uuid) as free:
            server = _living(host, seen.uuid) if free else None
            if server is None or server.task_state is not None or server.compute_node_id != ledgers.node_id:
                continue
            info = info_of(host, server)  # the ledgers may be older than the server
            if record_state(host, server, info, task_ended=False):
                logger.warning(
                    "Server %s on host %s was %s, its domain is %s",
                    server.uuid,
                    host.name,
                    server.vm_state,
                    info.state if info else "gone",
                    extra=about(None, server.uuid),
                )


def _has_right(host: AgentHost, uuid: str, node_id: int) -> bool:
    server = _living(host, uuid)
    return (server is not None and server.compute_node_id == node_id) or _building(host, uuid)


def _building(host: AgentHost, uuid: str) -> bool:
    with host.database.read() as conn:
        return bool(builds.running(conn, instance_uuid=uuid))


def _living(host: AgentHost, uuid: str) -> Server | None:
    with host.database.read() as conn:
        return servers.get_many(conn, [uuid]).get(uuid)


def _deleting(host: AgentHost, server: Server) -> RequestContext:
    """As ``_context``, under the request that asked for the delete: it gets the answer."""
    with host.database.read() as conn:
        asked = [each for each in actions.of_server(conn, server.uuid) if each.finish_time is None]
    mine = next((each.request_id for each in asked if each.action == "delete"), None)
    return _context(server) if mine is None else replace(_context(server), request_id=mine)


def _context(server: Server) -> RequestContext:
    """Reconciliation acts for the owner, under the request that made the server."""
    return RequestContext(
        user=server.user_id,
        project=server.project_id or ADMIN_ID,
        roles=frozenset({"admin"}),
        request_id=server.request_id or "req-reconcile",
    )

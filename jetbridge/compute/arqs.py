"""A server's accelerator requests on its host: waited for, resolved to what its guest is given, and given back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jetbridge.accelerator.client import BoundArq
from jetbridge.accelerator.inventory import address_of, identity_of
from jetbridge.accelerator.ports import binding_profile
from jetbridge.accelerator.profile import PROFILE
from jetbridge.compute.domain import device_reports
from jetbridge.compute.host import AgentHost, about
from jetbridge.db import accelerators, builds, compute_nodes, server_arqs, servers
from jetbridge.db.connection import Connection
from jetbridge.errors import AcceleratorRequestOpFailed, BuildAborted, HypervisorError, JetbridgeError
from jetbridge.model.accelerator import ArqState, AttachType, ServerArq
from jetbridge.model.context import RequestContext
from jetbridge.model.server import Server
from jetbridge.pci.port import ACCELERATOR_VNICS
from jetbridge.virt.node_xml import mdev_name_of, mdev_xml, pci_node_name

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How long a wait goes on before it looks into the tables by itself: the message that would wake it may be lost."""

Report = Mapping[str, Any]


def attach_accelerators(
    host: AgentHost, context: RequestContext, server: Server, still_wanted: Callable[[], None]
) -> None:
    """Wait until the server's requests are bound, and write down what its guest gets for each; mediated devices of ours are made.
    ``still_wanted`` is asked while it waits, and ends it by raising.

    Raises ``BuildAborted`` naming the requests that are not bound in time or at all, or what can't be given to a guest.
    """
    rows = _rows(host, server.uuid)
    _check_complete(server, rows)
    if not rows:
        return
    arqs = _resolved(host, context, server, rows, still_wanted)
    reports = device_reports(host, context, server.uuid)
    for row in rows:
        arq = arqs.get(str(row.arq_uuid))
        if arq is None or arq.state is not ArqState.BOUND:
            state = "gone" if arq is None else str(arq.state)
            raise BuildAborted(
                server=server.uuid,
                reason=f"accelerator request {row.arq_uuid} for {row.requester_id} of device profile {row.profile!r} is {state}",
            )
        identity = _identity(server, arq, reports)
        if row.port_id is not None:
            _check_port(server, row.port_id, arq)
        _note_attached(host, server, arq, identity)
    _make_mdevs(host, context, server)


def drop_accelerators(host: AgentHost, context: RequestContext | None, server_uuid: str) -> bool:
    """Give all of a server's accelerators back: mediated devices of ours go, then its requests. Its guest must be gone. False: not all
    could be, and reconciliation does it."""
    rows = _rows(host, server_uuid)
    if not rows:
        return True
    host.bindings.guest_gone(server_uuid)
    _remove_mdevs(host, context, rows)
    return host.bindings.by(host.source, context, server_uuid).drop(server_uuid)


def drop_stray_accelerators(host: AgentHost, node: str, placed: frozenset[str], domains: frozenset[str]) -> bool:
    """Give back what servers have here that are not here (any more): ``placed`` are, of ``domains`` the guests exist. Answers whether
    there was any."""
    with host.database.read() as conn:
        rows = server_arqs.of_host(conn, node)
        if not rows:
            return False
        busy = {build.instance_uuid for build in builds.running(conn)}
    strays = sorted({row.instance_uuid for row in rows} - placed - domains - busy)
    dropped = False
    for uuid in strays:
        with host.locks.try_hold(uuid) as free:
            if not free or _is_here_or_built(host, uuid, node):
                continue
            logger.warning(
                "Server %s is not on host %s (any more), and has accelerators of it: they are given back",
                uuid,
                host.name,
                extra=about(None, uuid),
            )
            dropped = drop_accelerators(host, None, uuid) or dropped
    return dropped


# --- waiting ---


def _resolved(
    host: AgentHost,
    context: RequestContext,
    server: Server,
    rows: Sequence[ServerArq],
    still_wanted: Callable[[], None],
) -> dict[str, BoundArq]:
    """The server's requests by UUID, when the binding of all has ended or the time is over."""
    client = host.bindings.asking().by(host.source, context, server.uuid)
    wanted = {str(row.arq_uuid) for row in rows}
    seen = host.events.expect(server.uuid)  # before the question: what is told after it counts
    try:
        found = {arq.uuid: arq for arq in client.of_server(server.uuid, only_resolved=True)}
        missing = wanted - found.keys()
        if not missing:
            return found
        limit = time.monotonic() + host.settings.arq_binding_timeout
        while missing:
            told = {str(row.arq_uuid) for row in _rows(host, server.uuid) if row.event is not None}
            missing -= told
            rest = limit - time.monotonic()
            if not missing or rest <= 0:
                break
            still_wanted()
            seen = host.events.wait(server.uuid, seen, min(rest, LOOK_SECONDS))
        if missing:
            raise BuildAborted(
                server=server.uuid,
                reason=f"accelerator requests {', '.join(sorted(missing))} were not bound within"
                f" {host.settings.arq_binding_timeout} s ([DEFAULT]arq_binding_timeout)",
            )
        return {arq.uuid: arq for arq in client.of_server(server.uuid)}
    except BuildAborted:
        raise
    except JetbridgeError as error:
        raise BuildAborted(server=server.uuid, reason=error.message) from error
    finally:
        host.events.forget(server.uuid)


# --- what a guest gets ---


def _note_attached(host: AgentHost, server: Server, arq: BoundArq, identity: str | None) -> None:
    """From here on our own service takes the handle from nobody. Raises ``BuildAborted`` where it has done so since it was asked."""

    def write(conn: Connection) -> None:
        if server.compute_node_id is not None:
            compute_nodes.lock(conn, server.compute_node_id)
        handle = accelerators.handle(conn, arq.handle_uuid) if arq.handle_uuid else None
        if handle is not None and handle.arq_uuid != arq.uuid:
            raise BuildAborted(server=server.uuid, reason=f"accelerator request {arq.uuid} was deleted or unbound")
        server_arqs.note_attached(
            conn, arq.uuid, str(arq.attach_type), arq.attach_info, arq.handle_uuid, identity, now=host.now()
        )

    host.database.write(write)


def _check_complete(server: Server, rows: Sequence[ServerArq]) -> None:
    """Raises ``BuildAborted`` for a flavor or a port whose device profile has no requests: never silently no device."""
    have = {row.port_id for row in rows}
    profile = server.flavor.extra_specs.get(PROFILE)
    if profile and None not in have:
        raise BuildAborted(server=server.uuid, reason=f"it has no accelerator requests of device profile {profile!r}")
    for nic in server.networks:
        if nic.vnic_type in ACCELERATOR_VNICS and nic.port_id not in have:
            raise BuildAborted(server=server.uuid, reason=f"it has no accelerator request for port {nic.port_id}")


def _check_port(server: Server, port_id: str, arq: BoundArq) -> None:
    """Raises ``BuildAborted`` for what can't be a NIC."""
    try:
        if arq.attach_type != AttachType.PCI:
            raise AcceleratorRequestOpFailed(
                op="use", reason=f"the attach handle of {arq.uuid} is of type {arq.attach_type}, and a port needs PCI"
            )
        binding_profile(arq.uuid, arq.attach_info)
    except AcceleratorRequestOpFailed as error:
        raise BuildAborted(server=server.uuid, reason=f"port {port_id}: {error.message}") from error


def _identity(server: Server, arq: BoundArq, reports: Mapping[str, Report]) -> str | None:
    """Raises ``BuildAborted`` for what can't be given to a guest."""

    def undeliverable(why: str) -> BuildAborted:
        return BuildAborted(
            server=server.uuid, reason=f"accelerator request {arq.uuid} can't be given to a guest: {why}"
        )

    if arq.attach_type not in (AttachType.PCI, AttachType.MDEV):
        raise undeliverable(f"its attach handle is of type {arq.attach_type!r}, not PCI or MDEV")
    if arq.attach_type == AttachType.MDEV:
        if not arq.handle_uuid:
            raise undeliverable("its attach handle names no mediated device")
        return None
    address = address_of(arq.attach_info)
    if address is None:
        raise undeliverable(f"its attach handle {dict(arq.attach_info)} names no PCI function")
    if address not in reports:
        raise undeliverable(f"host {arq.hostname} has no function {address}")
    return identity_of(reports[address])


def _make_mdevs(host: AgentHost, context: RequestContext, server: Server) -> None:
    """Only those that our tables have as attach handles: another service makes its own, and has made them by now."""
    existing = {uuid for uuid, _ in _mdevs(host)}
    for row in _rows(host, server.uuid):
        if row.attach_type != AttachType.MDEV or row.handle_uuid is None or row.handle_uuid in existing:
            continue
        if not _is_ours(host, row.handle_uuid):
            raise BuildAborted(
                server=server.uuid, reason=f"host {host.name} has no mediated device {row.handle_uuid}, which was bound"
            )
        parent = pci_node_name(str(address_of(row.attach_info)))
        with host.library(context, "create_mdev", server.uuid, parent=parent, uuid=row.handle_uuid):
            host.connection.create_mdev(mdev_xml(row.handle_uuid, parent, row.attach_info.get("asked_type", "")))


def _remove_mdevs(host: AgentHost, context: RequestContext | None, rows: Sequence[ServerArq]) -> None:
    ours = {row.handle_uuid for row in rows if row.handle_uuid and _is_ours(host, row.handle_uuid)}
    if not ours:
        return
    for uuid, name in _mdevs(host):
        if uuid in ours:
            try:
                with host.library(context, "destroy_mdev", rows[0].instance_uuid, uuid=uuid):
                    host.connection.destroy_mdev(name)
            except HypervisorError as error:
                logger.error("Mediated device %s of host %s can't be removed: %s", uuid, host.name, error.message)


def _mdevs(host: AgentHost) -> list[tuple[str, str]]:
    """UUID and node device name of each."""
    return [found for document in host.connection.node_devices() if (found := mdev_name_of(document)) is not None]


def _is_ours(host: AgentHost, uuid: str) -> bool:
    with host.database.read() as conn:
        return accelerators.handle(conn, uuid) is not None


# --- rows ---


def _rows(host: AgentHost, server_uuid: str) -> tuple[ServerArq, ...]:
    with host.database.read() as conn:
        return server_arqs.of_server(conn, server_uuid)


def _is_here_or_built(host: AgentHost, uuid: str, node: str) -> bool:
    def look(conn: Connection) -> bool:
        server = servers.get_many(conn, [uuid]).get(uuid)
        return (server is not None and server.node == node) or bool(builds.running(conn, instance_uuid=uuid))

    with host.database.read() as conn:
        return look(conn)

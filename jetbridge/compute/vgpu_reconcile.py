"""Records of vGPUs, what exists on the host, and what guests run with agree again."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from jetbridge.compute import vgpus as life
from jetbridge.compute.holders import Holders, holders_of
from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.vgpu_cards import look, read_vgpu_config
from jetbridge.db import builds, compute_nodes, servers, vgpus
from jetbridge.db.connection import Connection
from jetbridge.errors import HypervisorError, InvalidLibvirtMdevConfig
from jetbridge.mdev.config import VgpuConfig
from jetbridge.mdev.values import HostVgpus, Kind, State, Vgpu
from jetbridge.virt.connection import DomainInfo

logger = logging.getLogger(__name__)


def reconcile_vgpus(host: AgentHost, node_id: int) -> None:
    """One pass. What can't be put right is told, and tried again in the next pass. Raises ``HypervisorError`` when the host
    doesn't say what there is: then nothing is concluded."""
    with host.database.read() as conn:
        ours = vgpus.of_node(conn, node_id)
    if not ours:
        return
    try:
        config = read_vgpu_config(host)
    except InvalidLibvirtMdevConfig as error:
        logger.error("The vGPUs of host %s are not reconciled: %s", host.name, error.message)
        return
    seen = look(host)
    held = holders_of(host, host.connection.domains())
    _release_lost(host, node_id, ours, held)
    with host.database.read() as conn:
        ours = vgpus.of_node(conn, node_id)
    for vgpu in ours:
        try:
            if vgpu.server is None:
                _tidy(host, node_id, config, seen, vgpu, held)
            else:
                _restore(host, seen, vgpu)
        except (HypervisorError, InvalidLibvirtMdevConfig) as error:
            logger.error(
                "vGPU %s (%s) on %s of host %s: %s; tried again in the next pass",
                vgpu.uuid,
                vgpu.type,
                vgpu.parent,
                host.name,
                error.message,
                extra=about(None, vgpu.server),
            )


def _release_lost(host: AgentHost, node_id: int, ours: Iterable[Vgpu], held: Holders) -> None:
    """vGPUs of servers that aren't here (any more) can be used again, unless some guest runs with them."""
    with host.database.read() as conn:
        placed = {server.uuid for server in servers.of_node(conn, node_id)}
    by_server: dict[str, list[Vgpu]] = {}
    for vgpu in ours:
        if vgpu.server is not None and vgpu.server not in placed:
            by_server.setdefault(vgpu.server, []).append(vgpu)
    for server, mine in by_server.items():
        running = [held[vgpu.held_as] for vgpu in mine if vgpu.held_as in held]
        if running:
            logger.error(
                "vGPUs of server %s, which is not on host %s, run in domain %s: they are not freed",
                server,
                host.name,
                running[0].name,
                extra=about(None, server),
            )
            continue
        with host.locks.try_hold(server) as free:
            if free and host.database.write(lambda conn, server=server: _release(host, conn, node_id, server)):  # type: ignore[misc]
                life.say(host, None, "Freed", mine, server)


def _release(host: AgentHost, conn: Connection, node_id: int, server_uuid: str) -> bool:
    compute_nodes.lock(conn, node_id)
    server = servers.get_many(conn, [server_uuid]).get(server_uuid)
    if (server is not None and server.compute_node_id == node_id) or builds.running(conn, instance_uuid=server_uuid):
        return False
    return bool(vgpus.release(conn, node_id, server_uuid, now=host.now()))


def _restore(host: AgentHost, seen: HostVgpus, vgpu: Vgpu) -> None:
    """A server's mediated device that got lost, with the host's memory for instance, is made again. Types of VFs are set when their
    server starts."""
    if vgpu.kind is Kind.VFIO or vgpu.server is None:
        return
    instance = life.instance_of(host, seen, vgpu)
    if instance is not None and instance.active and vgpu.state is State.READY:
        return
    with host.locks.try_hold(vgpu.server) as free:
        if free and not _building(host, vgpu.server):
            life.make(host, None, vgpu.server)


def _tidy(
    host: AgentHost,
    node_id: int,
    config: VgpuConfig,
    seen: HostVgpus,
    vgpu: Vgpu,
    held: Holders,
) -> None:
    """One that no server has: kept for the next one where that may come, else taken down."""
    if (runs := held.get(vgpu.held_as)) is not None:
        _leave_to(host, node_id, vgpu, runs)
        return
    if vgpu.state is State.HELD:
        if not _mark(host, node_id, vgpu, State.READY):
            return
        vgpu = replace(vgpu, state=State.READY)
        logger.info("vGPU %s on %s of host %s is let go, and can be given again", vgpu.uuid, vgpu.parent, host.name)
    instance = life.instance_of(host, seen, vgpu)
    wanted = vgpu.kind is Kind.MDEV and vgpu.state in life.ALIVE and _is_offered(config, seen, vgpu)
    if wanted and instance is not None:
        if not instance.active:
            with host.library(None, "start_mdev", device=instance.node_name):
                host.connection.start_mdev(instance.node_name)
        if vgpu.state is State.RESERVED:
            host.database.write(
                lambda conn: vgpus.set_state(conn, [vgpu.uuid], State.READY, before=[State.RESERVED], now=host.now())
            )
        return
    if not _mark(host, node_id, vgpu, State.REMOVING):
        return  # a server got it meanwhile
    life.take_down(host, look(host), vgpu)  # as it is now: a server may have had it made since, and be gone again
    host.database.write(lambda conn: vgpus.delete(conn, [vgpu.uuid]))


def _leave_to(host: AgentHost, node_id: int, vgpu: Vgpu, runs: DomainInfo) -> None:
    """Somebody took one that is kept for the next server: no server gets it until that guest has let go."""
    if vgpu.state is State.HELD or (vgpu.state in life.ALIVE and not _mark(host, node_id, vgpu, State.HELD)):
        return
    logger.error(
        "vGPU %s on %s of host %s is nobody's, but domain %s runs with it: it is left alone, and given to nobody until that guest has let go"
        " of it",
        vgpu.uuid,
        vgpu.parent,
        host.name,
        runs.name,
    )


def _mark(host: AgentHost, node_id: int, vgpu: Vgpu, state: State) -> bool:
    """Whether still no server has it, and the state is written."""

    def write(conn: Connection) -> bool:
        compute_nodes.lock(conn, node_id)
        now = next((one for one in vgpus.of_node(conn, node_id) if one.uuid == vgpu.uuid), None)
        if now is None or now.server is not None:
            return False
        vgpus.save(conn, node_id, [replace(now, state=state)], now=host.now())
        return True

    return host.database.write(write)


def _is_offered(config: VgpuConfig, seen: HostVgpus, vgpu: Vgpu) -> bool:
    parent = next((parent for parent in seen.parents if parent.name == vgpu.parent), None)
    kind = config.type_of(parent) if parent is not None else None
    return kind is not None and kind.id == vgpu.type


def _building(host: AgentHost, uuid: str) -> bool:
    with host.database.read() as conn:
        return bool(builds.running(conn, instance_uuid=uuid))

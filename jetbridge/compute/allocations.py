"""Allocations on this host against the servers on it: what nobody has a right to is taken back, what a server lacks is given.

Only servers that our tables know are judged: an allocation of a consumer that we never heard of is somebody else's word, which the
audit tells.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.server_allocations import complete_allocations
from jetbridge.db import builds, compute_nodes, providers, servers
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.servers import ServerFilter
from jetbridge.errors import PlacementConflict
from jetbridge.model.server import Server, VmState
from jetbridge.placement.client import PlacementClient

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Consumers:
    """Those of a host's providers. ``strays``: servers of ours that have no right to anything here; ``unknown``: none of ours;
    ``moving``: servers of ours of which that can't be said now; ``lacking``: servers on the host that have nothing."""

    strays: frozenset[str]
    unknown: frozenset[str]
    moving: frozenset[str]
    lacking: frozenset[str]


def judge(host: AgentHost, node: ComputeNode, consumers: Collection[str]) -> Consumers:
    """``consumers`` have been read before: what the tables say now is newer. Servers that somebody works on are left out."""
    with host.database.read() as conn:
        mine = {server.uuid: server for server in servers.of_node(conn, node.id)}
        busy = {build.instance_uuid for build in builds.running(conn)}
        others = [uuid for uuid in consumers if uuid not in mine]
        known = {
            server.uuid: server for server in servers.find(conn, ServerFilter(uuids=frozenset(others), deleted=None))
        }
    strays = frozenset(uuid for uuid in known if uuid not in busy and _settled(known[uuid], node.id))
    return Consumers(
        strays=strays,
        unknown=frozenset(uuid for uuid in others if uuid not in known),
        moving=frozenset(known) - strays,
        lacking=frozenset(
            uuid
            for uuid, server in mine.items()
            if uuid not in consumers and uuid not in busy and server.task_state is None
        ),
    )


def reconcile_allocations(host: AgentHost) -> None:
    """Not on a host whose discovery failed: what it holds isn't known then. Raises ``PlacementUnavailable``."""
    if host.placement is None:
        return
    client = host.placement.by(host.source)
    with host.database.read() as conn:
        node = compute_nodes.of_host(conn, host.name)
    if node.probe_error is not None or not node.reported:
        return
    found = judge(host, node, client.provider_allocations(node.uuid))
    _take_back_all(host, client, node, found.strays)
    for uuid in sorted(found.lacking):
        with host.locks.try_hold(uuid) as free:
            if free and uuid in judge(host, node, []).lacking:
                _give(host, client, node, uuid)


@dataclass(frozen=True)
class TakenBack:
    """``consumers`` have nothing of the host any more. ``complete``: of all others it is known what they are."""

    consumers: frozenset[str] = frozenset()
    complete: bool = True


def take_back_strays(
    host: AgentHost, client: PlacementClient, node: ComputeNode, consumers: Collection[str]
) -> TakenBack:
    """Take from ``consumers`` of the host's providers what they have no right to: also of those that have something of a device alone,
    which ``reconcile_allocations`` doesn't see. Not on a host whose discovery failed."""
    if node.probe_error is not None or not consumers:
        return TakenBack()
    found = judge(host, node, consumers)
    taken = _take_back_all(host, client, node, found.strays)
    return TakenBack(taken, complete=not found.moving and taken == found.strays)


def _take_back_all(
    host: AgentHost, client: PlacementClient, node: ComputeNode, strays: Collection[str]
) -> frozenset[str]:
    """Those that have nothing of the host any more; the others are worked on."""
    if not strays:
        return frozenset()
    with host.database.read() as conn:
        ours = {record.uuid for record in providers.of_node(conn, node.id)}
    taken = set()
    for uuid in sorted(strays):
        with host.locks.try_hold(uuid) as free:
            if free and uuid in judge(host, node, [uuid]).strays and _take_back(host, client, ours, uuid):
                taken.add(uuid)
    return frozenset(taken)


def _settled(server: Server, node_id: int) -> bool:
    """Whether it is known where the server lives, and that is not this host."""
    if server.deleted:
        return True
    if server.compute_node_id == node_id or server.task_state is not None:
        return False
    return server.compute_node_id is not None or server.vm_state is VmState.ERROR


def _take_back(host: AgentHost, client: PlacementClient, ours: Collection[str], uuid: str) -> bool:
    """False: somebody changed them meanwhile."""
    held = client.allocations(uuid)
    elsewhere = {provider: amounts for provider, amounts in held.by_provider.items() if provider not in ours}
    if len(elsewhere) == len(held.by_provider):
        return True
    logger.warning(
        "Server %s has an allocation of host %s, where it does not live: it is taken back",
        uuid,
        host.name,
        extra=about(None, uuid),
    )
    if not elsewhere:
        client.delete_allocations(uuid)
        return True
    try:
        client.put_allocations(uuid, elsewhere, held.project or "", held.user or "", held.generation)
    except PlacementConflict as error:
        logger.info("The allocations of server %s changed meanwhile, the next pass looks again: %s", uuid, error)
        return False
    return True


def _give(host: AgentHost, client: PlacementClient, node: ComputeNode, uuid: str) -> None:
    complete = complete_allocations(host, client, node, uuid)
    if complete is None:
        return
    assert complete.project is not None
    assert complete.user is not None
    try:
        client.put_allocations(uuid, complete.by_provider, complete.project, complete.user, complete.generation)
    except PlacementConflict as error:
        logger.error(
            "Server %s lives on host %s, and its allocation can't be put right: %s",
            uuid,
            host.name,
            error,
            extra=about(None, uuid),
        )
        return
    logger.warning(
        "Server %s lives on host %s and had no allocation: it has one now", uuid, host.name, extra=about(None, uuid)
    )

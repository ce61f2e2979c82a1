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
    """Those of a host's root provider. ``strays``: servers of ours that have no right to anything here; ``unknown``: none of ours;
    ``lacking``: servers on the host that have nothing."""

    strays: frozenset[str]
    unknown: frozenset[str]
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
    return Consumers(
        strays=frozenset(
            uuid for uuid in others if uuid in known and uuid not in busy and _settled(known[uuid], node.id)
        ),
        unknown=frozenset(uuid for uuid in others if uuid not in known),
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
        ours = {record.uuid for record in providers.of_node(conn, node.id)}
    if node.probe_error is not None or not node.reported:
        return
    found = judge(host, node, client.provider_allocations(node.uuid))
    for uuid in sorted(found.strays):
        with host.locks.try_hold(uuid) as free:
            if free and uuid in judge(host, node, [uuid]).strays:
                _take_back(host, client, ours, uuid)
    for uuid in sorted(found.lacking):
        with host.locks.try_hold(uuid) as free:
            if free and uuid in judge(host, node, []).lacking:
                _give(host, client, node, uuid)


def _settled(server: Server, node_id: int) -> bool:
    """Whether it is known where the server lives, and that is not this host."""
    if server.deleted:
        return True
    if server.compute_node_id == node_id or server.task_state is not None:
        return False
    return server.compute_node_id is not None or server.vm_state is VmState.ERROR


def _take_back(host: AgentHost, client: PlacementClient, ours: Collection[str], uuid: str) -> None:
    held = client.allocations(uuid)
    elsewhere = {provider: amounts for provider, amounts in held.by_provider.items() if provider not in ours}
    if len(elsewhere) == len(held.by_provider):
        return
    logger.warning(
        "Server %s has an allocation of host %s, where it does not live: it is taken back",
        uuid,
        host.name,
        extra=about(None, uuid),
    )
    if not elsewhere:
        client.delete_allocations(uuid)
        return
    try:
        client.put_allocations(uuid, elsewhere, held.project or "", held.user or "", held.generation)
    except PlacementConflict as error:
        logger.info("The allocations of server %s changed meanwhile, the next pass looks again: %s", uuid, error)


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

"""What servers of this host must have in Placement, when they lack it: servers that were there before their devices were reported, or
whose allocation somebody took away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from jetbridge.compute.host import AgentHost
from jetbridge.db import compute_nodes, servers
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.records import ConsumerAllocations
from jetbridge.placement.sizes import server_resources


def healed_allocations(
    host: AgentHost,
    client: PlacementClient,
    node: ComputeNode,
    heal: Iterable[tuple[str, str, str, int]],
    uuids: Mapping[str, str],
) -> dict[str, ConsumerAllocations]:
    """By server, all that it must have: what it has, its CPUs, memory and disk of this host, and the devices of ``heal`` (consumer,
    provider's name, class, amount). ``uuids``: of the providers by name. Servers that don't live here are left out."""
    healed: dict[str, ConsumerAllocations] = {}
    for consumer, name, resource_class, amount in heal:
        if consumer not in healed:
            complete = complete_allocations(host, client, node, consumer)
            if complete is None:
                continue
            healed[consumer] = complete
        held = healed[consumer]
        mine = {**held.by_provider.get(uuids[name], {}), resource_class: amount}
        healed[consumer] = replace(held, by_provider={**held.by_provider, uuids[name]: mine})
    return healed


def complete_allocations(
    host: AgentHost, client: PlacementClient, node: ComputeNode, server_uuid: str
) -> ConsumerAllocations | None:
    """What the server has, and what it takes of the host's own provider. None: it doesn't live here."""
    with host.database.read() as conn:
        server = servers.get_many(conn, [server_uuid]).get(server_uuid)
        topology = compute_nodes.guest_topologies_by_server(conn, [node.id]).get(node.id, {}).get(server_uuid)
    if server is None or server.compute_node_id != node.id:
        return None
    held = client.allocations(server_uuid)
    return ConsumerAllocations(
        generation=held.generation,
        project=held.project or server.project_id,
        user=held.user or server.user_id,
        by_provider={node.uuid: server_resources(server.flavor, topology), **held.by_provider},
    )

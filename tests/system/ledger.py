"""What Placement holds of a cloud, whichever Placement it uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from jetbridge.placement.client import PlacementClient
from jetbridge.placement.session import placement_adapter
from jetbridge.placement.transport import Transport
from tests.system.cloud import Cloud


def client_of(cloud: Cloud) -> PlacementClient:
    """As anybody who knows the address. Only for clouds without passwords."""
    settings = replace(cloud.settings, placement_endpoint_override=cloud.placement_url)
    return PlacementClient(Transport(placement_adapter(settings)))


def providers(cloud: Cloud) -> dict[str, str]:
    """UUID to name."""
    return {provider.uuid: provider.name for provider in client_of(cloud).providers()}


def books(cloud: Cloud) -> dict[str, tuple[object, ...]]:
    """Everything that Placement has of each provider, its generation included, which any change moves."""
    client = client_of(cloud)
    return {
        provider.name: (
            client.inventories(provider.uuid),
            client.traits(provider.uuid),
            {consumer: dict(has) for consumer, has in client.provider_allocations(provider.uuid).items()},
        )
        for provider in client.providers()
    }


def allocation(cloud: Cloud, server_id: str) -> dict[str, dict[str, int]]:
    """What a server has, by provider's name."""
    names = providers(cloud)
    held = client_of(cloud).allocations(server_id).by_provider
    return {names[uuid]: dict(resources) for uuid, resources in held.items()}


def consumers(cloud: Cloud) -> set[str]:
    """Everybody who has anything of any provider."""
    client = client_of(cloud)
    return {consumer for uuid in providers(cloud) for consumer in client.provider_allocations(uuid)}


def check_allocations(cloud: Cloud, servers: Collection[str]) -> None:
    """Soon these servers have an allocation each and nobody else has any, and of nothing more is used than there is."""
    cloud.until(
        lambda: consumers(cloud) == set(servers),
        "only servers that live on a host have allocations",
        lambda: (
            f"without a right to it: {consumers(cloud) - set(servers)}; without any: {set(servers) - consumers(cloud)}"
        ),
    )
    assert over_allocated(cloud) == []


def over_allocated(cloud: Cloud) -> list[str]:
    """Providers of which more is used than there is."""
    client = client_of(cloud)
    found = []
    for uuid, name in providers(cloud).items():
        _, inventories = client.inventories(uuid)
        used = client.usages(uuid)
        for resource_class, entry in inventories.items():
            if used[resource_class] > int((entry["total"] - entry["reserved"]) * entry["allocation_ratio"]):
                found.append(f"{name}: {used[resource_class]} of {entry['total']} {resource_class}")
    return found


def disagreements(cloud: Cloud) -> list[str]:
    """What Placement has of our providers, and our tables have not, or the reverse. For a cloud at rest."""
    servers = {
        uuid: (node, vcpus, memory_mb)
        for uuid, node, vcpus, memory_mb in cloud.sql(
            "SELECT uuid, compute_node_id, vcpus, memory_mb FROM instances WHERE deleted = 0 AND compute_node_id IS NOT NULL"
        )
    }
    devices = Counter(
        cloud.sql("SELECT rp_uuid, instance_uuid FROM pci_devices WHERE deleted = 0 AND instance_uuid IS NOT NULL")
    )
    client = client_of(cloud)
    found = []
    for uuid, node, kind, name in cloud.sql("SELECT uuid, compute_node_id, kind, name FROM placement_providers"):
        allocated = {consumer: dict(amounts) for consumer, amounts in client.provider_allocations(uuid).items()}
        living = {server for server, (where, _, _) in servers.items() if where == node}
        if kind == "pci":
            wanted = {server: count for (provider, server), count in devices.items() if provider == uuid}
            held = {consumer: sum(amounts.values()) for consumer, amounts in allocated.items()}
            if held != wanted:
                found.append(f"{name}: allocated {held}, owned {wanted}")
        elif kind == "root":
            sizes = {
                consumer: (amounts.get("VCPU", 0) + amounts.get("PCPU", 0), amounts.get("MEMORY_MB"))
                for consumer, amounts in allocated.items()
            }
            expected = {server: servers[server][1:] for server in living}
            if sizes != expected:
                found.append(f"{name}: allocated {sizes}, servers {expected}")
        elif not allocated.keys() <= living:
            found.append(f"{name}: allocated {allocated}, servers {sorted(living)}")
    return found

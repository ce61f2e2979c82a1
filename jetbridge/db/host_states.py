"""A host's state as a value, from its rows: what the scheduler decides on and what the claim judges again."""

from __future__ import annotations

from collections.abc import Collection

from jetbridge.db.compute_nodes import ComputeNode, Usage
from jetbridge.model.host_state import HostState
from jetbridge.numa.topology import GuestTopology
from jetbridge.numa.usage import with_usage
from jetbridge.pci.pool import Pool


def host_state(
    node: ComputeNode,
    usage: Usage,
    guests: Collection[GuestTopology],
    network_names: frozenset[str],
    pools: tuple[Pool, ...] | None,
) -> HostState:
    """One host from its rows. The agent's state is not in them: the host counts as disabled and down until it is known."""
    return HostState(
        compute_node_id=node.id,
        host=node.host,
        hypervisor_hostname=node.hypervisor_hostname,
        generation=node.generation,
        vcpus=node.vcpus,
        memory_mb=node.memory_mb,
        disk_gb=node.local_gb,
        vcpus_used=usage.vcpus,
        memory_mb_used=usage.memory_mb,
        disk_gb_used=usage.disk_gb,
        running_servers=usage.servers,
        cpu_allocation_ratio=node.cpu_allocation_ratio,
        ram_allocation_ratio=node.ram_allocation_ratio,
        disk_allocation_ratio=node.disk_allocation_ratio,
        reserved_memory_mb=node.reserved_memory_mb,
        reserved_disk_gb=node.reserved_disk_gb,
        enabled=False,
        alive=False,
        numa=None if node.numa is None else with_usage(node.numa, guests),
        pools=pools,
        networks=network_names,
        devices_known=node.probe_error is None,
        uuid=node.uuid,
        reported=node.reported,
    )

"""A host's accelerators, as its providers' children: one for each card or function, of the class that device profiles ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jetbridge.compute.host import AgentHost
from jetbridge.compute.provider_source import Contribution
from jetbridge.db import accelerators, arqs, compute_nodes, pci_devices, servers
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.model.accelerator import Accelerator, AcceleratorCondition
from jetbridge.model.provider import Inventory, Provider, Seen
from jetbridge.pci.device import PciDevice

KIND = "accelerator"


class AcceleratorSource:
    """``ProviderSource`` of model 4. With another accelerator service the table is empty: that one reports its own."""

    kind = KIND

    def contribute(self, host: AgentHost, node: ComputeNode, seen: Mapping[str, Seen] | None) -> Contribution:
        with host.database.read() as conn:
            found = accelerators.of_host(conn, node.id)
            devices = pci_devices.of_host(conn, node.id) if found else []
            heal = _heal(conn, found, node, seen) if found and seen else ()
        return Contribution(tuple(_provider(each, devices) for each in found), heal=heal)

    def reported(self, host: AgentHost, node: ComputeNode, uuids: Mapping[str, str], seen: Mapping[str, Seen]) -> None:
        """Writes which provider stands for each: binding finds them by it."""

        def write(conn: Connection) -> None:
            compute_nodes.lock(conn, node.id)
            for each in accelerators.of_host(conn, node.id):
                if each.name in uuids and each.rp_uuid != uuids[each.name]:
                    accelerators.set_provider(conn, each.id, uuids[each.name], now=host.now())

        with host.database.read() as conn:
            known = {each.name: each.rp_uuid for each in accelerators.of_host(conn, node.id)}
        if any(known.get(name, uuid) != uuid for name, uuid in uuids.items()):
            host.database.write(write)


def _provider(accelerator: Accelerator, devices: Sequence[PciDevice]) -> Provider:
    """What can't be given away now, though nobody has it, is reserved: it is disabled, unknown, or a guest has something of its card in
    another way."""
    total = len(accelerator.handles)
    free = [handle for handle in accelerator.handles if handle.arq_uuid is None]
    held_back = [
        handle
        for handle in free
        if not accelerator.enabled
        or handle.condition is not AcceleratorCondition.OK
        or accelerators.owned_relative(devices, accelerator, handle.address) is not None
    ]
    return Provider(
        accelerator.name,
        {
            accelerator.resource_class: Inventory(
                total=total, max_unit=total, reserved=len(held_back), allocation_ratio=1.0
            )
        },
        accelerator.traits,
    )


def _heal(
    conn: Connection, found: Sequence[Accelerator], node: ComputeNode, seen: Mapping[str, Seen]
) -> tuple[tuple[str, str, str, int], ...]:
    """The allocations that servers of this host lack of what they have."""
    here = {server.uuid for server in servers.of_node(conn, node.id)}
    owners = arqs.servers_of(conn, [handle.arq_uuid for each in found for handle in each.handles if handle.arq_uuid])
    held: dict[tuple[str, str, str], int] = {}
    for each in found:
        for handle in each.handles:
            server = owners.get(handle.arq_uuid or "")
            if server is not None and server in here:
                key = (server, each.name, each.resource_class)
                held[key] = held.get(key, 0) + 1
    return tuple(
        (server, name, resource_class, amount)
        for (server, name, resource_class), amount in sorted(held.items())
        if name in seen and seen[name].allocations.get(server, {}).get(resource_class, 0) < amount
    )

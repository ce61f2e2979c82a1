"""The second half of the demo: the same line once more, by Placement (model 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jetbridge.cli.demo_story import OURS, Journey
from jetbridge.cli.failures import CliError
from jetbridge.placement.client import PlacementClient

SWITCHES: Mapping[str, Mapping[str, Any]] = {
    "pci": {"report_in_placement": True},
    "filter_scheduler": {"pci_in_placement": True},
}
"""What makes model 2 of model 1."""


@dataclass(frozen=True)
class Provider:
    """A device's provider, and who has what of it."""

    name: str
    uuid: str
    inventory: Mapping[str, Mapping[str, Any]]
    before: Mapping[str, Any]
    during: Mapping[str, Any]
    after: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "provider": {"name": self.name, "uuid": self.uuid},
            "inventory": {name: dict(inventory) for name, inventory in self.inventory.items()},
            "allocations": {"before": dict(self.before), "during": dict(self.during), "after": dict(self.after)},
        }


def by_placement(journey: Journey, placement: PlacementClient, host: str, tell: Callable[[str, str], None]) -> Provider:
    """Boot and delete a server on ``host``, where the first one was. ``tell`` shows a label and a text. Raises ``CliError`` when Placement
    doesn't say what it should."""
    (root,) = [each["uuid"] for each in journey.client.get(f"{OURS}/hosts")["hosts"] if each["host"] == host]
    children = {each.uuid: each for each in placement.in_tree(root) if each.uuid != root}
    before = {uuid: placement.provider_allocations(uuid) for uuid in children}
    tell("providers", f"{len(children)} of host {host}: {_some(sorted(each.name for each in children.values()))}")
    journey.boot(host)
    journey.look()
    server, address = journey.story.server, journey.story.device["address"]
    (mine,) = [
        each["rp_uuid"]
        for each in journey.client.get(f"{OURS}/devices", server=server)["devices"]
        if each["address"] == address
    ]
    if mine not in children:
        raise CliError(f"device {address} has no provider in Placement")
    _, inventory = placement.inventories(mine)
    during = placement.provider_allocations(mine)
    tell("device", f"{address}, inventory of provider {children[mine].name}")
    for name, facts in inventory.items():
        tell("inventory", f"{name}: total {facts['total']}, reserved {facts['reserved']}")
    tell("before", _shown(before[mine]))
    tell("during", _shown(during))
    journey.delete()
    after = placement.provider_allocations(mine)
    tell("after", _shown(after))
    if server not in during or server in after or before[mine] != after:
        raise CliError(f"the allocation of server {server} in Placement is not as it should be")
    return Provider(children[mine].name, mine, inventory, before[mine], during, after)


def _shown(allocations: Mapping[str, Mapping[str, int]]) -> str:
    if not allocations:
        return "nobody has an allocation of it"
    return "; ".join(
        f"server {consumer} has {', '.join(f'{name}:{amount}' for name, amount in resources.items())}"
        for consumer, resources in allocations.items()
    )


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:4])}, ..."

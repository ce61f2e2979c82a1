"""How full a host's vGPU cards are in Placement: what a refusal says besides. Nothing is decided by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jetbridge.db.providers import VGPU_CARD, ProviderRecord
from jetbridge.errors import PlacementRefused
from jetbridge.model.host_state import HostState
from jetbridge.model.request_group import RequestGroup
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.groups import OWNERS
from jetbridge.scheduler.placement_reasons import CardRoom

MOST_ASKED_ABOUT = 4
"""Cards of a host that a refusal tells of, with two or three requests each; the others are counted."""


@dataclass(frozen=True)
class Card:
    """``provider`` is its UUID in Placement, ``name`` that of its node device; ``classes`` are those that we told Placement of."""

    provider: str
    name: str
    classes: frozenset[str]


CardsOf = Callable[[HostState], Sequence[Card]]
"""The vGPU cards of a host."""


def no_cards(state: HostState) -> Sequence[Card]:
    """Of hosts that carry no vGPUs."""
    return ()


def cards_of(records: Iterable[ProviderRecord], hypervisor_hostname: str) -> tuple[Card, ...]:
    """Those of a host's providers that are cards in Placement."""
    return tuple(
        Card(record.uuid, record.name.removeprefix(f"{hypervisor_hostname}_"), frozenset(record.inventories))
        for record in records
        if record.kind == VGPU_CARD and record.generation is not None
    )


def rooms_of(client: PlacementClient, cards: Iterable[Card], groups: Sequence[RequestGroup]) -> tuple[CardRoom, ...]:
    """What the cards have of the classes and traits that are asked for. Those beyond the first few have no numbers; those that Placement
    doesn't have any more are left out."""
    wanted = frozenset(name for group in groups for name in group.resources)
    asked = [card for card in cards if card.classes & wanted]
    found = []
    for card in asked[:MOST_ASKED_ABOUT]:
        try:
            found.append(_room(client, card, wanted, groups))
        except PlacementRefused:
            continue
    return (*found, *(CardRoom(card.name) for card in asked[MOST_ASKED_ABOUT:]))


def _room(client: PlacementClient, card: Card, wanted: frozenset[str], groups: Sequence[RequestGroup]) -> CardRoom:
    _, inventories = client.inventories(card.provider)
    used = client.usages(card.provider)
    room = {
        name: (
            max(0, int((entry["total"] - entry["reserved"]) * entry["allocation_ratio"]) - used.get(name, 0)),
            int(entry["total"] * entry["allocation_ratio"]),
        )
        for name, entry in inventories.items()
        if name in wanted
    }
    required = frozenset[str]().union(*(group.required for group in groups)) - OWNERS
    forbidden = frozenset[str]().union(*(group.forbidden for group in groups)) - OWNERS
    traits = client.traits(card.provider)[1] if required or forbidden else frozenset[str]()
    return CardRoom(card.name, room, lacks=required - traits, has=forbidden & traits)

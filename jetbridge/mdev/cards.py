"""A host's cards as people and Placement are told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jetbridge.mdev.capacity import Share, inventories
from jetbridge.mdev.values import HostVgpus, Instance, Kind, Vgpu, address_of


@dataclass(frozen=True)
class CardType:
    """A type that a card could carry. ``available``: how many its driver would make now, over all functions. ``resource_class`` and
    ``total`` are None where the configuration doesn't offer it."""

    type: str
    name: str | None
    available: int
    resource_class: str | None = None
    total: int | None = None


@dataclass(frozen=True)
class Card:
    """``name`` of its node device. ``functions``: how many of it carry vGPUs; 0: the card is gone, and servers hold some of it.
    ``totals`` by resource class, as in Placement. ``foreign``: what others made on it."""

    name: str
    address: str | None
    kind: Kind
    functions: int
    types: tuple[CardType, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    foreign: tuple[Instance, ...] = ()


def cards_of(host: HostVgpus, found: Sequence[Share], ours: Sequence[Vgpu]) -> tuple[Card, ...]:
    """In their order; cards that are gone and still held come last."""
    totals = inventories(found, ours)
    names = dict.fromkeys(parent.card for parent in host.parents)
    present = [_card(name, host, found, ours, totals.get(name, {})) for name in names]
    gone = {vgpu.card: vgpu for vgpu in ours if vgpu.card in totals and vgpu.card not in names}
    return (
        *present,
        *(Card(name, address_of(name), vgpu.kind, 0, totals=totals[name]) for name, vgpu in sorted(gone.items())),
    )


def _card(name: str, host: HostVgpus, found: Sequence[Share], ours: Sequence[Vgpu], totals: Mapping[str, int]) -> Card:
    parents = [parent for parent in host.parents if parent.card == name]
    functions = {parent.name for parent in parents}
    foreign = tuple(
        instance
        for instance in host.instances
        if instance.parent in functions and not any(vgpu.is_(instance) for vgpu in ours)
    )
    shares = {share.type.id: share for share in found if share.card == name}
    types: dict[str, CardType] = {}
    for offer in (offer for parent in parents for offer in parent.offers):
        before = types.get(offer.type)
        share = shares.get(offer.type)
        types[offer.type] = CardType(
            offer.type,
            offer.name or (before.name if before else None),
            offer.available + (before.available if before else 0),
            share.type.resource_class if share else None,
            share.total if share else None,
        )
    ordered = tuple(types[kind] for kind in sorted(types))
    return Card(name, parents[0].card_address, parents[0].kind, len(parents), ordered, totals, foreign)

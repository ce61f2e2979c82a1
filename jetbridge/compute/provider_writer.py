"""One provider after the other is brought to what is wanted, and nothing is written that is so already."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jetbridge.db.providers import ROOT, ProviderRecord
from jetbridge.errors import PlacementInventoryInUse, PlacementPciException, PlacementRefused, ProviderNotOurs
from jetbridge.model.provider import Provider
from jetbridge.placement import records
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.merge import merged_inventories, merged_traits, our_traits
from jetbridge.placement.records import ConsumerAllocations, Resources


@dataclass(frozen=True)
class Placed:
    """A provider of ours that is in Placement. The record's ``inventories`` and ``generation`` are as they are there. ``held``: inventories
    that are still to be written, by ``reshape``."""

    record: ProviderRecord
    allocations: Mapping[str, Resources] = field(default_factory=dict)
    traits: frozenset[str] | None = None  # all, others' too; None: not read
    held: Mapping[str, Mapping[str, Any]] | None = None

    def without(self, consumers: Collection[str]) -> Placed:
        """As it is once they have nothing of it."""
        left = {name: amounts for name, amounts in self.allocations.items() if name not in consumers}
        return replace(self, allocations=left)


class ProviderWriter:
    """For one pass over one host. ``live``: the host's tree in Placement as it is; ``changed``: other things are wanted than last time;
    ``gone`` frees a name that is held by a host of ours that is gone, and answers whether it could."""

    def __init__(
        self,
        client: PlacementClient,
        host: str,
        live: Mapping[str, records.ProviderRecord],
        *,
        changed: bool,
        gone: Callable[[str, PlacementClient], bool],
    ) -> None:
        self._client = client
        self._host = host
        self._live = live
        self._changed = changed
        self._gone = gone

    def look(self, record: ProviderRecord) -> Placed:
        """A provider that is there already, read only where it may differ from what we know."""
        live = self._live[record.uuid]
        # Allocations go without a trace in the generation, so they are read each time; the root's are the audit's.
        allocations = {} if record.kind == ROOT else self._client.provider_allocations(record.uuid)
        if not self._changed and live.generation == record.generation:
            return Placed(record, allocations)
        _, traits = self._client.traits(record.uuid)
        generation, inventories = self._client.inventories(record.uuid)
        seen = replace(
            record, generation=generation, inventories={name: _plain(each) for name, each in inventories.items()}
        )
        return Placed(seen, allocations, traits)

    def write(
        self,
        record: ProviderRecord,
        wanted: Provider,
        placed: Placed | None,
        *,
        parent: str | None,
        hold_inventories: bool,
    ) -> Placed:
        """Make it, if it isn't there, and give it its inventories and traits. ``hold_inventories``: they follow with ``reshape``.

        Raises ``ProviderNotOurs``, ``PlacementPciException`` when what is used would go, and what the client raises.
        """
        if placed is None:
            placed = Placed(self._made(record, parent), traits=frozenset())
        inventories = merged_inventories(wanted.inventories, placed.record.inventories, wanted.traits)
        if hold_inventories:
            placed = replace(placed, held=inventories)
        elif inventories != placed.record.inventories:
            placed = self._with_inventories(placed, inventories)
        return self._with_traits(placed, wanted.traits)

    def reshape(self, placed: Iterable[Placed], allocations: Mapping[str, ConsumerAllocations]) -> dict[str, Placed]:
        """The inventories that were held back, and the allocations, in one step. Answers the providers by name."""
        held = [(each, each.held) for each in placed if each.held is not None]
        open_for = {each.record.uuid: _with_room(each, inventories, allocations) for each, inventories in held}
        for _, inventories in held:
            self._ensure_classes(inventories)
        if allocations:
            self._client.reshape(
                {each.record.uuid: (_generation(each), open_for[each.record.uuid]) for each, _ in held}, allocations
            )
        after = {}
        for each, inventories in held:
            generation = self._client.inventories(each.record.uuid)[0] if allocations else _generation(each)
            if not allocations or open_for[each.record.uuid] != inventories:
                generation = self._client.set_inventories(each.record.uuid, generation, inventories)
            record = replace(each.record, generation=generation, inventories=inventories)
            after[each.record.name] = replace(each, record=record, held=None)
        return after

    def retire(self, record: ProviderRecord, placed: Placed | None) -> bool:
        """Take it away. False: somebody still uses it."""
        if placed is None:
            return True
        if any(any(amounts.values()) for amounts in placed.allocations.values()):
            return False
        try:
            self._client.delete_provider(record.uuid)
        except PlacementInventoryInUse:
            return False
        return True

    def _made(self, record: ProviderRecord, parent: str | None) -> ProviderRecord:
        try:
            created = self._client.create_provider(record.uuid, record.name, parent)
        except PlacementRefused:
            other = self._client.provider_named(record.name)
            if other is None:
                raise
            if not self._gone(record.name, self._client):
                raise ProviderNotOurs(name=record.name, uuid=other.uuid, host=self._host) from None
            created = self._client.create_provider(record.uuid, record.name, parent)
        return replace(record, generation=created.generation, inventories={}, traits=frozenset())

    def _with_inventories(self, placed: Placed, inventories: Mapping[str, Mapping[str, Any]]) -> Placed:
        self._ensure_classes(inventories)
        try:
            generation = self._client.set_inventories(placed.record.uuid, _generation(placed), inventories)
        except PlacementInventoryInUse as error:
            raise PlacementPciException(
                error=f"provider {placed.record.name} can't change (inventory in use): {error}"
            ) from error
        return replace(placed, record=replace(placed.record, generation=generation, inventories=inventories))

    def _with_traits(self, placed: Placed, wanted: frozenset[str]) -> Placed:
        record = placed.record
        if placed.traits is None:
            return placed
        target = merged_traits(wanted, record.traits, placed.traits)
        ours = our_traits(wanted, record.traits, placed.traits)
        generation = _generation(placed)
        if target != placed.traits:
            for trait in sorted(wanted - placed.traits):
                if trait.startswith("CUSTOM_"):
                    self._client.ensure_trait(trait)
            generation = self._client.set_traits(record.uuid, generation, target)
        return replace(placed, record=replace(record, generation=generation, traits=ours), traits=target)

    def _ensure_classes(self, inventories: Mapping[str, Mapping[str, Any]]) -> None:
        for name in sorted(inventories):
            if name.startswith("CUSTOM_"):
                self._client.ensure_class(name)


def _generation(placed: Placed) -> int:
    assert placed.record.generation is not None, "it is in Placement"
    return placed.record.generation


def _with_room(
    placed: Placed, held: Mapping[str, Mapping[str, Any]], allocations: Mapping[str, ConsumerAllocations]
) -> Mapping[str, Mapping[str, Any]]:
    """The inventories that were ``held`` back, with no more reserved than leaves room for ``allocations``: Placement refuses them otherwise,
    though what they stand for is in use already. Only for the moment of writing those; what an operator reserved is not lost by it."""
    mine = [has.by_provider.get(placed.record.uuid, {}) for has in allocations.values()]
    others = [amounts for consumer, amounts in placed.allocations.items() if consumer not in allocations]
    return {
        name: {
            **each,
            "reserved": max(
                0, min(each["reserved"], each["total"] - sum(amounts.get(name, 0) for amounts in (*mine, *others)))
            ),
        }
        for name, each in held.items()
    }


def _plain(inventory: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inventory.items() if name != "resource_provider_generation"}

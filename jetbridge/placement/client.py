"""Placement's API as methods (https://docs.openstack.org/api-ref/placement/)."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jetbridge.errors import (
    PlacementConflict,
    PlacementConsumerConflict,
    PlacementGenerationConflict,
    PlacementInventoryInUse,
    PlacementRefused,
    PlacementUnknownName,
)
from jetbridge.model.context import RequestContext
from jetbridge.model.request_group import RequestGroup
from jetbridge.placement.records import ConsumerAllocations, ProviderRecord, Resources
from jetbridge.placement.transport import Answer, Caller, Transport, detail_of, error_of, quoted

logger = logging.getLogger(__name__)

CONCURRENT = "placement.concurrent_update"
IN_USE = "placement.inventory.inuse"
CONFLICT_TRIES = 30
"""How often an allocation that lost against a concurrent one is written again."""
LONGEST_PAUSE_SECONDS = 0.05
SETTLE_SECONDS = 0.5
"""Placement makes a consumer in one transaction and writes what it has in the next. Whoever is between the two gets so long, since a writer
who fails there deletes the consumer, whosever allocations it has by then. After that long nobody writes: Placement died in between."""

CHECK_SECONDS = 5.0
"""An operator who asks how things are learns that Placement hangs, before his own question is given up."""
CONSUMER_CONFLICT = "consumer generation conflict"
_EXPECTED = re.compile(rf"{CONSUMER_CONFLICT} - expected (\d+|null) but got")
NOBODYS_GENERATION = -1


@dataclass(frozen=True)
class PlacementClient:
    """One for a whole process; ``by`` says for whom a request is made. Every method raises ``PlacementUnavailable`` when
    Placement doesn't answer, and ``PlacementRefused`` with its words when it doesn't understand."""

    transport: Transport
    caller: Caller = field(default_factory=Caller)

    def by(self, source: str, context: RequestContext | None = None, server: str | None = None) -> PlacementClient:
        """The same client, whose requests are told as ``source``'s, for that request and server."""
        return replace(self, caller=Caller.of(source, context, server))

    def check(self, seconds: float = CHECK_SECONDS) -> None:
        """One request, not sent again, whose answer may take so long. Raises ``PlacementUnavailable``."""
        replace(self, transport=replace(self.transport, patience=0, timeout=seconds)).provider_named("")

    # --- providers ---

    def provider_named(self, name: str) -> ProviderRecord | None:
        found = self._providers({"name": name})
        return found[0] if found else None

    def in_tree(self, root_uuid: str) -> tuple[ProviderRecord, ...]:
        """The root and all below it; nothing when there is no such provider."""
        return self._providers({"in_tree": root_uuid})

    def providers(self) -> tuple[ProviderRecord, ...]:
        """All there are, also those of other services."""
        return self._providers({})

    def create_provider(self, uuid: str, name: str, parent_uuid: str | None = None) -> ProviderRecord:
        """One that exists with this UUID and name already is answered as it is. Raises ``PlacementRefused`` when UUID or name is
        another provider's."""
        body = {"uuid": uuid, "name": name, **({} if parent_uuid is None else {"parent_provider_uuid": parent_uuid})}
        answer = self._send("POST", "/resource_providers", body=body)
        if answer.status_code == 409:
            known = self.provider_named(name)
            if known is not None and known.uuid == uuid:
                return known
        return _checked(answer).read(_provider)

    def delete_provider(self, uuid: str) -> None:
        """One that is gone already: nothing happens. Raises ``PlacementInventoryInUse`` while somebody has allocations of it."""
        answer = self._send("DELETE", f"/resource_providers/{quoted(uuid)}")
        if answer.status_code == 409:
            raise PlacementInventoryInUse(reason=detail_of(answer))
        if answer.status_code != 404:
            _checked(answer)

    def _providers(self, query: Mapping[str, str]) -> tuple[ProviderRecord, ...]:
        return _checked(self._send("GET", "/resource_providers", query=query)).read(_providers)

    # --- what providers have ---

    def inventories(self, uuid: str) -> tuple[int, Mapping[str, Mapping[str, Any]]]:
        """The provider's generation, and its inventories by class."""
        answer = _checked(self._send("GET", f"/resource_providers/{quoted(uuid)}/inventories"))
        return answer.read(lambda content: (content["resource_provider_generation"], content["inventories"]))

    def set_inventories(self, uuid: str, generation: int, inventories: Mapping[str, Mapping[str, Any]]) -> int:
        """All of them; what is not named is taken away. Answers the new generation. Raises ``PlacementGenerationConflict``,
        ``PlacementInventoryInUse``."""
        body = {"resource_provider_generation": generation, "inventories": {k: dict(v) for k, v in inventories.items()}}
        return self._changed(uuid, self._send("PUT", f"/resource_providers/{quoted(uuid)}/inventories", body=body))

    def usages(self, uuid: str) -> Resources:
        """How much of each class is allocated."""
        answer = _checked(self._send("GET", f"/resource_providers/{quoted(uuid)}/usages"))
        usages: Resources = answer.read(lambda content: content["usages"])
        return usages

    def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        answer = _checked(self._send("GET", f"/resource_providers/{quoted(uuid)}/traits"))
        return answer.read(lambda content: (content["resource_provider_generation"], frozenset(content["traits"])))

    def set_traits(self, uuid: str, generation: int, traits: frozenset[str]) -> int:
        """All of them. Custom ones must exist. Answers the new generation. Raises ``PlacementGenerationConflict``."""
        body = {"resource_provider_generation": generation, "traits": sorted(traits)}
        return self._changed(uuid, self._send("PUT", f"/resource_providers/{quoted(uuid)}/traits", body=body))

    def ensure_class(self, name: str) -> None:
        """A custom class exists from now on."""
        _checked(self._send("PUT", f"/resource_classes/{quoted(name)}"))

    def ensure_trait(self, name: str) -> None:
        """A custom trait exists from now on."""
        _checked(self._send("PUT", f"/traits/{quoted(name)}"))

    def aggregates(self, uuid: str) -> frozenset[str]:
        """The UUIDs of those that the provider itself is in."""
        answer = _checked(self._send("GET", f"/resource_providers/{quoted(uuid)}/aggregates"))
        return answer.read(lambda content: frozenset(content["aggregates"]))

    def _changed(self, uuid: str, answer: Answer) -> int:
        if answer.status_code == 409:
            code, detail = error_of(answer)
            if code == IN_USE or "in use" in detail:
                raise PlacementInventoryInUse(reason=detail)
            raise PlacementGenerationConflict(provider=uuid, reason=detail)
        new: int = _checked(answer).read(lambda content: content["resource_provider_generation"])
        return new

    # --- who has what of them ---

    def eligible(self, group: RequestGroup, root_uuid: str | None) -> tuple[str, ...]:
        """The providers that could serve the whole group now: enough of each class is free, traits are right, and they themselves are in
        the group's aggregates. ``root_uuid``: of this tree alone. Raises ``PlacementUnknownName``."""
        return tuple(provider.uuid for provider in self.eligible_providers(group, root_uuid))

    def eligible_providers(self, group: RequestGroup, root_uuid: str | None) -> tuple[ProviderRecord, ...]:
        """As ``eligible``, with the roots of the providers."""
        query: dict[str, str | list[str]] = {} if root_uuid is None else {"in_tree": root_uuid}
        if group.resources:
            query["resources"] = ",".join(f"{name}:{amount}" for name, amount in sorted(group.resources.items()))
        wanted = [*sorted(group.required), *(f"!{name}" for name in sorted(group.forbidden))]
        if wanted:
            query["required"] = ",".join(wanted)
        aggregates = sorted(group.member_of)
        if group.outside_of:
            aggregates.append(f"!in:{','.join(sorted(group.outside_of))}")
        if aggregates:
            query["member_of"] = aggregates
        answer = self._send("GET", "/resource_providers", query=query)
        if answer.status_code == 400:
            unknown = _unknown_names(detail_of(answer), group)
            if unknown and unknown <= group.forbidden:  # what doesn't exist, nobody has
                return self.eligible_providers(replace(group, forbidden=group.forbidden - unknown), root_uuid)
            if unknown:
                raise PlacementUnknownName(names=", ".join(sorted(unknown)))
        return _checked(answer).read(_providers)

    def provider_allocations(self, uuid: str) -> Mapping[str, Resources]:
        """By consumer, what it has of the provider; nothing when there is no such provider."""
        answer = self._send("GET", f"/resource_providers/{quoted(uuid)}/allocations")
        if answer.status_code == 404:
            return {}
        return _checked(answer).read(_resources)

    def allocations(self, consumer: str) -> ConsumerAllocations:
        return _checked(self._send("GET", f"/allocations/{quoted(consumer)}")).read(_consumer)

    def put_allocations(
        self,
        consumer: str,
        by_provider: Mapping[str, Resources],
        project: str,
        user: str,
        generation: int | None = None,
    ) -> None:
        """The consumer has exactly this from now on, all or nothing. ``generation`` is the consumer's as it was read (None: it has
        nothing yet). A consumer that was left without anything when Placement died is taken over.

        Raises ``PlacementConflict`` when there is no room or a provider is gone, ``PlacementConsumerConflict`` when somebody else wrote
        the consumer's allocations meanwhile. Writes that only lost against others of the same provider are repeated.
        """
        body = _written(ConsumerAllocations(generation, project, user, by_provider))
        settled = False
        for _ in range(CONFLICT_TRIES):
            answer = self._send("PUT", f"/allocations/{quoted(consumer)}", body=body)
            if answer.status_code == 204:
                return
            code, detail = error_of(answer)
            if answer.status_code not in (400, 409):
                _checked(answer)
            if code != CONCURRENT:
                raise PlacementConflict(reason=detail)
            if CONSUMER_CONFLICT in detail:
                held = self.allocations(consumer).by_provider
                if _same(held, by_provider):  # perhaps our own write, whose answer was lost
                    return
                if held or body["consumer_generation"] is not None:
                    raise PlacementConsumerConflict(consumer=consumer, reason=detail)
                if settled:
                    body["consumer_generation"] = _expected_generation(detail)
                else:
                    settled = True
                    self.transport.pause(SETTLE_SECONDS)
                continue
            self.transport.pause(random.uniform(0, LONGEST_PAUSE_SECONDS))
        raise PlacementConflict(reason=f"others changed the same providers {CONFLICT_TRIES} times")

    def replace_allocations(self, consumer: str, by_provider: Mapping[str, Resources], project: str, user: str) -> None:
        """As ``put_allocations``, in place of whatever the consumer has: by whom it was written doesn't count."""
        generation: int | None = None
        for _ in range(CONFLICT_TRIES):
            try:
                self.put_allocations(consumer, by_provider, project, user, generation)
            except PlacementConsumerConflict:
                generation = self.allocations(consumer).generation
            else:
                return
        raise PlacementConflict(reason=f"others changed the allocations of {consumer} {CONFLICT_TRIES} times")

    def delete_allocations(self, consumer: str) -> None:
        """The consumer has nothing any more. One that has nothing: nothing happens."""
        for _ in range(CONFLICT_TRIES):
            answer = self._send("DELETE", f"/allocations/{quoted(consumer)}")
            if answer.status_code != 409:
                break
            self.transport.pause(random.uniform(0, LONGEST_PAUSE_SECONDS))
        if answer.status_code != 404:
            _checked(answer)

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Mapping[str, Any]]]],
        allocations: Mapping[str, ConsumerAllocations],
    ) -> None:
        """Inventories (with the provider's generation) and allocations change in one step. Raises
        ``PlacementGenerationConflict``, ``PlacementInventoryInUse``, ``PlacementConflict``."""
        answer = self._reshape(inventories, allocations)
        new = any(of.generation is None for of in allocations.values())
        if answer.status_code == 409 and new and CONSUMER_CONFLICT in detail_of(answer):
            self.transport.pause(SETTLE_SECONDS)
            answer = self._reshape(inventories, {name: self._taken_over(name, of) for name, of in allocations.items()})
        if answer.status_code == 409:
            code, detail = error_of(answer)
            if code == IN_USE:
                raise PlacementInventoryInUse(reason=detail)
            if code == CONCURRENT:
                raise PlacementGenerationConflict(provider=", ".join(inventories), reason=detail)
            raise PlacementConflict(reason=detail)
        if answer.status_code != 204:
            _checked(answer)

    def _reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Mapping[str, Any]]]],
        allocations: Mapping[str, ConsumerAllocations],
    ) -> Answer:
        body = {
            "inventories": {
                uuid: {"resource_provider_generation": generation, "inventories": {k: dict(v) for k, v in of.items()}}
                for uuid, (generation, of) in inventories.items()
            },
            "allocations": {consumer: _written(held) for consumer, held in allocations.items()},
        }
        return self._send("POST", "/reshaper", body=body)

    def _taken_over(self, consumer: str, wanted: ConsumerAllocations) -> ConsumerAllocations:
        """With the generation of a consumer that was left without anything. A write that can't succeed asks for it: what reads tells
        nothing of such a consumer, and the conflict of several consumers doesn't name the one."""
        if wanted.generation is not None or self.allocations(consumer).by_provider:
            return wanted
        body = _written(replace(wanted, generation=NOBODYS_GENERATION))
        answer = self._send("PUT", f"/allocations/{quoted(consumer)}", body=body)
        return replace(wanted, generation=_expected_generation(detail_of(answer)))

    def _send(
        self, method: str, path: str, *, query: Mapping[str, str | Sequence[str]] | None = None, body: object = None
    ) -> Answer:
        return self.transport.request(self.caller, method, path, query=query, body=body)


def _checked(answer: Answer) -> Answer:
    """An answer that is none of an error. Raises ``PlacementRefused``."""
    if answer.status_code >= 400:
        raise PlacementRefused(request=answer.request, reason=detail_of(answer))
    return answer


def _provider(entry: Mapping[str, Any]) -> ProviderRecord:
    return ProviderRecord(
        uuid=entry["uuid"],
        name=entry["name"],
        generation=entry["generation"],
        parent_uuid=entry["parent_provider_uuid"],
        root_uuid=entry["root_provider_uuid"],
    )


def _providers(content: Mapping[str, Any]) -> tuple[ProviderRecord, ...]:
    return tuple(_provider(entry) for entry in content["resource_providers"])


def _resources(content: Mapping[str, Any]) -> Mapping[str, Resources]:
    """By consumer, or by provider: whichever was asked for the other."""
    return {name: entry["resources"] for name, entry in content["allocations"].items()}


def _consumer(content: Mapping[str, Any]) -> ConsumerAllocations:
    return ConsumerAllocations(
        generation=content.get("consumer_generation"),
        project=content.get("project_id"),
        user=content.get("user_id"),
        by_provider=_resources(content),
    )


def _unknown_names(detail: str, group: RequestGroup) -> frozenset[str]:
    """Of a refusal's text: which names of the group it means. They end it, after a colon or a blank."""
    words = set(detail.replace(",", " ").replace(".", " ").replace("'", " ").split())
    return frozenset(name for name in (*group.resources, *group.required, *group.forbidden) if name in words)


def _written(wanted: ConsumerAllocations) -> dict[str, Any]:
    """As Placement takes it."""
    return {
        "allocations": {uuid: {"resources": dict(resources)} for uuid, resources in wanted.by_provider.items()},
        "project_id": wanted.project,
        "user_id": wanted.user,
        "consumer_generation": wanted.generation,
    }


def _expected_generation(detail: str) -> int | None:
    """Of a conflict's text: which generation the consumer has (None: Placement doesn't know it). It isn't 0 when a delete was cut short;
    words that can't be read are taken for the usual one."""
    found = _EXPECTED.search(detail)
    if found is None:
        return 0
    return None if found[1] == "null" else int(found[1])


def _same(one: Mapping[str, Resources], other: Mapping[str, Resources]) -> bool:
    def plain(of: Mapping[str, Resources]) -> dict[str, dict[str, int]]:
        return {uuid: dict(resources) for uuid, resources in of.items() if resources}

    return plain(one) == plain(other)

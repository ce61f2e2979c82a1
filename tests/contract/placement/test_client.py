"""The client against the real Placement."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa

from jetbridge.errors import (
    PlacementConflict,
    PlacementGenerationConflict,
    PlacementInventoryInUse,
    PlacementRefused,
    PlacementUnknownName,
)
from jetbridge.journey.seams import Seams
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.events import Seam, SeamEvent
from jetbridge.model.request_group import RequestGroup
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.records import ConsumerAllocations, ProviderRecord
from tests.contract.placement.conftest import Ledger

GPU = "CUSTOM_GPU"


def new_id() -> str:
    return str(uuid.uuid4())


def host(client: PlacementClient, name: str = "gpu1", devices: int = 2) -> tuple[ProviderRecord, list[ProviderRecord]]:
    """A root with CPUs, and children of one GPU each; the first of them is fast."""
    client.ensure_class(GPU)
    client.ensure_trait("CUSTOM_FAST")
    root = client.create_provider(new_id(), name)
    client.set_inventories(root.uuid, root.generation, {"VCPU": {"total": 8}})
    children = []
    for number in range(devices):
        child = client.create_provider(new_id(), f"{name}_{number}", root.uuid)
        generation = client.set_inventories(child.uuid, child.generation, {GPU: {"total": 1, "max_unit": 1}})
        if number == 0:
            client.set_traits(child.uuid, generation, frozenset({"CUSTOM_FAST"}))
        children.append(child)
    return root, children


def take(client: PlacementClient, consumer: str, *providers: str, **more: int | None) -> None:
    client.put_allocations(consumer, {uuid: {GPU: 1} for uuid in providers}, "project", "user", **more)


def test_providers_are_found_by_name_and_in_their_tree(ledger: Ledger) -> None:
    root, children = host(ledger.client)
    found = ledger.client.provider_named("gpu1_1")
    assert found is not None
    assert (found.uuid, found.parent_uuid, found.root_uuid) == (children[1].uuid, root.uuid, root.uuid)
    assert ledger.client.provider_named("gpu2") is None
    assert {each.uuid for each in ledger.client.in_tree(root.uuid)} == {root.uuid, *(each.uuid for each in children)}
    assert ledger.client.in_tree(new_id()) == ()


def test_a_provider_is_made_once_and_another_one_of_its_name_is_refused(ledger: Ledger) -> None:
    mine = new_id()
    assert ledger.client.create_provider(mine, "gpu1").uuid == mine
    assert ledger.client.create_provider(mine, "gpu1").uuid == mine
    with pytest.raises(PlacementRefused, match="gpu1"):
        ledger.client.create_provider(new_id(), "gpu1")


def test_generations_guard_what_was_changed_meanwhile(ledger: Ledger) -> None:
    root, _ = host(ledger.client)
    generation, inventories = ledger.client.inventories(root.uuid)
    assert inventories["VCPU"]["total"] == 8
    assert ledger.client.set_inventories(root.uuid, generation, {"VCPU": {"total": 16}}) == generation + 1
    with pytest.raises(PlacementGenerationConflict):
        ledger.client.set_inventories(root.uuid, generation, {"VCPU": {"total": 4}})
    with pytest.raises(PlacementGenerationConflict):
        ledger.client.set_traits(root.uuid, generation, frozenset({"CUSTOM_FAST"}))
    assert ledger.client.set_traits(root.uuid, generation + 1, frozenset({"CUSTOM_FAST"})) == generation + 2
    assert ledger.client.traits(root.uuid) == (generation + 2, frozenset({"CUSTOM_FAST"}))


def test_what_is_in_use_can_be_taken_away_by_nobody(ledger: Ledger) -> None:
    _, (child, _) = host(ledger.client)
    consumer = new_id()
    take(ledger.client, consumer, child.uuid)
    generation, _ = ledger.client.inventories(child.uuid)
    with pytest.raises(PlacementInventoryInUse):
        ledger.client.set_inventories(child.uuid, generation, {})
    with pytest.raises(PlacementInventoryInUse):
        ledger.client.delete_provider(child.uuid)
    ledger.client.delete_allocations(consumer)
    ledger.client.delete_provider(child.uuid)
    ledger.client.delete_provider(child.uuid)


def test_eligible_are_the_free_ones_with_the_right_traits(ledger: Ledger) -> None:
    root, (fast, slow) = host(ledger.client)
    other, _ = host(ledger.client, "gpu2")
    client = ledger.client

    def eligible(root: ProviderRecord | None = root, **group: object) -> set[str]:
        wanted = RequestGroup("g", {GPU: 1}, **group)  # type: ignore[arg-type]
        return set(client.eligible(wanted, root.uuid if root else None))

    assert eligible() == {fast.uuid, slow.uuid}
    assert eligible(required=frozenset({"CUSTOM_FAST"})) == {fast.uuid}
    assert eligible(forbidden=frozenset({"CUSTOM_FAST"})) == {slow.uuid}
    assert eligible(forbidden=frozenset({"CUSTOM_NEVER_HEARD_OF"})) == {fast.uuid, slow.uuid}
    assert len(eligible(None)) == 4
    found = client.eligible_providers(RequestGroup("g", {GPU: 1}), None)
    assert {provider.root_uuid for provider in found} == {root.uuid, other.uuid}
    take(client, new_id(), fast.uuid)
    assert eligible() == {slow.uuid}
    generation, _ = client.inventories(slow.uuid)
    client.set_inventories(slow.uuid, generation, {GPU: {"total": 1, "reserved": 1}})
    assert eligible() == set()


def test_names_that_nobody_reported_are_told(ledger: Ledger) -> None:
    root, _ = host(ledger.client)
    with pytest.raises(PlacementUnknownName, match="CUSTOM_NOTHING"):
        ledger.client.eligible(RequestGroup("g", {"CUSTOM_NOTHING": 1}), root.uuid)
    with pytest.raises(PlacementUnknownName, match="CUSTOM_ODD"):
        ledger.client.eligible(RequestGroup("g", {GPU: 1}, frozenset({"CUSTOM_ODD", "CUSTOM_FAST"})), root.uuid)


def test_an_allocation_is_all_or_nothing(ledger: Ledger) -> None:
    _, (first, second) = host(ledger.client)
    winner, loser = new_id(), new_id()
    take(ledger.client, winner, first.uuid)
    with pytest.raises(PlacementConflict):
        take(ledger.client, loser, first.uuid, second.uuid)
    assert ledger.client.allocations(loser) == ConsumerAllocations()
    assert ledger.client.provider_allocations(first.uuid) == {winner: {GPU: 1}}
    assert ledger.client.provider_allocations(second.uuid) == {}
    assert ledger.client.usages(first.uuid) == {GPU: 1}


def test_an_allocation_is_replaced_by_who_has_read_it(ledger: Ledger) -> None:
    _, (first, second) = host(ledger.client)
    consumer = new_id()
    take(ledger.client, consumer, first.uuid)
    take(ledger.client, consumer, first.uuid)  # as when the first answer was lost
    with pytest.raises(PlacementConflict):
        take(ledger.client, consumer, second.uuid)
    held = ledger.client.allocations(consumer)
    assert (held.by_provider, held.project, held.user) == ({first.uuid: {GPU: 1}}, "project", "user")
    take(ledger.client, consumer, second.uuid, generation=held.generation)
    assert ledger.client.allocations(consumer).by_provider == {second.uuid: {GPU: 1}}
    ledger.client.delete_allocations(consumer)
    ledger.client.delete_allocations(consumer)
    assert ledger.client.allocations(consumer) == ConsumerAllocations()


def test_of_a_provider_that_is_gone_nothing_is_allocated(ledger: Ledger) -> None:
    host(ledger.client)
    with pytest.raises(PlacementConflict):
        take(ledger.client, new_id(), new_id())


def test_eight_at_once_get_eight_devices_and_the_ninth_none(ledger: Ledger) -> None:
    _, children = host(ledger.client, devices=8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda child: take(ledger.client, new_id(), child.uuid), children))
    assert all(ledger.client.usages(child.uuid) == {GPU: 1} for child in children)


def test_of_eight_at_once_for_one_device_one_gets_it(ledger: Ledger) -> None:
    _, (child,) = host(ledger.client, devices=1)

    def won(_: int) -> bool:
        try:
            take(ledger.client, new_id(), child.uuid)
        except PlacementConflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(won, range(8))) == 1
    assert len(ledger.client.provider_allocations(child.uuid)) == 1


def test_inventories_and_allocations_move_in_one_step(ledger: Ledger) -> None:
    _, (first, second) = host(ledger.client)
    consumer = new_id()
    take(ledger.client, consumer, first.uuid)
    generations = {uuid: ledger.client.inventories(uuid)[0] for uuid in (first.uuid, second.uuid)}
    held = ledger.client.allocations(consumer)
    ledger.client.reshape(
        {first.uuid: (generations[first.uuid], {}), second.uuid: (generations[second.uuid], {GPU: {"total": 1}})},
        {consumer: ConsumerAllocations(held.generation, held.project, held.user, {second.uuid: {GPU: 1}})},
    )
    assert ledger.client.allocations(consumer).by_provider == {second.uuid: {GPU: 1}}
    assert ledger.client.inventories(first.uuid)[1] == {}


def leave_behind(ledger: Ledger, consumer: str, generation: int = 0) -> None:
    """The consumer as Placement leaves it when it dies between making it and writing what it has."""
    with sa.create_engine(f"sqlite:///{ledger.database}").begin() as conn:
        for table in ("projects", "users"):
            conn.execute(sa.text(f"INSERT OR IGNORE INTO {table} (external_id) VALUES ('of the dead')"))
        conn.execute(
            sa.text(
                "INSERT INTO consumers (uuid, project_id, user_id, generation)"
                " SELECT :uuid, projects.id, users.id, :generation FROM projects, users LIMIT 1"
            ),
            {"uuid": consumer, "generation": generation},
        )


@pytest.mark.parametrize("generation", [0, 7])
def test_a_consumer_that_a_dying_placement_left_without_anything_is_taken_over(ledger: Ledger, generation: int) -> None:
    _, (first, second) = host(ledger.client)
    consumer = new_id()
    leave_behind(ledger, consumer, generation)
    assert ledger.client.allocations(consumer) == ConsumerAllocations()
    ledger.client.delete_allocations(consumer)
    take(ledger.client, consumer, first.uuid)
    held = ledger.client.allocations(consumer)
    assert (held.by_provider, held.project, held.user) == ({first.uuid: {GPU: 1}}, "project", "user")
    take(ledger.client, consumer, second.uuid, generation=held.generation)
    ledger.client.delete_allocations(consumer)
    take(ledger.client, consumer, first.uuid)


def test_a_reshape_takes_over_whom_a_dying_placement_left_without_anything(ledger: Ledger) -> None:
    _, children = host(ledger.client, devices=4)
    known, *new = (new_id() for _ in children)
    take(ledger.client, known, children[0].uuid)
    for generation, consumer in enumerate(new[1:]):
        leave_behind(ledger, consumer, generation)
    wanted = {
        consumer: ConsumerAllocations(None, "project", "user", {child.uuid: {GPU: 1}})
        for consumer, child in zip((known, *new), children, strict=True)
    }
    wanted[known] = replace(wanted[known], generation=ledger.client.allocations(known).generation)
    last = children[-1].uuid
    inventories = {last: (ledger.client.inventories(last)[0], {GPU: {"total": 2}})}
    ledger.client.reshape(inventories, wanted)
    assert {name: ledger.client.allocations(name).by_provider for name in wanted} == {
        name: of.by_provider for name, of in wanted.items()
    }
    with pytest.raises(PlacementGenerationConflict):  # what somebody has is not taken over
        ledger.client.reshape(
            {last: (ledger.client.inventories(last)[0], {GPU: {"total": 2}})},
            {known: replace(wanted[known], generation=None)},
        )


def after_nth_look(ledger: Ledger, consumer: str, count: int, write: Callable[[], None]) -> PlacementClient:
    """A client that somebody is faster than: ``write`` happens when it has looked ``count`` times at what the consumer has."""
    looks = 0

    def watch(event: SeamEvent) -> None:
        nonlocal looks
        if event.what == f"GET /allocations/{consumer}":
            looks += 1
            if looks == count:
                write()

    return replace(ledger.client, transport=replace(ledger.client.transport, seams=Seams(events=watch)))


@pytest.mark.parametrize("count", [1, 2])
def test_whom_somebody_else_took_over_first_is_his(ledger: Ledger, count: int) -> None:
    _, (first, second) = host(ledger.client)
    consumer = new_id()
    leave_behind(ledger, consumer)
    slow = after_nth_look(ledger, consumer, count, lambda: take(ledger.client, consumer, first.uuid))
    with pytest.raises(PlacementConflict):
        take(slow, consumer, second.uuid)
    assert ledger.client.allocations(consumer).by_provider == {first.uuid: {GPU: 1}}


def test_a_placement_that_dies_is_a_delay(ledger: Ledger) -> None:
    root, _ = host(ledger.client)
    child = ledger.server._child
    assert child is not None
    child.kill()
    assert ledger.client.provider_named("gpu1") is not None
    assert ledger.client.provider_named("gpu1") == ledger.client.in_tree(root.uuid)[0]


def test_requests_are_told_as_rest_with_who_asks(ledger: Ledger) -> None:
    context = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-1")
    ledger.client.by("scheduler", context, "server-1").provider_named("gpu1")
    (event,) = ledger.events
    assert (event.seam, event.source, event.target) == (Seam.REST, "scheduler", "placement")
    assert (event.what, event.request_id, event.server) == ("GET /resource_providers", "req-1", "server-1")
    assert event.essentials == {"name": "gpu1", "status": "200"}

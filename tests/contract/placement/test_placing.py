"""What the scheduler makes of the real Placement's answers: which providers serve a server, and what it is asked for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.verdict import Selection
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import PciRequest
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.groups import flavor_groups, pci_groups
from jetbridge.placement.records import ProviderRecord
from jetbridge.reasons import Reason
from jetbridge.scheduler.cards import MOST_ASKED_ABOUT, Card
from jetbridge.scheduler.placement import HOSTS_ASKED_ONE_BY_ONE, Placing
from tests.contract.placement.conftest import Ledger
from tests.unit.scheduler.build import CONTEXT, FLAVOR, new_id, pool, request, spec, state

GPU = "CUSTOM_PCI_10DE_1EB8"
AGGREGATE, OTHER = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"


@dataclass(frozen=True)
class Host:
    """``root`` has 64 CPUs, ``devices`` a GPU each; ``state`` is the host as the scheduler sees it."""

    root: ProviderRecord
    devices: tuple[ProviderRecord, ...]
    state: HostState

    def name_of(self, uuid: str) -> str:
        return {each.uuid: each.name for each in (self.root, *self.devices)}[uuid]


def made(client: PlacementClient, name: str = "h", devices: int = 2, **facts: Any) -> Host:
    client.ensure_class(GPU)
    root = child(client, name, {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000})
    children = tuple(child(client, f"{name}_{number}", {GPU: 1}, root) for number in range(devices))
    pools = tuple(
        replace(pool(address=f"0000:{at + 1:02x}:00.0", **facts), rp_uuid=each.uuid) for at, each in enumerate(children)
    )
    return Host(root, children, seen(root, pools))


def seen(root: ProviderRecord, pools: tuple[Pool, ...]) -> HostState:
    return replace(state(root.name, pools=pools), uuid=root.uuid)


def child(
    client: PlacementClient, name: str, totals: Mapping[str, int], root: ProviderRecord | None = None
) -> ProviderRecord:
    record = client.create_provider(new_id(), name, root.uuid if root else None)
    wanted = {resource: {"total": total, "max_unit": total} for resource, total in totals.items()}
    generation = client.set_inventories(record.uuid, record.generation, wanted)
    client.set_traits(record.uuid, generation, frozenset({"OWNER_NOVA"}))
    return record


def add_traits(client: PlacementClient, provider: ProviderRecord, *names: str) -> None:
    for name in names:
        client.ensure_trait(name)
    generation, traits = client.traits(provider.uuid)
    client.set_traits(provider.uuid, generation, traits | set(names))


def set_aggregates(ledger: Ledger, provider: ProviderRecord, *aggregates: str) -> None:
    """As an operator does it: we never write any."""
    client = ledger.client
    generation, _ = client.inventories(provider.uuid)
    body = {"resource_provider_generation": generation, "aggregates": list(aggregates)}
    path = f"/resource_providers/{provider.uuid}/aggregates"
    assert client.transport.request(client.caller, "PUT", path, body=body).status_code == 200
    assert client.aggregates(provider.uuid) == set(aggregates)


def wanting(*requests: PciRequest, **extra_specs: str) -> RequestSpec:
    """``extra_specs``: a colon in their names is written as two underscores."""
    specs = {name.replace("__", ":"): value for name, value in extra_specs.items()}
    groups = (*flavor_groups(specs), *pci_groups(requests))
    return spec(*requests, flavor=replace(FLAVOR, extra_specs=specs), groups=groups)


def place(ledger: Ledger, host: Host, wanted: RequestSpec) -> Selection | Reason:
    return Placing(ledger.client, CONTEXT, wanted, packing=False).place(host.state)


def placed(ledger: Ledger, host: Host, wanted: RequestSpec) -> dict[str, dict[str, int]]:
    """What the server has then, by provider's name."""
    answer = place(ledger, host, wanted)
    assert isinstance(answer, Selection), answer
    held = ledger.client.allocations(wanted.instance_uuid).by_provider
    return {host.name_of(uuid): dict(amounts) for uuid, amounts in held.items()}


def refused(ledger: Ledger, host: Host, wanted: RequestSpec) -> str:
    answer = place(ledger, host, wanted)
    assert isinstance(answer, Reason), answer
    assert ledger.client.allocations(wanted.instance_uuid).by_provider == {}
    return answer.text


def asked(ledger: Ledger, host: Host, wanted: RequestSpec) -> list[str]:
    before = len(ledger.events)
    placed(ledger, host, wanted)
    return [event.what.partition("?")[0] for event in ledger.events[before:-1]]  # the last is our own look


SIZES = {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 10}


def test_a_server_without_devices_is_one_request(ledger: Ledger) -> None:
    host = made(ledger.client)
    wanted = wanting()
    assert placed(ledger, host, wanted) == {"h": SIZES}
    assert len(asked(ledger, host, wanting())) == 1


@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_number_of_requests_does_not_grow_with_the_devices(ledger: Ledger, count: int) -> None:
    host = made(ledger.client, devices=8)
    wanted = wanting(request(count))
    what = asked(ledger, host, wanted)
    assert what == ["GET /resource_providers", f"PUT /allocations/{wanted.instance_uuid}"]


def test_a_device_that_an_operator_reserved_or_somebody_else_took_is_not_given(ledger: Ledger) -> None:
    host = made(ledger.client, devices=3)
    first, second, third = host.devices
    generation, _ = ledger.client.inventories(first.uuid)
    ledger.client.set_inventories(first.uuid, generation, {GPU: {"total": 1, "reserved": 1}})
    ledger.client.put_allocations(new_id(), {second.uuid: {GPU: 1}}, "p", "u")
    assert placed(ledger, host, wanting(request())) == {"h": SIZES, third.name: {GPU: 1}}
    assert "no free CUSTOM_PCI_10DE_1EB8" in refused(ledger, host, wanting(request()))


def test_devices_that_are_reserved_are_told_and_whose_they_would_be(ledger: Ledger) -> None:
    host = made(ledger.client)
    for device in host.devices:
        generation, _ = ledger.client.inventories(device.uuid)
        ledger.client.set_inventories(device.uuid, generation, {GPU: {"total": 1, "reserved": 1}})
    answer = place(ledger, host, wanting(request(name="GPU")))
    assert isinstance(answer, Reason)
    assert (answer.request, answer.text) == ("GPU", f"Placement has no free {GPU}: 2 are reserved there")


def test_what_others_took_between_question_and_write_is_asked_again(ledger: Ledger) -> None:
    """The card has three functions by our tables; Placement has two of them left, which it says only by refusing three."""
    client = ledger.client
    client.ensure_class(GPU)
    root = child(client, "h", {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000})
    card, other = child(client, "h_card", {GPU: 3}, root), child(client, "h_other", {GPU: 2}, root)
    pools = (
        replace(pool(3, address="0000:01:00.0"), rp_uuid=card.uuid),
        replace(pool(2, address="0000:02:00.0"), rp_uuid=other.uuid),
    )
    host = Host(root, (card, other), seen(root, pools))
    client.put_allocations(new_id(), {card.uuid: {GPU: 1}}, "p", "u")
    held = placed(ledger, host, wanting(request(3)))
    assert sum(amounts.get(GPU, 0) for amounts in held.values()) == 3
    assert held.get("h_card", {}).get(GPU, 0) <= 2


def test_isolated_devices_are_of_different_providers(ledger: Ledger) -> None:
    client = ledger.client
    client.ensure_class(GPU)
    root = child(client, "h", {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000})
    cards = tuple(child(client, f"h_{number}", {GPU: 2}, root) for number in range(2))
    pools = tuple(
        replace(pool(2, address=f"0000:{at + 1:02x}:00.0"), rp_uuid=each.uuid) for at, each in enumerate(cards)
    )
    host = Host(root, cards, seen(root, pools))
    held = placed(ledger, host, wanting(request(2), group_policy="isolate"))
    assert held == {"h": SIZES, "h_0": {GPU: 1}, "h_1": {GPU: 1}}
    assert refused(ledger, host, wanting(request(3), group_policy="isolate"))


def test_an_unsuffixed_class_is_split_where_no_provider_has_all_of_it(ledger: Ledger) -> None:
    host = made(ledger.client, devices=3)
    held = placed(ledger, host, wanting(**{f"resources__{GPU}": "2"}))
    assert sum(amounts.get(GPU, 0) for amounts in held.values()) == 2
    assert "no free 2 CUSTOM_PCI_10DE_1EB8" in refused(ledger, host, wanting(**{f"resources__{GPU}": "2"}))


def test_suffixed_groups_are_matched_jointly(ledger: Ledger) -> None:
    host = made(ledger.client)
    add_traits(ledger.client, host.devices[0], "CUSTOM_FAST")
    both = wanting(
        **{f"resourcesA__{GPU}": "1", f"resourcesB__{GPU}": "1", "traitB__CUSTOM_FAST": "required"},
    )
    assert placed(ledger, host, both) == {"h": SIZES, "h_0": {GPU: 1}, "h_1": {GPU: 1}}
    chosen = {group.requester_id: group for group in both.groups}
    assert set(chosen) == {"A", "B"}


def test_traits_of_host_and_devices_that_operators_set(ledger: Ledger) -> None:
    host = made(ledger.client)
    add_traits(ledger.client, host.root, "CUSTOM_RACK")
    add_traits(ledger.client, host.devices[1], "CUSTOM_RED")
    assert placed(ledger, host, wanting(trait__CUSTOM_RACK="required")) == {"h": SIZES}
    assert "which the flavor forbids" in refused(ledger, host, wanting(trait__CUSTOM_RACK="forbidden"))
    red = wanting(**{f"resources1__{GPU}": "1", "trait1__CUSTOM_RED": "forbidden"})
    assert placed(ledger, host, red) == {"h": SIZES, "h_0": {GPU: 1}}


def test_aggregates_that_operators_set_on_hosts(ledger: Ledger) -> None:
    host = made(ledger.client)
    inside, outside = {f"member_of__{AGGREGATE}": "required"}, {f"member_of__{AGGREGATE}": "forbidden"}
    assert f"the host is not in aggregate {AGGREGATE}" in refused(ledger, host, wanting(**inside))
    assert placed(ledger, host, wanting(**outside)) == {"h": SIZES}
    set_aggregates(ledger, host.root, AGGREGATE, OTHER)
    assert placed(ledger, host, wanting(**inside)) == {"h": SIZES}
    assert "which the flavor forbids" in refused(ledger, host, wanting(**outside))
    # A host's aggregate is also that of its devices.
    devices = {f"resources1__{GPU}": "1", f"member_of1__{AGGREGATE}": "required", f"member_of1__{OTHER}": "required"}
    assert len(placed(ledger, host, wanting(**devices))) == 2
    both = wanting(request(), **inside)
    assert len(placed(ledger, host, both)) == 2


def test_aggregates_that_operators_set_on_devices(ledger: Ledger) -> None:
    host = made(ledger.client, devices=3)
    set_aggregates(ledger, host.devices[1], AGGREGATE)
    wanted = {f"resources1__{GPU}": "1", f"member_of1__{AGGREGATE}": "required"}
    assert placed(ledger, host, wanting(**wanted)) == {"h": SIZES, "h_1": {GPU: 1}}
    assert f"in aggregate {AGGREGATE}" in refused(ledger, host, wanting(**wanted))
    set_aggregates(ledger, host.devices[0], OTHER)
    unwanted = {f"resources1__{GPU}": "1", f"member_of1__{OTHER}": "forbidden"}
    assert placed(ledger, host, wanting(**unwanted)) == {"h": SIZES, "h_2": {GPU: 1}}
    # Of the unsuffixed keys' providers too.
    loose = {f"resources__{GPU}": "1", f"member_of__{OTHER}": "forbidden"}
    assert "outside of aggregate" in refused(ledger, host, wanting(**loose))


def test_after_three_hosts_all_are_asked_about_at_once(ledger: Ledger) -> None:
    hosts = [made(ledger.client, f"h{number}", devices=1) for number in range(6)]
    for host in hosts[:5]:
        ledger.client.put_allocations(new_id(), {host.devices[0].uuid: {GPU: 1}}, "p", "u")
    placing = Placing(ledger.client, CONTEXT, wanting(request()), packing=False)
    ledger.events.clear()
    answers = [placing.place(host.state) for host in hosts]
    assert [isinstance(answer, Selection) for answer in answers] == [False] * 5 + [True]
    # Two a host, who has it and what is reserved, then one for the devices and one for the sizes, then nothing for those that have none.
    assert len(ledger.events) == 2 * HOSTS_ASKED_ONE_BY_ONE + 2 + 2


def test_a_host_in_the_aggregate_is_found_among_all(ledger: Ledger) -> None:
    hosts = [made(ledger.client, f"h{number}", devices=1) for number in range(5)]
    set_aggregates(ledger, hosts[4].root, AGGREGATE)
    wanted = wanting(request(), **{f"member_of__{AGGREGATE}": "required"})
    placing = Placing(ledger.client, CONTEXT, wanted, packing=False)
    answers = [placing.place(host.state) for host in hosts]
    assert [isinstance(answer, Selection) for answer in answers] == [False] * 4 + [True]


def test_a_dry_run_records_nothing(ledger: Ledger) -> None:
    host, wanted = made(ledger.client), wanting(request())
    answer = Placing(ledger.client, CONTEXT, wanted, packing=False, write=False).place(host.state)
    assert isinstance(answer, Selection)
    assert ledger.client.allocations(wanted.instance_uuid).by_provider == {}


# --- vGPU cards, which refusals name ---


def carrying(ledger: Ledger, *totals: int, name: str = "h") -> Host:
    """A host whose cards carry so many VGPU."""
    root = child(ledger.client, name, {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000})
    cards = tuple(
        child(ledger.client, f"{name}_pci_{number}", {"VGPU": total}, root) for number, total in enumerate(totals)
    )
    return Host(root, cards, seen(root, ()))


def cards_of_host(host: Host) -> tuple[Card, ...]:
    return tuple(Card(each.uuid, each.name.removeprefix("h_"), frozenset({"VGPU"})) for each in host.devices)


def not_placed(ledger: Ledger, host: Host, wanted: RequestSpec) -> str:
    placing = Placing(ledger.client, CONTEXT, wanted, packing=False, cards=lambda state: cards_of_host(host))
    answer = placing.place(host.state)
    assert isinstance(answer, Reason), answer
    return answer.text


def test_the_cards_that_are_too_small_or_full_are_named(ledger: Ledger) -> None:
    host = carrying(ledger, 4, 2)
    ledger.client.put_allocations(new_id(), {host.devices[0].uuid: {"VGPU": 3}}, "p", "u")
    said = ": card pci_0 has 1 of 4 VGPU free, card pci_1 has 2 of 2 VGPU free"
    split = wanting(resources__VGPU="4")
    assert not_placed(ledger, host, split) == f"Placement has no free 4 VGPU{said}"
    of_one = wanting(resources1__VGPU="3")
    assert not_placed(ledger, host, of_one) == f"Placement has no free 3 VGPU{said}"
    apart = wanting(resources1__VGPU="2", resources2__VGPU="2", group_policy="isolate")
    assert not_placed(ledger, host, apart).endswith(f"as group_policy isolate asks{said}")
    ledger.client.put_allocations(
        new_id(), {each.uuid: {"VGPU": n} for each, n in zip(host.devices, (1, 2), strict=True)}, "p", "u"
    )
    full = ": card pci_0 has 0 of 4 VGPU free, card pci_1 has 0 of 2 VGPU free"
    assert not_placed(ledger, host, wanting(resources__VGPU="1")) == f"Placement has no free VGPU{full}"


def test_what_a_card_lacks_is_said(ledger: Ledger) -> None:
    host = carrying(ledger, 4, 2)
    add_traits(ledger.client, host.devices[0], "CUSTOM_OLD")
    ledger.client.ensure_trait("CUSTOM_FAST")
    wanted = wanting(resources1__VGPU="1", trait1__CUSTOM_FAST="required", trait1__CUSTOM_OLD="forbidden")
    assert not_placed(ledger, host, wanted).endswith(
        ": card pci_0 has 4 of 4 VGPU free and lacks trait CUSTOM_FAST and has trait CUSTOM_OLD,"
        " card pci_1 has 2 of 2 VGPU free and lacks trait CUSTOM_FAST"
    )


def test_what_an_operator_reserved_of_a_card_is_not_free(ledger: Ledger) -> None:
    host = carrying(ledger, 4)
    generation, _ = ledger.client.inventories(host.devices[0].uuid)
    ledger.client.set_inventories(host.devices[0].uuid, generation, {"VGPU": {"total": 4, "reserved": 3}})
    assert not_placed(ledger, host, wanting(resources__VGPU="2")).endswith(": card pci_0 has 1 of 4 VGPU free")


def test_of_many_cards_some_are_asked_about_and_the_others_counted(ledger: Ledger) -> None:
    host = carrying(ledger, *([1] * (MOST_ASKED_ABOUT + 2)))
    ledger.events.clear()
    assert not_placed(ledger, host, wanting(resources1__VGPU="2")).endswith(
        "card pci_3 has 1 of 1 VGPU free, and 2 other cards"
    )
    assert len(ledger.events) == 1 + 2 * MOST_ASKED_ABOUT


def test_a_card_that_placement_does_not_have_any_more_is_left_out(ledger: Ledger) -> None:
    host = carrying(ledger, 4, 2)
    ledger.client.delete_provider(host.devices[0].uuid)
    assert not_placed(ledger, host, wanting(resources__VGPU="3")).endswith(" VGPU: card pci_1 has 2 of 2 VGPU free")


def test_cards_of_another_class_are_not_named_and_none_is_asked_about_where_the_server_fits(ledger: Ledger) -> None:
    host = carrying(ledger, 4)
    assert not_placed(ledger, host, wanting(resources__PGPU="1")) == "Placement has no free PGPU"
    ledger.events.clear()
    placing = Placing(
        ledger.client, CONTEXT, wanting(resources1__VGPU="4"), packing=False, cards=lambda state: cards_of_host(host)
    )
    assert isinstance(placing.place(host.state), Selection)
    assert len(ledger.events) == 2


def test_f17_a_flavors_own_resources_are_not_served_by_the_accelerator_service(ledger: Ledger) -> None:
    host = carrying(ledger, 1, 4)
    theirs = host.devices[1]
    generation, _ = ledger.client.traits(theirs.uuid)
    ledger.client.set_traits(theirs.uuid, generation, frozenset({"OWNER_CYBORG"}))
    assert placed(ledger, host, wanting(resources__VGPU="1")) == {"h": SIZES, "h_pci_0": {"VGPU": 1}}
    for key in ("resources__VGPU", "resources1__VGPU"):
        assert refused(ledger, host, wanting(**{key: "1"})) == "Placement has no free VGPU"


def test_f17_nor_where_all_hosts_are_asked_about_at_once(ledger: Ledger) -> None:
    hosts = [carrying(ledger, 1, name=f"h{number}") for number in range(5)]
    for host in hosts:
        generation, _ = ledger.client.traits(host.devices[0].uuid)
        ledger.client.set_traits(host.devices[0].uuid, generation, frozenset({"OWNER_CYBORG"}))
    for key in ("resources__VGPU", "resources1__VGPU"):
        placing = Placing(ledger.client, CONTEXT, wanting(**{key: "1"}), packing=False)
        answers = {str(placing.place(host.state)) for host in hosts}
        assert len(answers) == 1
        ledger.events.clear()
        placing.place(hosts[4].state)
        assert ledger.events == []  # known from the one question about all

"""Servers between the scheduler's choice and their claim."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from jetbridge.db import servers
from jetbridge.model.server import VmState
from jetbridge.placement.groups import pci_groups
from jetbridge.scheduler.inflight import LONGEST_WAIT_SECONDS, InFlight
from jetbridge.scheduler.manager import SchedulerManager
from tests.unit.scheduler.build import Cloud, gpus, request, spec, state
from tests.unit.scheduler.test_manager import ask, manager


def first_host(scheduler: SchedulerManager, uuid: str) -> str:
    return ask(scheduler, uuid)[0][0].host


def test_many_in_flight_are_spread_over_the_hosts_that_have_devices(cloud: Cloud) -> None:
    """None of them has claimed yet; each host has one device."""
    for number in range(20):
        cloud.host(f"h{number}", gpus=1)
    scheduler = manager(cloud)
    uuids = [cloud.server(spec(request())) for _ in range(20)]
    with ThreadPoolExecutor(8) as pool:
        chosen = list(pool.map(lambda uuid: first_host(scheduler, uuid), uuids))
    assert Counter(chosen) == {f"h{number}": 1 for number in range(20)}


def test_they_are_no_reason_to_refuse(cloud: Cloud) -> None:
    cloud.host("h1", gpus=1)
    scheduler = manager(cloud)
    assert [first_host(scheduler, cloud.server(spec(request()))) for _ in range(2)] == ["h1", "h1"]


def test_a_server_that_claimed_is_counted_once(cloud: Cloud) -> None:
    node = cloud.host("h1", gpus=2)
    cloud.host("h2", gpus=3)
    scheduler = manager(cloud)
    uuid = cloud.server(spec(request()))
    assert first_host(scheduler, uuid) == "h1"
    cloud.take_devices(node, uuid, 1)
    cloud.place(uuid, node)
    assert first_host(scheduler, cloud.server(spec(request()))) == "h1"


def test_a_server_that_failed_is_not_expected_any_more(cloud: Cloud) -> None:
    cloud.host("h1", gpus=1)
    cloud.host("h2", gpus=2)
    scheduler = manager(cloud)
    uuid = cloud.server(spec(request()))
    assert first_host(scheduler, uuid) == "h1"
    assert first_host(scheduler, cloud.server(spec(request()))) == "h2"
    cloud.database.write(lambda conn: servers.update(conn, uuid, vm_state=VmState.ERROR))
    assert first_host(scheduler, cloud.server(spec(request()))) == "h1"


def test_a_server_that_is_scheduled_again_is_not_in_its_own_way(cloud: Cloud) -> None:
    cloud.host("h1", gpus=1)
    cloud.host("h2", gpus=2)
    scheduler = manager(cloud)
    uuid = cloud.server(spec(request()))
    assert [first_host(scheduler, uuid) for _ in range(3)] == ["h1"] * 3


def test_a_message_that_was_lost_is_forgotten() -> None:
    now = 0.0
    book = InFlight(packing=False, monotonic=lambda: now)
    sent = spec(request())
    host = state(pools=gpus(1))
    book.add(host.compute_node_id, sent)
    assert book.applied([host])[0].pools == ()
    now = LONGEST_WAIT_SECONDS
    book.keep_only({sent.instance_uuid})
    assert book.applied([host]) == (host,)
    assert book.servers == frozenset()


def test_who_is_on_the_way_takes_the_devices_of_the_providers_that_placement_gave() -> None:
    """Also when it was counted before Placement had answered."""
    book, asked = InFlight(packing=False), request()
    sent = spec(asked, groups=pci_groups([asked]))
    cards = tuple(replace(each, rp_uuid=f"rp-{each.address[5:7]}") for each in gpus(2))
    host = state(pools=cards)

    def left() -> list[str]:
        return [each.address for each in book.applied([host])[0].pools or ()]

    book.add(host.compute_node_id, sent)
    assert len(left()) == 1
    for card in cards:
        book.add(host.compute_node_id, sent, {sent.groups[0].requester_id: (str(card.rp_uuid),)})
        assert left() == [each.address for each in cards if each is not card]


def test_a_host_that_moved_is_looked_at_anew_and_others_stay_the_same_values() -> None:
    book = InFlight(packing=False)
    sent = [spec(request()) for _ in range(3)]
    host, other = state("h1", 1, pools=gpus(4)), state("h2", 2)
    for number, one in enumerate(sent, start=1):
        book.add(1, one)
        first, second = book.applied([host, other])
        assert first.pools is not None
        assert (len(first.pools), first.vcpus_used) == (4 - number, 2 * number)
        assert second is other
    moved = state("h1", 1, pools=gpus(3), generation=2)
    assert len(book.applied([moved])[0].pools or ()) == 0
    book.keep_only({sent[2].instance_uuid})
    assert len(book.applied([moved])[0].pools or ()) == 2

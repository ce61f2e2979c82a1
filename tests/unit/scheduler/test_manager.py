"""The scheduler's service on a real database."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Any

import pytest

from jetbridge.config.settings import Settings
from jetbridge.db import verdicts
from jetbridge.errors import NoValidHost, ServerNotFound
from jetbridge.model.request_group import RequestGroup
from jetbridge.model.verdict import Selection
from jetbridge.pci.device import Condition
from jetbridge.placement.pci_tree import MARK, RESERVED
from jetbridge.reasons import Reason
from jetbridge.scheduler.manager import SchedulerManager
from jetbridge.scheduler.snapshot import SnapshotCache
from tests.unit.scheduler.build import CONTEXT, Cloud, request, spec


def manager(cloud: Cloud, **options: Any) -> SchedulerManager:
    settings = Settings(**options)
    snapshot = SnapshotCache(
        cloud.database, service_down_time=settings.service_down_time, with_pools=True, now=lambda: cloud.now
    )
    return SchedulerManager(cloud.database, settings, snapshot=snapshot, installed={}, rng=random.Random(1))


def ask(scheduler: SchedulerManager, *server_uuids: str, exclude: tuple[str, ...] = ()) -> list[list[Selection]]:
    handler = scheduler.handlers()["select_destinations"]
    answer = handler(CONTEXT, {"server_uuids": list(server_uuids), "exclude_hosts": list(exclude)})
    assert answer is not None
    return [[Selection.from_message(message) for message in server] for server in answer["selections"]]


def test_a_host_and_alternates_for_each_server(cloud: Cloud) -> None:
    nodes = {name: cloud.host(name, gpus=free) for name, free in {"h1": 3, "h2": 1, "h3": 0, "h4": 2}.items()}
    uuids = [cloud.server(spec(request()), index) for index in range(2)]
    first, second = ask(manager(cloud), *uuids)
    assert [selection.host for selection in first] == ["h2", "h4", "h1"]
    assert [selection.host for selection in second] == ["h4", "h1"]
    assert first[0] == Selection("h2", nodes["h2"].id, nodes["h2"].generation)


def test_max_attempts_gives_the_alternates(cloud: Cloud) -> None:
    for number in range(4):
        cloud.host(f"h{number}", gpus=1)
    uuid = cloud.server(spec(request()))
    assert len(ask(manager(cloud, max_attempts=1), uuid)[0]) == 1
    assert len(ask(manager(cloud, max_attempts=9), uuid)[0]) == 4


def test_it_sees_what_changed_between_two_requests(cloud: Cloud) -> None:
    node = cloud.host("h1", gpus=1)
    cloud.host("h2", gpus=2)
    scheduler = manager(cloud)
    uuids = [cloud.server(spec(request())) for _ in range(2)]
    assert ask(scheduler, uuids[0])[0][0].host == "h1"
    cloud.take_devices(node, uuids[0], 1)
    assert [selection.host for selection in ask(scheduler, uuids[1])[0]] == ["h2"]


def test_no_host_says_by_rule_how_many_fell_and_why(cloud: Cloud) -> None:
    cloud.host("h1")
    cloud.host("h2")
    cloud.host("h3", gpus=1)
    cloud.service("h3", disabled=True, reason="maintenance")
    uuid = cloud.server(spec(request()))
    with pytest.raises(NoValidHost) as caught:
        ask(manager(cloud), uuid)
    text = str(caught.value)
    assert text.startswith(
        "No valid host was found. 3 hosts considered: 2 refused by PciPassthroughFilter (the host has no free device"
    )
    assert (
        ", 1 by ComputeFilter (disabled: maintenance). 1 device of GPU in all, 1 of them free."
        " Hint: openstack compute service set --enable" in text
    )


def test_devices_that_are_all_in_use_are_counted_and_others_are_no_hint(cloud: Cloud) -> None:
    node = cloud.host("h1", gpus=2)
    others, uuid = cloud.server(spec(request())), cloud.server(spec(request(count=2)))
    cloud.take_devices(node, others, 1)
    with pytest.raises(NoValidHost, match=r"\. 2 devices of GPU in all, 1 of them free$"):
        ask(manager(cloud), uuid)


def test_devices_that_wait_to_be_cleaned_or_that_placement_keeps_are_told(cloud: Cloud) -> None:
    waiting = {"address": "0000:81:00.0", "condition": Condition.CLEANING}
    kept = {"address": "0000:82:00.0", "extra_info": {MARK: RESERVED}}
    cloud.host("h1", devices=[waiting, kept])
    uuid = cloud.server(spec(request(count=2)))
    with pytest.raises(NoValidHost) as caught:
        ask(manager(cloud), uuid)
    assert str(caught.value).endswith(
        ". 2 devices of GPU in all, none of them free, 1 waits for its cleaning (jetbridge devices tells how it goes), "
        "1 is reserved in Placement (used one-time-use: jetbridge devices clean HOST ADDRESS)"
    )


def test_a_class_counts_its_own_devices(cloud: Cloud) -> None:
    cloud.host("h1", gpus=1, devices=[{"address": "0000:81:00.0", "resource_class": "own"}])
    wanted = replace(request(count=3), spec=({"resource_class": "own"},))
    groups = tuple(RequestGroup(f"{wanted.request_id}-{at}", {"CUSTOM_OWN": 1}) for at in range(3))
    uuid = cloud.server(spec(wanted, groups=groups))
    with pytest.raises(NoValidHost, match=r"\. 1 device of GPU in all, 1 of them free$"):
        ask(manager(cloud), uuid)


def test_verdicts_are_kept_by_identical_reason_and_pass(cloud: Cloud) -> None:
    cloud.host("h1")
    cloud.host("h2")
    cloud.host("h3", gpus=1)
    uuid = cloud.server(spec(request()))
    scheduler = manager(cloud)
    ask(scheduler, uuid)
    with pytest.raises(NoValidHost):
        ask(scheduler, uuid, exclude=("h3",))
    with cloud.database.read() as conn:
        kept = verdicts.of_server(conn, uuid)
    assert {one.request_id for one in kept} == {CONTEXT.request_id}
    assert [(one.attempt, one.group.filter, one.group.hosts) for one in kept] == [
        (1, "PciPassthroughFilter", ("h1", "h2")),
        (1, None, ("h3",)),
        (2, "PciPassthroughFilter", ("h1", "h2")),
        (2, "RetryFilter", ("h3",)),
    ]
    assert kept[0].group.reason is not None
    assert kept[0].group.reason.rule == "pci.count"


def test_the_chosen_host_is_told_from_others_that_passed_also_for_a_server_without_devices(cloud: Cloud) -> None:
    for name in ("h1", "h2", "h3"):
        cloud.host(name)
    uuid = cloud.server(spec())
    [[chosen, *_]] = ask(manager(cloud), uuid)
    with cloud.database.read() as conn:
        kept = {stored.group.hosts: stored.group.reason for stored in verdicts.of_server(conn, uuid)}
    others = tuple(name for name in ("h1", "h2", "h3") if name != chosen.host)
    assert kept == {(chosen.host,): Reason("chosen", "chosen"), others: None}


def test_f3_refused_before_any_host_is_asked(cloud: Cloud) -> None:
    cloud.host("h1", gpus=1)
    both = cloud.server(spec(request(name="a"), request(name="b")))
    with pytest.raises(NoValidHost):
        ask(manager(cloud), both)


def test_all_servers_of_a_request_or_none(cloud: Cloud) -> None:
    cloud.host("h1", gpus=2)
    uuids = [cloud.server(spec(request()), index) for index in range(3)]
    with pytest.raises(NoValidHost, match="For server 3 of 3 in the request"):
        ask(manager(cloud), *uuids)
    assert len(ask(manager(cloud), *uuids[:2])) == 2


def test_pools_of_filters_that_are_off_are_never_read(cloud: Cloud) -> None:
    """The claim decides then: the scheduler sends a GPU server to a host without GPUs."""
    cloud.host("h1")
    uuid = cloud.server(spec(request()))
    scheduler = SchedulerManager(
        cloud.database, Settings(enabled_filters=("ComputeFilter",), service_down_time=10**9), installed={}
    )
    seen: list[str] = []
    with cloud.database.statement_hook(seen.append):
        assert ask(scheduler, uuid)[0][0].host == "h1"
    assert not [text for text in seen if "pci_devices" in text]


def test_a_server_without_a_request_is_not_found(cloud: Cloud) -> None:
    cloud.host("h1")
    with pytest.raises(ServerNotFound, match="no-such-server"):
        ask(manager(cloud), "no-such-server")


def test_no_hosts(cloud: Cloud) -> None:
    uuid = cloud.server(spec())
    with pytest.raises(NoValidHost, match=r"No compute host is known"):
        ask(manager(cloud), uuid)


def test_the_chosen_host_is_logged_with_request_and_server(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    cloud.host("h1")
    cloud.host("h2")
    uuid = cloud.server(spec())
    with caplog.at_level(logging.INFO, logger="jetbridge.scheduler"):
        ask(manager(cloud), uuid)
    assert f"[{CONTEXT.request_id}] [instance: {uuid}] Selected host h1, alternates: h2" in caplog.messages

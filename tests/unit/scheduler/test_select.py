"""Whole requests: filters, order, alternates, and what earlier servers leave to later ones."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetbridge.config.settings import Settings
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.verdict import Selection
from jetbridge.pci.device import DeviceType
from jetbridge.pci.existing import Existing
from jetbridge.pci.fit import Choice, fit
from jetbridge.pci.pool import Group, Level
from jetbridge.pci.wanted import Wanted
from jetbridge.placement.groups import pci_groups
from jetbridge.scheduler.consume import consumed, without
from jetbridge.scheduler.filters.load import load_filters
from jetbridge.scheduler.memo import Question
from jetbridge.scheduler.select import Choosing, Outcome, Place, failure, filter_hosts, in_order, select_destinations
from jetbridge.scheduler.weighers import scores, weight
from tests.unit.numa.build import guest, host, host_cell
from tests.unit.scheduler.build import CONTEXT, FLAVOR, gpus, pool, request, spec, state

FILTERS = load_filters(Settings(), {})


def choose(
    states: Sequence[HostState], specs: Sequence[RequestSpec], exclude: Collection[str] = (), **options: Any
) -> Outcome:
    known: dict[str, Any] = {"filters": FILTERS, "random": random.Random(1)}
    return select_destinations(CONTEXT, states, specs, Choosing(**{**known, **options}), exclude)


def hosts(outcome: Outcome) -> list[list[str]]:
    assert outcome.selections is not None, outcome.verdicts
    return [[selection.host for selection in server] for server in outcome.selections]


def test_the_best_host_and_alternates_in_order_none_twice() -> None:
    states = [state(f"h{free}", free, pools=gpus(free)) for free in (4, 2, 0, 3, 1)]
    assert hosts(choose(states, [spec(request())])) == [["h1", "h2", "h3"]]
    assert hosts(choose(states, [spec(request())], alternates=0)) == [["h1"]]
    assert hosts(choose(states, [spec(request())], alternates=9)) == [["h1", "h2", "h3", "h4"]]
    assert hosts(choose(states, [spec(request(3))])) == [["h3", "h4"]]


def test_a_selection_tells_the_generation_it_was_made_on() -> None:
    outcome = choose([state("h1", 7, generation=42)], [spec()])
    assert outcome.selections is not None
    ((chosen,),) = outcome.selections
    assert (chosen.host, chosen.compute_node_id, chosen.generation) == ("h1", 7, 42)


def test_several_servers_fill_hosts_exactly() -> None:
    """Case: three servers with a device each over hosts with two and one."""
    states = [state("two", 1, pools=gpus(2)), state("one", 2, pools=gpus(1))]
    chosen = hosts(choose(states, [spec(request()) for _ in range(3)]))
    assert Counter(server[0] for server in chosen) == {"two": 2, "one": 1}


def test_more_servers_than_devices_and_none_gets_a_host() -> None:
    states = [state("two", 1, pools=gpus(2)), state("one", 2, pools=gpus(1))]
    asked = [spec(request()) for _ in range(4)]
    outcome = choose(states, asked)
    assert outcome.selections is None
    assert failure(outcome, asked).startswith(
        "For server 4 of 4 in the request: 2 hosts considered: 2 refused by PciPassthroughFilter"
    )
    assert list(outcome.verdicts) == [one.instance_uuid for one in asked]
    assert all(verdict.passed for verdict in outcome.verdicts[asked[0].instance_uuid])
    assert not any(verdict.passed for verdict in outcome.verdicts[asked[3].instance_uuid])


@pytest.mark.parametrize(
    ("facts", "fit_in"),
    [
        ({"vcpus": 4, "cpu_allocation_ratio": 1.0}, 2),
        ({"memory_mb": 6656}, 3),
        ({"disk_gb": 45}, 4),
    ],
)
def test_cpu_memory_and_disk_are_used_up_within_a_request(facts: dict[str, Any], fit_in: int) -> None:
    one = [state(**facts)]
    assert choose(one, [spec() for _ in range(fit_in)]).selections is not None
    assert choose(one, [spec() for _ in range(fit_in + 1)]).selections is None


def test_cells_are_used_up_within_a_request() -> None:
    one = [state(numa=host(host_cell(0, dedicated=4), host_cell(1, dedicated=3)))]
    asked = [spec(numa_topology=guest(dedicated=2)) for _ in range(4)]
    assert choose(one, asked[:3]).selections is not None
    assert choose(one, asked).selections is None


def test_a_vf_that_is_given_takes_the_pf_away_from_the_next_server() -> None:
    card = (
        pool(4, product_id="154c", dev_type=DeviceType.VF, address="0000:81:00.0"),
        pool(product_id="1572", dev_type=DeviceType.PF, address="0000:81:00.0"),
    )
    vf = spec(request(name="vf", product_id="154c", dev_type="type-VF"))
    pf = spec(request(name="pf", product_id="1572", dev_type="type-PF"))
    one = [state(pools=card)]
    assert choose(one, [vf, replace(vf, instance_uuid="another")]).selections is not None
    assert choose(one, [vf, pf]).selections is None
    assert choose(one, [pf, vf]).selections is None


def test_f12_one_refusal_and_no_host_is_named() -> None:
    card = (
        pool(4, product_id="154c", dev_type=DeviceType.VF, address="0000:81:00.0"),
        pool(product_id="1572", dev_type=DeviceType.PF, address="0000:81:00.0"),
    )
    asked = spec(
        request(name="pf", product_id="1572", dev_type="type-PF"),
        request(name="vf", product_id="154c", dev_type="type-VF"),
    )
    outcome = choose([state(f"h{number}", number, pools=card) for number in range(5)], [asked])
    assert outcome.selections is None
    assert "5 hosts considered: 5 refused by PciPassthroughFilter (" in failure(outcome, [asked])
    assert "exclude each other" in failure(outcome, [asked])


def test_f3_two_aliases_one_device_no_host() -> None:
    outcome = choose([state(pools=gpus(1))], [spec(request(name="a"), request(name="b"))])
    assert outcome.selections is None


def test_nothing_passed_in_is_changed() -> None:
    states = [state("h1", 1, pools=gpus(2), numa=host(host_cell(0, shared=8)))]
    before = repr(states)
    choose(states, [spec(request(), numa_topology=guest(shared=1)) for _ in range(2)])
    assert repr(states) == before


def test_hosts_that_failed_before_are_not_tried_again() -> None:
    states = [state("h1", 1), state("h2", 2)]
    asked = spec()
    outcome = choose(states, [asked], exclude=["h1"])
    assert hosts(outcome) == [["h2"]]
    assert [(group.hosts, group.filter) for group in outcome.verdicts[asked.instance_uuid]] == [
        (("h1",), "RetryFilter"),
        (("h2",), None),
    ]
    failed = choose(states, [asked], exclude=["h1", "h2"])
    assert failure(failed, [asked]) == "2 hosts considered: 2 refused by RetryFilter (the build already failed there)"


def test_a_forced_host_is_the_only_one_looked_at() -> None:
    states = [state("h1", 1), state("h2", 2)]
    assert hosts(choose(states, [spec(force_host="h2")])) == [["h2"]]
    asked = [spec(force_host="h2")]
    refused = choose([state("h1", 1), state("h2", 2, enabled=False)], asked)
    assert failure(refused, asked).startswith("1 host considered: 1 refused by ComputeFilter (disabled")
    asked = [spec(force_host="h3")]
    assert failure(choose(states, asked), asked) == "The host h3, which the server was sent to, is not known."


def test_what_there_is_at_all_is_asked_for_servers_with_an_alias_alone() -> None:
    def not_to_be_asked() -> list[Existing]:
        raise AssertionError("asked without an alias")

    port = [spec(replace(request(), alias_name=None, requester_id="p1"))]
    assert "in all" not in failure(choose([state()], port), port, not_to_be_asked)
    aliased = [spec(request(name="GPU"))]
    there = [Existing("10de", "1eb8", DeviceType.PCI, 3, 1)]
    told = failure(choose([state()], aliased), aliased, lambda: there)
    assert ". 3 devices of GPU in all, 1 of them free" in told


def test_verdicts_are_grouped_by_identical_answer_and_name_the_first_hundred() -> None:
    """Hosts that differ and are refused for the same reason are one group, wherever they stand; those that pass are another."""
    states = [state(f"h{at:03}", at, memory_mb_used=at, pools=gpus(2) if at % 5 == 0 else ()) for at in range(300)]
    asked = spec(request())
    chosen, passed, refused = choose(states, [asked]).verdicts[asked.instance_uuid]
    assert (passed.filter, passed.reason, passed.host_count) == (None, None, 59)
    assert (*chosen.hosts, *passed.hosts) == tuple(one.host for one in states[::5])
    assert (refused.filter, refused.host_count, len(refused.hosts)) == ("PciPassthroughFilter", 240, 100)
    assert refused.hosts == tuple(one.host for one in states if one.pools == ())[:100]


def test_the_verdict_of_the_chosen_host_tells_its_devices_and_why() -> None:
    pair = tuple(replace(each, groups=(Group(Level.SWITCH, "0000:80:00.0", 2),)) for each in gpus(2))
    states = [state(f"h{at}", at, pools=pair) for at in range(3)]
    asked = spec(request(2))
    chosen, others = choose(states, [asked]).verdicts[asked.instance_uuid]
    assert (chosen.passed, chosen.host_count, chosen.hosts) == (True, 1, ("h0",))
    assert chosen.reason is not None
    assert chosen.reason.rule == "chosen"
    assert chosen.reason.text == ("chosen: GPU gets 0000:01:00.0, 0000:02:00.0 (2 of 2 on PCIe switch 0000:80:00.0)")
    assert (others.passed, others.reason, others.host_count, others.hosts) == (True, None, 2, ("h1", "h2"))


def test_the_verdict_of_the_chosen_host_tells_the_devices_of_the_providers_that_placement_gave() -> None:
    """And the next server is chosen on what is left then."""
    cards = tuple(replace(each, rp_uuid=f"rp-{each.address[5:7]}") for each in gpus(3))
    asked = request()
    specs = [spec(asked, groups=pci_groups([asked])) for _ in range(2)]
    left: list[list[str]] = []

    def placer(one: RequestSpec) -> Place:
        def place(on: HostState) -> Selection:
            left.append([each.address for each in on.pools or ()])
            return Selection(on.host, on.compute_node_id, on.generation, {one.groups[0].requester_id: ("rp-02",)})

        return place

    outcome = select_destinations(
        CONTEXT, [state(pools=cards)], specs, Choosing(FILTERS, random.Random(1)), placer=placer
    )
    (told,) = outcome.verdicts[specs[0].instance_uuid]
    assert told.reason is not None
    assert told.reason.text == "chosen: GPU gets 0000:02:00.0"
    assert left == [["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"], ["0000:01:00.0", "0000:03:00.0"]]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12),
    st.booleans(),
    st.integers(1, 4),
    st.integers(0, 2),
)
def test_the_best_of_many_are_the_first_of_all_in_order(
    free: list[tuple[int, int]], devices: bool, enough: int, multiplier: int
) -> None:
    """However few are asked for at once."""
    states = [
        state(f"h{at}", at, memory_mb_used=1000 * used, pools=gpus(count)) for at, (count, used) in enumerate(free)
    ]
    asked = spec(request()) if devices else spec()
    question = Question(FILTERS, asked)
    options = Choosing(FILTERS, random.Random(1), enough - 1, float(multiplier))
    judged = filter_hosts(CONTEXT, states, asked, question)
    passed = judged.passed
    values = scores(
        [weight(one, asked, Wanted(asked.pci_requests)) for one in passed],
        with_devices=devices,
        pci_weight_multiplier=float(multiplier),
    )
    ranked = sorted(zip(values, passed, strict=True), key=lambda pair: pair[0], reverse=True)
    assert list(in_order(judged, asked, options)) == [one for _, one in ranked]


def test_equal_hosts_keep_their_order() -> None:
    states = [state(f"h{number}", number) for number in range(5)]
    assert hosts(choose(states, [spec()], alternates=4)) == [["h0", "h1", "h2", "h3", "h4"]]


def test_the_best_are_shuffled_when_wanted() -> None:
    states = [state(f"h{number}", number) for number in range(5)] + [state("full", 9, memory_mb_used=9000)]
    seen = {
        tuple(hosts(choose(states, [spec()], alternates=5, shuffle_best=True, random=random.Random(seed)))[0])
        for seed in range(20)
    }
    assert len(seen) > 1
    assert all(order[-1] == "full" for order in seen)


def test_one_of_a_subset_of_the_best() -> None:
    states = [state(f"h{number}", number, memory_mb_used=number * 100) for number in range(5)]
    chosen = Counter(
        hosts(choose(states, [spec()], host_subset_size=3, random=random.Random(seed)))[0][0] for seed in range(60)
    )
    assert set(chosen) == {"h0", "h1", "h2"}
    (order,) = hosts(choose(states, [spec()], host_subset_size=99, alternates=9))
    assert sorted(order) == ["h0", "h1", "h2", "h3", "h4"]


def test_one_line_per_filter_with_request_and_server(caplog: pytest.LogCaptureFixture) -> None:
    asked = spec(request(2))
    with caplog.at_level(logging.INFO, logger="jetbridge.scheduler"):
        choose([state("h1", 1, pools=gpus(1)), state("h2", 2, alive=False)], [asked])
    lines = [text for text in caplog.messages if "Filter " in text and asked.instance_uuid in text]
    start = f"[{CONTEXT.request_id}] [instance: {asked.instance_uuid}] Filter "
    assert lines == [
        start + "ResourceFilter returned 2 hosts",
        start + "ComputeFilter returned 1 hosts",
        start + "PciPassthroughFilter returned 0 hosts",
    ]


def test_filters_that_pass_say_so_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="jetbridge.scheduler"):
        choose([state("h1", 1, pools=gpus(1))], [spec(request())])
    assert [text.split(" Filter ")[1] for text in caplog.messages] == [
        f"{one.name} returned 1 hosts" for one in FILTERS
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.lists(st.integers(1, 2), min_size=1, max_size=5))
def test_what_is_promised_can_be_given(free: list[int], wanted: list[int]) -> None:
    """No host is chosen for more devices than it has, and the same generation order gives the same answer."""
    states = [state(f"h{at}", at, pools=gpus(count)) for at, count in enumerate(free)]
    asked = [spec(request(count)) for count in wanted]
    outcome = choose(states, asked)
    if outcome.selections is None:
        return
    given_out: Counter[str] = Counter()
    for count, server in zip(wanted, outcome.selections, strict=True):
        given_out[server[0].host] += count
        assert len({selection.host for selection in server}) == len(server)
    assert all(given_out[one.host] <= len(one.pools or ()) for one in states)
    assert choose(states, asked).selections == outcome.selections


# --- a host after one more server -------------------------------------------------------------


def test_consumed() -> None:
    before = state(pools=gpus(2), numa=host(host_cell(0, shared=8)))
    after = consumed(before, spec(request(), numa_topology=guest(shared=2)), packing=False)
    assert (after.vcpus_used, after.memory_mb_used, after.disk_gb_used, after.running_servers) == (
        FLAVOR.vcpus,
        FLAVOR.memory_mb,
        FLAVOR.root_gb,
        1,
    )
    assert after.pools is not None
    assert len(after.pools) == 1
    assert after.numa is not None
    assert after.numa.cells[0].cpu_usage == 2
    assert after.generation == before.generation


def test_consumed_without_the_numa_filter_counts_the_devices_still() -> None:
    """The cells don't fit, and no filter asked: only the claim can say no."""
    after = consumed(state(pools=gpus(2)), spec(request(), numa_topology=guest(shared=2)), packing=False)
    assert after.pools is not None
    assert len(after.pools) == 1


def test_consumed_without_pools_stays_without() -> None:
    assert consumed(state(pools=None), spec(request()), packing=False).pools is None


def test_without_keeps_cards_apart() -> None:
    def card(bus: int) -> tuple[Any, ...]:
        address = f"0000:{bus:02x}:00.0"
        return (
            pool(2, product_id="154c", dev_type=DeviceType.VF, address=address),
            pool(1, product_id="154c", dev_type=DeviceType.VDPA, address=address),
            pool(1, product_id="1572", dev_type=DeviceType.PF, address=address),
        )

    pools = (*card(1), *card(2), pool(address="0000:03:00.0"))
    vf = fit(pools, [request(product_id="154c", dev_type="type-VF")])
    assert isinstance(vf, Choice)
    left = [(one.address[5:7], one.dev_type, one.count) for one in without(pools, vf)]
    assert left == [
        ("01", "type-VF", 1),
        ("01", "vdpa", 1),
        *[(one.address[5:7], one.dev_type, one.count) for one in pools[3:]],
    ]
    pf = fit(pools, [request(product_id="1572", dev_type="type-PF")])
    assert isinstance(pf, Choice)
    assert without(pools, pf) == pools[3:]

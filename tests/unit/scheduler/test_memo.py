"""Hosts that look alike are judged once, and never otherwise than each for itself."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetbridge.config.settings import Settings
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.pci.request import NumaPolicy
from jetbridge.reasons import Reason
from jetbridge.scheduler.filters.load import load_filters
from jetbridge.scheduler.memo import Answer, Memo, Question, asked
from tests.unit.numa.build import guest, host, host_cell
from tests.unit.scheduler.build import FLAVOR, gpus, new_id, pool, request, spec, state

FILTERS = load_filters(Settings(), {})


class Counting:
    """Refuses hosts with the memory that it is told, and counts how often it is asked."""

    name = "Counting"

    def __init__(self) -> None:
        self.asked = 0

    def check(self, state: HostState, spec: RequestSpec) -> Reason | None:
        self.asked += 1
        return Reason("odd", "odd") if state.memory_mb_used % 2 else None


class CountingByValue(Counting):
    def sees(self, state: HostState) -> Hashable:
        return state.memory_mb_used


def told(answers: list[Answer]) -> list[tuple[str | None, Reason | None]]:
    return [(answer.filter, answer.reason) for answer in answers]


# --- what hosts look like ----------------------------------------------------------------------

IDENTITY = {"compute_node_id", "host", "hypervisor_hostname", "generation", "uuid"}
OTHER: dict[str, Any] = {
    "numa": host(host_cell(0, shared=4)),
    "pools": gpus(1),
    "disabled_reason": "because",
    "availability_zone": "other",
    "networks": frozenset({"lab"}),
    "devices_known": False,
    "enabled": False,
    "alive": False,
    "reported": False,
}


@pytest.mark.parametrize("field", [field.name for field in fields(HostState)])
def test_everything_but_who_the_host_is_shows_in_its_look(field: str) -> None:
    """A new field of the state has to be in the look, or else hosts that differ in it get one answer."""
    one = state()
    value = getattr(one, field)
    changed = OTHER.get(field, value + 1 if isinstance(value, int | float) else f"{value}!")
    other = replace(one, **{field: changed})
    assert (other.look == one.look) == (field in IDENTITY)


def test_a_look_shows_pools_but_not_which_provider_stands_for_them() -> None:
    one = state(pools=gpus(2))
    assert state(pools=tuple(replace(each, rp_uuid=new_id()) for each in gpus(2))).look == one.look
    for change in (
        {"count": 2},
        {"numa_node": 1},
        {"address": "0000:09:00.0"},
        {"tags": {"a": "b"}},
        {"parent_ifname": "e"},
    ):
        first, second = gpus(2)
        assert state(pools=(first, replace(second, **change))).look != one.look


def test_a_changed_state_has_a_look_of_its_own() -> None:
    one = state(pools=gpus(2))
    assert replace(one, pools=gpus(1)).look == state(pools=gpus(1)).look != one.look


# --- what requests ask -------------------------------------------------------------------------


def test_servers_that_ask_the_same_share_their_answers() -> None:
    one = spec(request(), project_id="p1")
    same = replace(
        one, instance_uuid=new_id(), project_id="p2", pci_requests=(replace(one.pci_requests[0], request_id=new_id()),)
    )
    assert asked(one) == asked(same)


@pytest.mark.parametrize(
    "other",
    [
        spec(request(2)),
        spec(request(name="OTHER")),
        spec(request(product_id="1eb9")),
        spec(request(policy=NumaPolicy.REQUIRED)),
        spec(replace(request(), alias_name=None, requester_id="port")),
        spec(replace(request(), alias_name=None)),
        spec(request(), request()),
        spec(request(), flavor=replace(FLAVOR, vcpus=3)),
        spec(request(), flavor=replace(FLAVOR, extra_specs={"a": "b"})),
        spec(request(), numa_topology=guest(shared=2)),
        spec(request(), image_properties={"a": "b"}),
        spec(request(), availability_zone="z"),
        spec(request(), networks=("lab",)),
        spec(request(), hints={"a": ("b",)}),
        spec(),
    ],
)
def test_requests_that_differ_do_not(other: RequestSpec) -> None:
    assert asked(other) != asked(spec(request()))


# --- answers -----------------------------------------------------------------------------------


def test_nothing_is_asked_twice() -> None:
    counting = CountingByValue()
    memo = Memo([counting])
    states = [state(f"h{at}", at, memory_mb_used=at % 3, vcpus_used=at % 5) for at in range(60)]
    first = memo.question(spec()).answers(states)
    assert told(first) == [("Counting", Reason("odd", "odd")) if at % 3 == 1 else (None, None) for at in range(60)]
    assert memo.question(spec()).answers(states) == first
    assert counting.asked == 3  # it looks at the memory alone


def test_filters_that_look_at_the_host_itself_are_asked_each_time() -> None:
    counting, by_value = Counting(), CountingByValue()
    memo = Memo([by_value, counting])
    states = [state(f"h{at}", at) for at in range(4)]
    for _ in range(2):
        assert told(memo.question(spec()).answers(states)) == [(None, None)] * 4
    assert (by_value.asked, counting.asked) == (1, 8)


def test_the_answers_kept_are_bounded() -> None:
    """The requests that nobody asked for longest go first, then even the one that is too large by itself."""
    memo = Memo(FILTERS, most_answers=30)
    states = [state(f"h{at}", at, vcpus_used=at) for at in range(10)]
    for vcpus in range(1, 9):
        memo.question(spec(flavor=replace(FLAVOR, vcpus=vcpus))).answers(states)
        assert len(memo) <= 30 + 12
    kept = memo.question(spec(flavor=replace(FLAVOR, vcpus=8)))
    assert kept is memo.question(spec(flavor=replace(FLAVOR, vcpus=8)))
    many = [state(f"h{at}", at, vcpus_used=at) for at in range(100)]
    assert len(kept.answers(many)) == 100
    assert memo.question(spec(flavor=replace(FLAVOR, vcpus=8))) is not kept
    assert len(memo) == 0


def test_nothing_is_kept_when_nothing_may_be() -> None:
    counting = CountingByValue()
    memo = Memo([counting], most_answers=0)
    memo.question(spec()).answers([state(), state()])
    assert (counting.asked, len(memo)) == (2, 0)


states_of_hosts = st.builds(
    lambda free, node, used, cpus, alive, known: state(
        pools=(*(replace(each, numa_node=node) for each in gpus(free)), pool(2, "1eb9")),
        memory_mb_used=used * 20000,
        numa=None if cpus == 0 else host(host_cell(0, dedicated=cpus), host_cell(1, dedicated=2)),
        alive=alive,
        devices_known=known,
    ),
    st.integers(0, 3),
    st.sampled_from([None, 0, 1]),
    st.integers(0, 3),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)
specs = st.builds(
    lambda count, policy, cpus: spec(
        *([request(count, policy=policy)] if count else []), numa_topology=guest(dedicated=cpus) if cpus else None
    ),
    st.integers(0, 3),
    st.sampled_from([None, *NumaPolicy]),
    st.integers(0, 3),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(states_of_hosts, max_size=6), st.lists(specs, max_size=4))
def test_remembered_answers_are_those_of_asking(states: list[HostState], wanted: list[RequestSpec]) -> None:
    memo = Memo(FILTERS)
    for one in [*wanted, *wanted]:
        remembered = memo.question(one).answers(states)
        fresh = Question(FILTERS, one, remember=False).answers(states)
        assert told(remembered) == told(fresh)
        assert [answer.weight for answer in remembered] == [answer.weight for answer in fresh]

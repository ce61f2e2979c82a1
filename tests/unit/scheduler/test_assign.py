from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.scheduler.assign import assigned, packed, split


def test_each_group_gets_a_provider_of_its_own() -> None:
    found = assigned([["a", "b"], ["a", "b"]], {"a": 1, "b": 1})
    assert found is not None
    assert set(found) == {"a", "b"}


def test_who_came_first_makes_way_for_who_has_no_other_choice() -> None:
    assert assigned([["a", "b"], ["b", "c"], ["a"]], {"a": 1, "b": 1, "c": 1}) == ("b", "c", "a")


def test_a_provider_serves_as_many_as_it_has_places() -> None:
    assert assigned([["a"], ["a"]], {"a": 2}) == ("a", "a")
    assert assigned([["a"], ["a"]], {"a": 1}) is None
    assert assigned([["a"]], {}) is None


def test_nobody_can_serve_it() -> None:
    assert assigned([["a"], []], {"a": 9}) is None
    assert assigned([], {}) == ()


PROVIDERS = "abc"


@given(
    st.lists(st.lists(st.sampled_from(PROVIDERS), unique=True, max_size=3), max_size=4),
    st.dictionaries(st.sampled_from(PROVIDERS), st.integers(0, 2)),
)
def test_it_finds_a_way_exactly_when_there_is_one(eligible: list[list[str]], places: dict[str, int]) -> None:
    def fits(way: tuple[str, ...]) -> bool:
        return all(used <= places.get(provider, 0) for provider, used in Counter(way).items())

    found = assigned(eligible, places)
    assert (found is not None) == any(fits(way) for way in product(*eligible))
    if found is not None:
        assert fits(found)
        assert all(provider in choice for provider, choice in zip(found, eligible, strict=True))


@pytest.mark.parametrize(
    ("amount", "free", "parts"),
    [
        (1, {"a": 1, "b": 3}, {"b": 1}),
        (4, {"a": 1, "b": 3}, {"b": 3, "a": 1}),
        (5, {"a": 1, "b": 3}, None),
        (1, {}, None),
        (2, {"a": 0, "b": -1, "c": 2}, {"c": 2}),
    ],
)
def test_split(amount: int, free: dict[str, int], parts: dict[str, int] | None) -> None:
    """Of as few providers as can be."""
    assert split(amount, free) == parts


VGPU = {"VGPU": 1}


@pytest.mark.parametrize(
    ("wanted", "free", "found"),
    [
        # Classes of one card are apart: a card whose VFs carry two types.
        ([{"VGPU": 1}, {"CUSTOM_B": 1}], {"a": {"VGPU": 1, "CUSTOM_B": 2}}, ("a", "a")),
        ([{"VGPU": 1}, {"CUSTOM_B": 3}], {"a": {"VGPU": 1, "CUSTOM_B": 2}}, None),
        # Groups of several sizes.
        ([{"VGPU": 3}, {"VGPU": 1}], {"a": {"VGPU": 4}}, ("a", "a")),
        ([{"VGPU": 1}, {"VGPU": 3}], {"a": {"VGPU": 3}, "b": {"VGPU": 1}}, ("b", "a")),
        ([{"VGPU": 2}, {"VGPU": 2}, {"VGPU": 3}], {"a": {"VGPU": 3}, "b": {"VGPU": 4}}, ("b", "b", "a")),
        ([{"VGPU": 2}, {"VGPU": 2}], {"a": {"VGPU": 3}, "b": {"VGPU": 1}}, None),
        ([{"VGPU": 1, "CUSTOM_B": 1}], {"a": {"VGPU": 1}, "b": {"VGPU": 1, "CUSTOM_B": 1}}, ("b",)),
        ([VGPU], {}, None),
        ([], {}, ()),
    ],
)
def test_groups_share_a_provider_that_has_enough(
    wanted: Sequence[Mapping[str, int]], free: Mapping[str, Mapping[str, int]], found: tuple[str, ...] | None
) -> None:
    assert packed(wanted, [list(free)] * len(wanted), free) == found


def test_what_is_not_eligible_serves_nobody() -> None:
    assert packed([VGPU, VGPU], [["b"], ["a", "b"]], {"a": {"VGPU": 2}, "b": {"VGPU": 1}}) == ("b", "a")


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=5)
rooms = st.lists(st.integers(0, 6), min_size=3, max_size=3)


@given(sizes, rooms, st.data())
def test_groups_are_served_whenever_there_is_a_way(sizes: list[int], rooms: list[int], data: st.DataObject) -> None:
    eligible = [data.draw(st.lists(st.sampled_from(PROVIDERS), min_size=1, unique=True)) for _ in sizes]
    free = {card: {"VGPU": room} for card, room in zip(PROVIDERS, rooms, strict=True)}

    def fits(choice: Sequence[str]) -> bool:
        taken: Counter[str] = Counter()
        for card, size in zip(choice, sizes, strict=True):
            taken[card] += size
        return all(amount <= free[card]["VGPU"] for card, amount in taken.items())

    found = packed([{"VGPU": size} for size in sizes], eligible, free)
    assert (found is not None) == any(fits(choice) for choice in product(*eligible))
    if found is not None:
        assert fits(found)
        assert all(card in cards for card, cards in zip(found, eligible, strict=True))


def test_a_search_without_an_end_in_sight_is_given_up() -> None:
    sizes = [2 * prime for prime in (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67)]
    free = {f"card-{number}": {"VGPU": sum(sizes) // 8 + 1 - 2 * (number % 2)} for number in range(8)}
    assert packed([{"VGPU": size} for size in sizes], [list(free)] * len(sizes), free) is None

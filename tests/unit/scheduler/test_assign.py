from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.scheduler.assign import assigned, split


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

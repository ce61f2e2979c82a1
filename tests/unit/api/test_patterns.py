from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.api.patterns import check_pattern
from jetbridge.errors import Invalid


@pytest.mark.parametrize("text", ["web", "^web-[0-9]+$", ".*gpu.*", "a|b", "(a|b)c", "x{1,3}", "gpu00[1-4]", "", r"\d"])
def test_patterns_that_people_write_are_taken(text: str) -> None:
    assert check_pattern("name", text) == text


@pytest.mark.parametrize(
    "text", ["(a+)+$", "(a|aa)+$", "a.*b.*c.*d", "(a?){30}", "(?:a{2,}){2,}", r"(a)\1", "[", "*", "(?P<x", "x" * 256]
)
def test_patterns_that_are_wrong_or_slow_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match="name"):
        check_pattern("name", text)


@given(st.text(st.sampled_from("ab()*+?|.{}12[]^$\\"), max_size=14))
def test_what_is_taken_is_quick(text: str) -> None:
    try:
        taken = check_pattern("name", text)
    except Invalid:
        return
    assert taken is not None
    begun = time.process_time()
    re.search(f"(?i){taken}", "a" * 254 + "!")
    assert time.process_time() - begun < 10  # what backtracks without bound takes minutes

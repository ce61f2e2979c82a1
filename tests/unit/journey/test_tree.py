from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jetbridge.journey.tree import steps
from tests.unit.journey.spans import span


def shown(*spans: object, server: str | None = None) -> list[tuple[int, str]]:
    return [(step.depth, step.span.span_id) for step in steps(spans, server)]  # type: ignore[arg-type]


def test_each_stands_under_what_led_to_it_in_the_order_they_began() -> None:
    assert shown(
        span("cast", "rest", at=1),
        span("late", "cast", at=9),
        span("early", "cast", at=2),
        span("rest"),
        span("b", at=5),
    ) == [(0, "rest"), (1, "cast"), (2, "early"), (2, "late"), (0, "b")]


def test_what_led_to_it_was_lost() -> None:
    assert shown(span("child", "lost", at=1), span("grandchild", "child", at=2)) == [(0, "child"), (1, "grandchild")]


def test_of_a_request_for_several_servers_only_what_is_about_the_one() -> None:
    spans = (
        span("rest"),
        span("cast", "rest", at=1, server="s1", essentials={"servers": "2"}),
        span("build1", "cast", at=2, server="s1"),
        span("build2", "cast", at=3, server="s2"),
        span("disk1", "build1", at=4, server="s1"),
        span("disk2", "build2", at=5, server="s2"),
    )
    assert shown(*spans, server="s2") == [(0, "rest"), (1, "cast"), (2, "build2"), (3, "disk2")]
    assert len(shown(*spans)) == 6


def test_what_is_of_another_but_led_to_this_one_is_kept() -> None:
    spans = (span("other", server="s1"), span("mine", "other", at=1, server="s2"), span("not", "other", server="s1"))
    assert shown(*spans, server="s2") == [(0, "other"), (1, "mine")]


@given(st.lists(st.integers(-1, 20), max_size=20))
def test_every_span_stands_once_and_below_its_parent(parents: list[int]) -> None:
    """Whatever is missing or in whichever order it began; a span begins after the one that led to it was made."""
    spans = [
        span(str(number), str(parent) if parent < number else "lost", at=-number)
        for number, parent in enumerate(parents)
    ]
    found = steps(spans)
    assert sorted(step.span.span_id for step in found) == sorted(each.span_id for each in spans)
    place = {step.span.span_id: (at, step.depth) for at, step in enumerate(found)}
    for step in found:
        if step.span.parent_id in place:
            at, depth = place[step.span.parent_id]
            assert at < place[step.span.span_id][0]
            assert step.depth == depth + 1
        else:
            assert step.depth == 0

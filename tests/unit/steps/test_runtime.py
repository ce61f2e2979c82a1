"""Steps: the record before the change, undo in reverse, an undo that fails doesn't stop the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.steps.runtime import Moment, Step, StepFailed, begun_steps, run_steps, undo_steps

Log = list[str]


def step(name: str, *, fails: bool = False, undo_fails: bool = False) -> Step[Log]:
    def do(log: Log) -> Log:
        log.append(f"do {name}")
        if fails:
            raise RuntimeError(f"{name} broke")
        return log

    def undo(log: Log) -> None:
        log.append(f"undo {name}")
        if undo_fails:
            raise OSError(f"undo of {name} broke")

    return Step(name, do, undo)


def test_all_steps_run_in_order_and_each_is_recorded_before_its_change() -> None:
    log: Log = []
    run_steps([step("a"), step("b")], log, record=lambda name: log.append(f"record {name}"))
    assert log == ["record a", "do a", "record b", "do b"]


def test_what_the_caller_recorded_is_not_recorded_again_and_undone_as_the_others() -> None:
    log: Log = []
    moments: list[tuple[str, Moment]] = []
    with pytest.raises(StepFailed):
        run_steps(
            [step("a", fails=True), step("b")],
            log,
            record=lambda name: log.append(f"record {name}"),
            recorded="a",
            observe=lambda name, moment: moments.append((name, moment)),
        )
    assert log == ["do a", "undo a"]
    assert moments == [("a", Moment.BEFORE_RECORD), ("a", Moment.RECORDED)], "it can die as in every other step"
    log.clear()
    run_steps([step("a"), step("b")], log, record=lambda name: log.append(f"record {name}"), recorded="a")
    assert log == ["do a", "record b", "do b"]


def test_a_failure_undoes_the_failed_step_too_and_then_the_earlier_ones_in_reverse() -> None:
    log: Log = []
    with pytest.raises(StepFailed) as failed:
        run_steps([step("a"), step("b", fails=True), step("c")], log, record=lambda name: None)
    assert log == ["do a", "do b", "undo b", "undo a"]
    assert failed.value.step == "b"
    assert str(failed.value.cause) == "b broke"
    assert failed.value.left == ()


def test_an_undo_that_fails_is_reported_and_the_others_still_run() -> None:
    log: Log = []
    with pytest.raises(StepFailed) as failed:
        run_steps([step("a"), step("b", undo_fails=True), step("c", fails=True)], log, record=lambda name: None)
    assert log[-3:] == ["undo c", "undo b", "undo a"]
    assert [left.step for left in failed.value.left] == ["b"]


def test_what_a_step_holds_that_can_not_be_undone_is_not_taken_from_it() -> None:
    log: Log = []
    holding = replace(step("b", undo_fails=True), holds=True)
    with pytest.raises(StepFailed) as failed:
        run_steps([step("a"), holding, step("c", fails=True)], log, record=lambda name: None)
    assert log[-2:] == ["undo c", "undo b"]
    assert [left.step for left in failed.value.left] == ["b"]


def test_a_step_whose_record_fails_changes_nothing_and_is_not_undone() -> None:
    log: Log = []

    def record(name: str) -> None:
        if name == "b":
            raise OSError("disk full")

    with pytest.raises(StepFailed) as failed:
        run_steps([step("a"), step("b")], log, record=record)
    assert log == ["do a", "undo a"]
    assert failed.value.step == "b"


def test_the_context_a_step_returns_is_what_later_steps_and_undos_see() -> None:
    seen: list[int] = []

    def plus_one(value: int) -> int:
        return value + 1

    def fail(value: int) -> int:
        raise RuntimeError(str(value))

    with pytest.raises(StepFailed, match="2"):
        run_steps([Step("a", plus_one, seen.append), Step("b", plus_one), Step("c", fail)], 0, record=lambda name: None)
    assert seen == [2]


def test_the_observer_sees_the_three_moments_around_every_step() -> None:
    moments: list[tuple[str, Moment]] = []
    run_steps([step("a")], [], record=lambda name: None, observe=lambda name, moment: moments.append((name, moment)))
    assert moments == [("a", Moment.BEFORE_RECORD), ("a", Moment.RECORDED), ("a", Moment.CHANGED)]


@given(recorded=st.sampled_from([None, "a", "b", "c"]))
def test_after_a_crash_the_steps_up_to_the_recorded_one_are_undone(recorded: str | None) -> None:
    steps = [step("a"), step("b"), step("c")]
    log: Log = []
    undo_steps(begun_steps(steps, recorded), log)
    names = ["a", "b", "c"]
    expected = names[: names.index(recorded) + 1] if recorded else []
    assert log == [f"undo {name}" for name in reversed(expected)]


def test_an_unknown_recorded_step_counts_as_all_steps() -> None:
    steps = [step("a"), step("b")]
    assert begun_steps(steps, "of another release") == steps

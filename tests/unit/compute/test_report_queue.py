from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from jetbridge.compute.report_queue import ReportQueue
from jetbridge.errors import ServiceUnavailable

Work = Callable[[], None]


class Pool:
    """Does what it is given when it is told to."""

    def __init__(self) -> None:
        self.tasks: list[Work] = []

    def __call__(self, work: Work) -> None:
        self.tasks.append(work)

    def do_one(self) -> None:
        self.tasks.pop(0)()

    def do_all(self) -> None:
        while self.tasks:
            self.do_one()


def test_no_more_than_a_few_at_once() -> None:
    pool, done = Pool(), list[int]()
    queue = ReportQueue(pool, at_once=2)
    for number in range(5):
        queue.ask(f"host {number}", lambda number=number: done.append(number))
    assert len(pool.tasks) == 2
    pool.do_one()
    assert len(pool.tasks) == 2
    pool.do_all()
    assert done == [0, 1, 2, 3, 4]
    assert queue.settle(timeout=0)


def test_who_waits_is_not_asked_twice_and_who_runs_once_more() -> None:
    pool, done = Pool(), list[str]()
    queue = ReportQueue(pool, at_once=1)

    def first() -> None:
        done.append("first")
        for _ in range(3):
            queue.ask("a", lambda: done.append("again"))

    queue.ask("a", first)
    queue.ask("b", lambda: done.append("b"))
    queue.ask("b", lambda: done.append("b, newer"))
    pool.do_all()
    assert done == ["first", "b, newer", "again"]


def test_a_report_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = Pool(), list[str]()
    queue = ReportQueue(pool, at_once=1)

    def away() -> None:
        raise ServiceUnavailable(reason="Placement is away")

    def broken() -> None:
        raise ZeroDivisionError

    queue.ask("a", away)
    queue.ask("b", broken)
    queue.ask("c", lambda: done.append("c"))
    pool.do_all()
    assert done == ["c"]
    assert "The report of a to Placement failed: Placement is away" in caplog.text


def test_progress_of_many_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    pool = Pool()
    queue = ReportQueue(pool)
    for number in range(40):
        queue.ask(f"host {number}", lambda: None)
    pool.do_all()
    assert "4 of 40 hosts" in caplog.text
    assert "40 of 40 hosts" in caplog.text
    assert len(caplog.records) == 10


def test_while_it_is_held_nothing_begins() -> None:
    pool, done = Pool(), list[str]()
    queue = ReportQueue(pool, at_once=2)
    queue.ask("before", lambda: done.append("before"))
    with queue.held():
        with queue.held():
            for name in ("a", "b", "c"):
                queue.ask(name, lambda name=name: done.append(name))
        pool.do_all()
        assert done == ["before"]
    assert len(pool.tasks) == 2
    pool.do_all()
    assert done == ["before", "a", "b", "c"]
    assert queue.settle(timeout=0)

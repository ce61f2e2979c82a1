"""Deadlines around calls that may never return."""

from __future__ import annotations

import threading

import pytest

from jetbridge.errors import HypervisorError
from jetbridge.virt.libvirt.calls import CallPool


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


def test_results_and_errors_are_the_calls_own() -> None:
    pool = CallPool("h1", 2)
    assert pool.run("ask", lambda: 7, 5) == 7
    with pytest.raises(ZeroDivisionError):
        pool.run("ask", lambda: 1 // 0, 5)
    with pytest.raises(TimeoutError, match="the call's"):
        pool.run("ask", _raise_timeout, 5)
    pool.close()


def _raise_timeout() -> None:
    raise TimeoutError("the call's own")


def test_call_beyond_its_deadline_is_named(gate: threading.Event) -> None:
    pool = CallPool("h1", 2)
    with pytest.raises(
        HypervisorError, match=r"start_domain instance-1 failed on h1: no answer within 0\.05 s; it may"
    ):
        pool.run("start_domain instance-1", gate.wait, 0.05)
    assert pool.run("ask", lambda: "still serving", 5) == "still serving"
    gate.set()
    pool.close()


def test_call_that_had_not_begun_by_its_deadline_never_does(gate: threading.Event) -> None:
    pool = CallPool("h1", 1)
    ran = []
    with pytest.raises(HypervisorError):
        pool.run("first", gate.wait, 0.05)
    with pytest.raises(HypervisorError, match="1 earlier calls are still waiting"):
        pool.run("late", lambda: ran.append("late"), 0.05)
    gate.set()
    assert pool.run("after", lambda: "ok", 5) == "ok"
    assert ran == []
    pool.close()


def test_no_more_threads_than_allowed() -> None:
    pool = CallPool("bounded", 3)
    barrier = threading.Barrier(4)  # three calls and this test
    callers = [
        threading.Thread(target=pool.run, args=(f"call {number}", lambda: barrier.wait(10), 10)) for number in range(3)
    ]
    for caller in callers:
        caller.start()
    barrier.wait(10)  # passes only when three run at once
    for caller in callers:
        caller.join()
    for _ in range(20):
        pool.run("more", lambda: None, 5)
    assert sum(thread.name.startswith("libvirt-bounded-") for thread in threading.enumerate()) == 3
    pool.close()

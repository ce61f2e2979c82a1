from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jetbridge.errors import (
    ComputeResourcesUnavailable,
    Invalid,
    JetbridgeError,
    MessageTimeout,
    ServiceUnavailable,
    UnknownDestination,
)
from jetbridge.journey.seams import Seams
from jetbridge.model.context import RequestContext
from jetbridge.model.events import Seam, SeamEvent
from jetbridge.model.server import TaskState
from jetbridge.rpc.bus import Bus, Payload
from jetbridge.rpc.inprocess import InProcessBus

CONTEXT = RequestContext("u", "p", frozenset({"admin"}), "req-1")
WAIT = 10


class Office:
    """A bus with two workers, what it said, and what arrived at it."""

    def __init__(self, **arguments: Any) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.events: list[SeamEvent] = []
        self.bus: Bus = InProcessBus(self.pool, Seams(self.events.append, clock=lambda: 1000.0), **arguments)
        self.arrived: list[tuple[str, dict[str, Any]]] = []

    def note(self, context: RequestContext, payload: Payload) -> Payload | None:
        self.arrived.append((context.request_id, dict(payload)))
        return {"seen": len(self.arrived)}


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.bus.stop()
    made.pool.shutdown()


def cast(
    bus: Bus, method: str, payload: dict[str, Any] | None = None, topic: str = "conductor", **arguments: Any
) -> None:
    bus.cast(CONTEXT, topic, method, payload or {}, source="api", **arguments)


def call(
    bus: Bus, method: str, payload: dict[str, Any] | None = None, topic: str = "conductor", **arguments: Any
) -> Payload:
    return bus.call(CONTEXT, topic, method, payload or {}, source="api", **arguments)


def test_a_cast_arrives_with_its_context(office: Office) -> None:
    office.bus.serve("conductor", {"build": office.note})
    cast(office.bus, "build", {"server_uuid": "s1"})
    office.bus.stop()
    assert office.arrived == [("req-1", {"server_uuid": "s1"})]


def test_a_call_answers(office: Office) -> None:
    office.bus.serve("conductor", {"build": office.note, "nothing": lambda context, payload: None})
    assert call(office.bus, "build") == {"seen": 1}
    assert call(office.bus, "nothing") == {}


def test_messages_find_the_one_host_they_name(office: Office) -> None:
    for host in ("gpu001", "gpu002"):
        office.bus.serve("compute", {"who": lambda context, payload, host=host: {"host": host}}, server=host)
    assert call(office.bus, "who", topic="compute", server="gpu002") == {"host": "gpu002"}
    office.bus.withdraw("compute", server="gpu002")
    for arguments in ({"server": "gpu002"}, {}):
        with pytest.raises(UnknownDestination, match="compute"):
            call(office.bus, "who", topic="compute", **arguments)
    with pytest.raises(UnknownDestination, match="compute:gpu001 with a method when"):
        cast(office.bus, "when", topic="compute", server="gpu001")


def test_every_message_is_an_event(office: Office) -> None:
    office.bus.serve("compute", {"build": office.note}, server="gpu001")
    office.bus.serve("scheduler", {"select": office.note})
    cast(office.bus, "build", {"server_uuid": "s1"}, topic="compute", server="gpu001")
    office.bus.call(CONTEXT, "scheduler", "select", {"server_uuids": ["s1", "s2"]}, source="conductor")
    sent, asked = office.events
    assert sent == SeamEvent(Seam.CAST, "api", "compute:gpu001", "build", "req-1", "s1", 1000.0)
    assert (asked.seam, asked.source, asked.target, asked.what) == (Seam.CALL, "conductor", "scheduler", "select")
    assert (asked.server, asked.essentials) == ("s1", {"servers": "2"})
    assert asked.seconds is not None
    assert 0 <= asked.seconds < WAIT


def test_a_failed_call_is_an_event_too(office: Office) -> None:
    def fail(context: RequestContext, payload: Payload) -> None:
        raise ComputeResourcesUnavailable(reason="no memory")

    office.bus.serve("conductor", {"fail": fail})
    with pytest.raises(ComputeResourcesUnavailable, match="no memory"):
        call(office.bus, "fail")
    assert office.events[-1].essentials == {"error": "ComputeResourcesUnavailable"}


def test_an_unforeseen_error_of_a_call_comes_as_ours_and_is_logged(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    office.bus.serve("conductor", {"fail": lambda context, payload: {"x": 1 // 0}})
    with pytest.raises(JetbridgeError, match="conductor failed in fail: ZeroDivisionError"):
        call(office.bus, "fail")
    assert [record.request_id for record in caplog.records] == ["req-1"]
    assert "Traceback" in caplog.text


def test_a_failed_cast_is_logged_and_kills_no_worker(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    office.bus.serve("conductor", {"fail": lambda context, payload: {"x": 1 // 0}, "build": office.note})
    for _ in range(4):
        cast(office.bus, "fail", {"server_uuid": "s1"})
    cast(office.bus, "build")
    office.bus.stop()
    assert len(office.arrived) == 1
    assert caplog.text.count("ZeroDivisionError") == 4
    assert "fail of conductor failed" in caplog.text
    assert {(record.request_id, record.server) for record in caplog.records} == {("req-1", "s1")}


def test_a_listener_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: SeamEvent) -> None:
        raise LookupError("nobody listens")

    with ThreadPoolExecutor(1) as pool:
        bus = InProcessBus(pool, Seams(broken))
        bus.serve("conductor", {"build": lambda context, payload: {"ok": True}})
        assert call(bus, "build") == {"ok": True}
    assert "nobody listens" in caplog.text


def test_a_full_pool_can_not_block_calls_between_services(office: Office) -> None:
    """Twenty casts on two workers, each calling another service that calls a third."""
    office.bus.serve("compute", {"note": office.note})
    office.bus.serve("scheduler", {"select": lambda context, payload: call(office.bus, "note", topic="compute")})
    office.bus.serve("conductor", {"build": lambda context, payload: call(office.bus, "select", topic="scheduler")})
    for _ in range(20):
        cast(office.bus, "build")
    office.bus.stop()
    assert len(office.arrived) == 20


def test_a_slow_answer_is_lost(office: Office) -> None:
    entered = threading.Event()

    def slow(context: RequestContext, payload: Payload) -> Payload:
        entered.wait(0.02)
        return {"too": "late"}

    office.bus.serve("compute", {"slow": slow}, server="gpu001")
    with pytest.raises(MessageTimeout, match=r"No answer from compute:gpu001 to slow within 0.001 s"):
        call(office.bus, "slow", topic="compute", server="gpu001", timeout=0.001)


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"a": {1, 2}}, r"conductor.build\[a\]"),
        ({"a": [{"b": (1, 2)}]}, r"\[a\]\[b\]"),
        ({"a": float("nan")}, r"\[a\]"),
        ({"a": {1: 2}}, "key 1 is not text"),
        ({"a": b"bytes"}, "bytes"),
    ],
)
def test_what_another_bus_could_not_carry_is_refused(office: Office, payload: dict[str, Any], place: str) -> None:
    office.bus.serve("conductor", {"build": office.note})
    for send in (cast, call):
        with pytest.raises(Invalid, match=place):
            send(office.bus, "build", payload)
    assert office.arrived == []


def test_an_answer_is_held_to_the_same(office: Office) -> None:
    office.bus.serve("conductor", {"bad": lambda context, payload: {"x": object()}})
    with pytest.raises(Invalid, match=r"answer of conductor.bad\[x\]"):
        call(office.bus, "bad")


def test_what_arrives_is_a_copy_of_plain_values(office: Office) -> None:
    received: list[Any] = []
    office.bus.serve("conductor", {"take": lambda context, payload: received.append(payload)})
    sent = {"state": TaskState.SPAWNING, "list": [1, 2.5, None, True], "deep": {"k": ["v"]}}
    call(office.bus, "take", sent)
    assert received == [{"state": "spawning", "list": [1, 2.5, None, True], "deep": {"k": ["v"]}}]
    assert type(received[0]["state"]) is str
    received[0]["deep"]["k"].append("changed")
    assert sent["deep"] == {"k": ["v"]}


def test_stop_waits_for_what_runs_and_what_it_sends(office: Office) -> None:
    started, go = threading.Event(), threading.Event()

    def build(context: RequestContext, payload: Payload) -> None:
        started.set()
        assert go.wait(WAIT)
        cast(office.bus, "note", {"from": "build"})

    office.bus.serve("conductor", {"build": build, "note": office.note})
    cast(office.bus, "build")
    assert started.wait(WAIT)
    stopper = threading.Thread(target=office.bus.stop)
    stopper.start()
    while not _refuses(office.bus):
        stopper.join(0.001)
    assert ("req-1", {"from": "build"}) not in office.arrived
    go.set()
    stopper.join(WAIT)
    assert not stopper.is_alive()
    assert office.arrived[-1] == ("req-1", {"from": "build"})


def _refuses(bus: Bus) -> bool:
    try:
        cast(bus, "note")
    except ServiceUnavailable:
        return True
    return False


def test_stop_drops_what_waits_too_long_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    office = Office(drain_seconds=0.01)
    go = threading.Event()
    running = threading.Semaphore(0)

    def build(context: RequestContext, payload: Payload) -> None:
        running.release()
        assert go.wait(WAIT)
        office.note(context, payload)

    office.bus.serve("conductor", {"build": build})
    for _ in range(5):
        cast(office.bus, "build")
    for _ in range(2):
        assert running.acquire(timeout=WAIT)
    caplog.set_level(logging.WARNING)
    stopper = threading.Thread(target=office.bus.stop)
    stopper.start()
    while "unfinished" not in caplog.text:
        stopper.join(0.001)
    go.set()
    stopper.join(WAIT)
    assert not stopper.is_alive()
    assert len(office.arrived) == 2
    assert "5 messages unfinished" in caplog.text
    assert caplog.text.count("Dropped build") == 3
    office.pool.shutdown()


def test_stop_waits_for_no_handler_without_end() -> None:
    """One that asks another service may wait for minutes: with Placement frozen a stop took two."""
    office = Office(drain_seconds=0.01, last_seconds=0.01)
    running, go = threading.Event(), threading.Event()

    def build(context: RequestContext, payload: Payload) -> None:
        running.set()
        assert go.wait(WAIT)

    office.bus.serve("conductor", {"build": build})
    cast(office.bus, "build")
    assert running.wait(WAIT)
    stopper = threading.Thread(target=office.bus.stop)
    stopper.start()
    stopper.join(WAIT)
    left = not stopper.is_alive()
    go.set()
    stopper.join()
    assert left
    office.pool.shutdown()

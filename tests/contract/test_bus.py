"""What every bus does: the same calls on the one in process and on RabbitMQ. Messages need time there, so arrivals are waited for."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jetbridge.errors import (
    ComputeResourcesUnavailable,
    Invalid,
    JetbridgeError,
    MessageTimeout,
    NoValidHost,
    ServiceUnavailable,
    UnknownDestination,
)
from jetbridge.journey.seams import Seams
from jetbridge.model.context import RequestContext
from jetbridge.model.events import Seam, SeamEvent
from jetbridge.model.server import TaskState
from jetbridge.rpc.bus import Bus, Payload
from jetbridge.rpc.inprocess import InProcessBus
from jetbridge.rpc.oslo import OsloBus
from tests.servers.rabbitmq import RabbitNode

CONTEXT = RequestContext("u", "p", frozenset({"admin", "member"}), "req-1")
WAIT = 30


class Office:
    """A bus with two workers, what it said, and what arrived at it."""

    def __init__(self, url: str | None, **arguments: Any) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.events: list[SeamEvent] = []
        self.arrived: queue.Queue[tuple[RequestContext, Payload]] = queue.Queue()
        self.bus: Bus
        seams = Seams(self.events.append)
        if url is None:
            self.bus = InProcessBus(self.pool, seams, **arguments)
        else:
            self.bus = OsloBus(url, self.pool, seams, **arguments)
            self.bus.start()

    def note(self, context: RequestContext, payload: Payload) -> Payload | None:
        self.arrived.put((context, payload))
        return {"seen": True}

    def next(self) -> tuple[RequestContext, Payload]:
        return self.arrived.get(timeout=WAIT)

    def close(self) -> None:
        self.bus.stop()
        self.pool.shutdown()


@pytest.fixture(params=["inprocess", "rabbitmq"])
def office(request: pytest.FixtureRequest) -> Iterator[Office]:
    if request.param == "inprocess":
        made = Office(None)
        yield made
        made.close()
        return
    node: RabbitNode = request.getfixturevalue("rabbit")
    made = Office(node.url)
    yield made
    made.close()
    node.forget("conductor", "scheduler", "compute.gpu001", "compute.gpu002")


def cast(office: Office, method: str, payload: Payload | None = None, topic: str = "conductor", **more: Any) -> None:
    office.bus.cast(CONTEXT, topic, method, payload or {}, source="api", **more)


def call(office: Office, method: str, payload: Payload | None = None, topic: str = "conductor", **more: Any) -> Payload:
    return office.bus.call(CONTEXT, topic, method, payload or {}, source="api", **more)


def test_a_cast_arrives_with_its_context(office: Office) -> None:
    office.bus.serve("conductor", {"build": office.note})
    cast(office, "build", {"server_uuid": "s1"})
    assert office.next() == (CONTEXT, {"server_uuid": "s1"})


def test_a_call_answers(office: Office) -> None:
    office.bus.serve("conductor", {"build": office.note, "nothing": lambda context, payload: None})
    assert call(office, "build") == {"seen": True}
    assert call(office, "nothing") == {}


def test_casts_to_one_host_arrive_in_order(office: Office) -> None:
    first = threading.Event()

    def take(context: RequestContext, payload: Payload) -> None:
        if payload["number"] == 0:
            assert first.wait(WAIT)
        office.note(context, payload)

    office.bus.serve("compute", {"take": take}, server="gpu001")
    for number in range(3):
        cast(office, "take", {"number": number}, topic="compute", server="gpu001")
    assert [office.next()[1]["number"] for _ in range(2)] == [1, 2]  # the other worker goes on
    first.set()
    assert office.next()[1]["number"] == 0


def test_messages_find_the_one_host_they_name(office: Office) -> None:
    for host in ("gpu001", "gpu002"):
        office.bus.serve("compute", {"who": lambda context, payload, host=host: {"host": host}}, server=host)
    assert call(office, "who", topic="compute", server="gpu001") == {"host": "gpu001"}
    assert call(office, "who", topic="compute", server="gpu002") == {"host": "gpu002"}
    office.bus.withdraw("compute", server="gpu002")
    for send in (call, cast):
        for arguments in ({"server": "gpu002"}, {}):
            with pytest.raises(UnknownDestination, match="compute"):
                send(office, "who", topic="compute", **arguments)
    with pytest.raises(UnknownDestination, match="compute:gpu001 with a method when"):
        call(office, "when", topic="compute", server="gpu001")


def test_who_serves_again_under_new_methods_is_asked(office: Office) -> None:
    office.bus.serve("compute", {"who": lambda context, payload: {"is": "old"}}, server="gpu001")
    office.bus.serve("compute", {"who": lambda context, payload: {"is": "new"}}, server="gpu001")
    assert call(office, "who", topic="compute", server="gpu001") == {"is": "new"}
    office.bus.withdraw("compute", server="gpu001")
    office.bus.serve("compute", {"who": lambda context, payload: {"is": "back"}}, server="gpu001")
    assert call(office, "who", topic="compute", server="gpu001") == {"is": "back"}


def test_every_message_is_an_event(office: Office) -> None:
    office.bus.serve("compute", {"build": office.note}, server="gpu001")
    office.bus.serve("scheduler", {"select": office.note})
    cast(office, "build", {"server_uuid": "s1"}, topic="compute", server="gpu001")
    office.bus.call(CONTEXT, "scheduler", "select", {"server_uuids": ["s1", "s2"]}, source="conductor")
    sent, asked = office.events
    assert (sent.seam, sent.source, sent.target, sent.what) == (Seam.CAST, "api", "compute:gpu001", "build")
    assert (sent.request_id, sent.server, sent.seconds) == ("req-1", "s1", None)
    assert (asked.seam, asked.source, asked.target, asked.what) == (Seam.CALL, "conductor", "scheduler", "select")
    assert (asked.server, asked.essentials) == ("s1", {"servers": "2"})
    assert asked.seconds is not None
    assert 0 <= asked.seconds < WAIT


def test_an_error_of_a_handler_comes_back_as_what_it_is(office: Office) -> None:
    def fail(context: RequestContext, payload: Payload) -> None:
        raise NoValidHost(reason="3 hosts considered")

    office.bus.serve("scheduler", {"fail": fail})
    with pytest.raises(NoValidHost) as caught:
        call(office, "fail", topic="scheduler")
    assert caught.value.message == "No valid host was found. 3 hosts considered"
    assert caught.value.facts == {"reason": "3 hosts considered"}
    assert caught.value.http_status == NoValidHost.http_status
    assert office.events[-1].essentials == {"error": "NoValidHost"}


def test_an_unforeseen_error_of_a_call_comes_as_ours_and_is_logged(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    office.bus.serve("conductor", {"fail": lambda context, payload: {"x": 1 // 0}})
    with pytest.raises(JetbridgeError, match="conductor failed in fail: ZeroDivisionError"):
        call(office, "fail")
    assert "req-1" in [getattr(record, "request_id", None) for record in caplog.records]
    assert "Traceback" in caplog.text


def test_a_failed_cast_kills_no_worker_and_does_not_come_again(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(context: RequestContext, payload: Payload) -> None:
        office.note(context, payload)
        raise ComputeResourcesUnavailable(reason="no memory")

    office.bus.serve("conductor", {"fail": fail, "build": office.note})
    for _ in range(4):
        cast(office, "fail", {"server_uuid": "s1"})
    for _ in range(4):
        assert office.next()[1] == {"server_uuid": "s1"}
    cast(office, "build", {"server_uuid": "s2"})
    assert office.next()[1] == {"server_uuid": "s2"}
    assert office.arrived.empty()
    assert "fail of conductor failed" in caplog.text


def test_a_slow_answer_is_lost(office: Office) -> None:
    go = threading.Event()

    def slow(context: RequestContext, payload: Payload) -> Payload:
        go.wait(0.5)
        return {"too": "late"}

    office.bus.serve("compute", {"slow": slow}, server="gpu001")
    with pytest.raises(MessageTimeout, match=r"No answer from compute:gpu001 to slow within 0.3 s"):
        call(office, "slow", topic="compute", server="gpu001", timeout=0.3)
    go.set()


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
def test_what_a_message_can_not_hold_is_refused(office: Office, payload: dict[str, Any], place: str) -> None:
    office.bus.serve("conductor", {"build": office.note})
    for send in (cast, call):
        with pytest.raises(Invalid, match=place):
            send(office, "build", payload)
    assert office.arrived.empty()


def test_an_answer_is_held_to_the_same(office: Office) -> None:
    office.bus.serve("conductor", {"bad": lambda context, payload: {"x": object()}})
    with pytest.raises(Invalid, match=r"answer of conductor.bad\[x\]"):
        call(office, "bad")


def test_what_arrives_is_a_copy_of_plain_values(office: Office) -> None:
    office.bus.serve("conductor", {"take": office.note})
    sent = {"state": TaskState.SPAWNING, "list": [1, 2.5, None, True], "deep": {"k": ["ü"]}}
    call(office, "take", sent)
    received = office.next()[1]
    assert received == {"state": "spawning", "list": [1, 2.5, None, True], "deep": {"k": ["ü"]}}
    assert type(received["state"]) is str
    received["deep"]["k"].append("changed")
    assert sent["deep"] == {"k": ["ü"]}


def test_a_handler_that_runs_is_waited_for_and_may_send(office: Office) -> None:
    started, go = threading.Event(), threading.Event()
    ended: list[str] = []

    def build(context: RequestContext, payload: Payload) -> None:
        started.set()
        assert go.wait(WAIT)
        cast(office, "note", {"from": "build"})
        ended.append("sent")

    office.bus.serve("conductor", {"build": build, "note": office.note})
    cast(office, "build")
    assert started.wait(WAIT)
    stopper = threading.Thread(target=office.bus.stop)
    stopper.start()
    end = time.monotonic() + WAIT
    while not stopping(office):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert ended == []
    go.set()
    stopper.join(WAIT)
    assert not stopper.is_alive()
    assert ended == ["sent"]


def stopping(office: Office) -> bool:
    try:
        cast(office, "note")
    except ServiceUnavailable as error:
        return "stopping" in error.message
    return False

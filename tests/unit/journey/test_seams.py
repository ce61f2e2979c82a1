from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from jetbridge.errors import NoValidHost
from jetbridge.journey.seams import CLIENT, Seams
from jetbridge.model.events import Seam, SeamEvent
from tests.unit.journey.spans import Recorder


def test_a_crossing_is_a_span_and_an_event() -> None:
    recorder = Recorder(at=1.5)
    with recorder.seams.crossing(
        Seam.CALL, "conductor", "scheduler", "select", request_id="req-1", server="s1", essentials={"servers": "2"}
    ):
        pass
    (span,), (event,) = recorder.spans, recorder.events
    assert (span.seam, span.source, span.target, span.what) == (Seam.CALL, "conductor", "scheduler", "select")
    assert (span.request_id, span.server, span.essentials, span.error) == ("req-1", "s1", {"servers": "2"}, None)
    assert span.started_at == datetime(1970, 1, 1, 0, 0, 1, 500_000)
    assert span.parent_id is None
    assert event.seconds is not None
    assert abs(span.seconds - event.seconds) < 1e-6
    assert event == SeamEvent(
        Seam.CALL, "conductor", "scheduler", "select", "req-1", "s1", 1.5, event.seconds, {"servers": "2"}
    )


def test_what_crosses_inside_is_a_child() -> None:
    recorder = Recorder()
    with recorder.seams.crossing(Seam.REST, CLIENT, "api", "POST", request_id="req-1"):
        with recorder.seams.crossing(Seam.CALL, "api", "scheduler", "select", request_id="req-1"):
            pass
        with recorder.seams.crossing(Seam.CAST, "api", "conductor", "build", request_id="req-1"):
            pass
    call, cast, rest = recorder.spans
    assert (call.parent_id, cast.parent_id, rest.parent_id) == (rest.span_id, rest.span_id, None)
    assert len({span.trace_id for span in recorder.spans}) == 1


def test_a_message_carries_the_trace_to_another_thread_and_leaves_nothing_there() -> None:
    recorder = Recorder()
    seams = recorder.seams

    def handle(traceparent: str | None) -> None:
        with seams.continued(traceparent), seams.crossing(Seam.LIBRARY, "compute:h", "libvirt", "x", request_id="r"):
            pass

    with ThreadPoolExecutor(1) as pool:
        with seams.crossing(Seam.CAST, "api", "compute:h", "build", request_id="r") as crossing:
            traceparent = crossing.traceparent
        pool.submit(handle, traceparent).result()  # the cast is over by now
        pool.submit(handle, None).result()
    cast, library, other = recorder.spans
    assert traceparent is not None
    assert traceparent.startswith(f"00-{cast.trace_id}-{cast.span_id}-0")
    assert (library.trace_id, library.parent_id) == (cast.trace_id, cast.span_id)
    assert other.parent_id is None
    assert other.trace_id != cast.trace_id


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-0-0-00", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_traceparent_that_is_none_begins_a_new_trace(traceparent: str) -> None:
    recorder = Recorder()
    with recorder.seams.continued(traceparent), recorder.seams.crossing(Seam.CALL, "a", "b", "c", request_id="r"):
        pass
    assert recorder.spans[0].parent_id is None


def test_an_error_is_told_with_its_class_and_comes_through() -> None:
    recorder = Recorder()
    with (
        pytest.raises(NoValidHost),
        recorder.seams.crossing(Seam.CALL, "conductor", "scheduler", "select", request_id="r"),
    ):
        raise NoValidHost(reason="all are full")
    assert recorder.spans[0].error == f"NoValidHost: {NoValidHost(reason='all are full')}"
    assert recorder.events[0].essentials == {"error": "NoValidHost"}


def test_what_ended_early_is_told_once_and_as_it_was_then() -> None:
    recorder = Recorder()
    with recorder.seams.crossing(Seam.REST, CLIENT, "api", "GET", request_id="r") as crossing:
        crossing.what = "GET /servers"
        crossing.end()
        crossing.what = "something else"
    assert [span.what for span in recorder.spans] == ["GET /servers"]
    assert [event.what for event in recorder.events] == ["GET /servers"]


def test_without_a_tracer_there_are_events_and_no_traceparent() -> None:
    events: list[SeamEvent] = []
    with Seams(events.append).crossing(Seam.CAST, "api", "conductor", "build", request_id="r") as crossing:
        assert crossing.traceparent is None
    assert [(event.what, event.seconds) for event in events] == [("build", None)]


def test_a_listener_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: SeamEvent) -> None:
        raise LookupError("nobody listens")

    with caplog.at_level(logging.ERROR), Seams(broken).crossing(Seam.CALL, "a", "b", "c", request_id="r"):
        pass
    assert "nobody listens" in caplog.text

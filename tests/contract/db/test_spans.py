"""Spans of requests: what is stored is what is read, on every database."""

from __future__ import annotations

import threading
from datetime import timedelta

from jetbridge.db import spans
from jetbridge.db.engine import Database
from jetbridge.journey.seams import CLIENT, Seams
from jetbridge.journey.tracing import Tracing
from jetbridge.model.events import Seam
from jetbridge.model.span import Span
from tests.unit.journey.spans import BEGAN, span


def stored(database: Database, *values: Span) -> None:
    database.write(lambda conn: spans.insert(conn, values))


def test_a_span_comes_back_as_it_was(database: Database) -> None:
    whole = span(
        "b" * 16,
        "a" * 16,
        at=0.123456,
        seconds=1.23456789e-4,
        server="11111111-2222-4333-8444-555555555555",
        essentials={"host": "gpu001", "reason": "é ☃"},
        error="NoValidHost: nö",
    )
    stored(database, whole, span("c" * 16, request_id="req-2"))
    with database.read() as conn:
        assert spans.of_requests(conn, ["req-1"]) == (whole,)


def test_spans_come_in_the_order_they_began(database: Database) -> None:
    stored(database, span("c", at=2), span("a", at=0.000002), span("b", at=0.000001, request_id="req-2"))
    with database.read() as conn:
        found = spans.of_requests(conn, ["req-1", "req-2"])
    assert [each.span_id for each in found] == ["b", "a", "c"]


def test_texts_that_the_column_can_not_hold_lose_their_end_and_no_batch(database: Database) -> None:
    stored(database, span("a", what="x" * 300, target="y" * 300, error="a\x00b"), span("b", at=1))
    with database.read() as conn:
        first, second = spans.of_requests(conn, ["req-1"])
    assert (first.what, first.target, first.error) == ("x" * 255, "y" * 255, "a�b")
    assert second.span_id == "b"


def test_requests_about_a_server_are_found_the_latest_first(database: Database) -> None:
    stored(
        database,
        span("a", server="s1"),
        span("b", server="s1", request_id="req-2", at=5),
        span("c", server="s1", at=1),
        span("d", server="s2", request_id="req-3"),
        span("e", server="s1", request_id=None),
    )
    with database.read() as conn:
        assert spans.requests_about(conn, "s1") == ("req-2", "req-1")


def test_old_spans_are_purged(database: Database) -> None:
    stored(database, span("a"), span("b", at=10))
    assert database.write(lambda conn: spans.purge(conn, BEGAN + timedelta(seconds=10))) == 1
    with database.read() as conn:
        assert [each.span_id for each in spans.of_requests(conn, ["req-1"])] == ["b"]


def test_threads_at_once_lose_no_span(database: Database) -> None:
    tracing = Tracing(lambda ended: database.write(lambda conn: spans.insert(conn, ended)), "test", "test")
    seams = Seams(tracer=tracing.tracer)

    def work(name: str) -> None:
        for _ in range(100):
            with seams.crossing(Seam.CALL, CLIENT, "api", name, request_id="req-1"):
                pass

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracing.stop()
    with database.read() as conn:
        found = spans.of_requests(conn, ["req-1"])
    assert sorted(each.what for each in found) == sorted(str(number) for number in range(4) for _ in range(100))
    assert len({each.span_id for each in found}) == 400

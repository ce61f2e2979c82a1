from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import TracerProvider

from jetbridge.journey.seams import CLIENT, Seams
from jetbridge.journey.store import SpanStore, Write
from jetbridge.model.events import Seam
from jetbridge.model.span import Span

WAIT = 20


class Database:
    """Takes batches; ``open`` cleared: it hangs."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Span]] = []
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()

    def write(self, spans: Sequence[Span]) -> None:
        self.asked.set()
        assert self.open.wait(WAIT)
        self.batches.append(spans)

    @property
    def names(self) -> list[str]:
        return [span.what for batch in self.batches for span in batch]


class Traced:
    def __init__(self, write: Write, **limits: float) -> None:
        self.store = SpanStore(write, **limits)  # type: ignore[arg-type]
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self.store)
        self.seams = Seams(tracer=provider.get_tracer("test"))

    def cross(self, what: str, seam: Seam = Seam.CALL, request_id: str | None = "req-1") -> None:
        with self.seams.crossing(seam, CLIENT, "api", what, request_id=request_id):
            pass


def test_many_spans_are_few_batches() -> None:
    database = Database()
    traced = Traced(database.write, pause_seconds=60)
    for number in range(1200):
        traced.cross(str(number))
    traced.store.shutdown()
    assert database.names == [str(number) for number in range(1200)]
    assert 3 <= len(database.batches) <= 5
    assert max(map(len, database.batches)) <= 512
    assert traced.store.dropped == 0


def test_few_spans_are_stored_soon_without_being_asked_for() -> None:
    database = Database()
    traced = Traced(database.write, pause_seconds=0.01)
    traced.cross("one")
    assert database.asked.wait(WAIT)
    traced.store.shutdown()


def test_a_database_that_hangs_costs_spans_and_blocks_nobody(caplog: pytest.LogCaptureFixture) -> None:
    database = Database()
    database.open.clear()
    traced = Traced(database.write, queue=10, batch=2, pause_seconds=0.01)
    for number in range(25):
        traced.cross(str(number))  # returns although nothing gets away
    assert database.asked.wait(WAIT)
    assert traced.store.dropped == 15
    with caplog.at_level(logging.WARNING):
        database.open.set()
        traced.store.force_flush()
        traced.cross("after")
        traced.store.shutdown()
    assert database.names == [*map(str, range(10)), "after"]
    assert "15 spans of journeys were lost (15 since the start)" in caplog.text


def test_a_batch_that_can_not_be_stored_is_counted_and_the_next_one_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    database = Database()
    broken = True

    def write(spans: Sequence[Span]) -> None:
        if broken:
            raise ConnectionError("nobody there")
        database.write(spans)

    traced = Traced(write, pause_seconds=60)
    traced.cross("lost")
    with caplog.at_level(logging.WARNING):
        traced.store.force_flush()
    assert traced.store.dropped == 1
    assert "could not be stored: nobody there" in caplog.text
    broken = False
    traced.cross("kept")
    traced.store.shutdown()
    assert database.names == ["kept"]


def test_clients_that_only_look_are_not_kept() -> None:
    database = Database()
    traced = Traced(database.write, pause_seconds=60)
    traced.cross("GET /servers/{server_id}", Seam.REST)
    traced.cross("POST /servers", Seam.REST)
    traced.cross("node_devices", Seam.LIBRARY, request_id=None)
    with traced.seams.crossing(Seam.REST, CLIENT, "api", "GET /xml", request_id="req-2"):
        traced.cross("domain_xml")
    with traced.seams.crossing(Seam.CALL, "conductor", "scheduler", "select_destinations", request_id="req-3"):
        traced.cross("GET /resource_providers", Seam.REST)
    traced.store.shutdown()
    assert database.names == [
        "POST /servers",
        "domain_xml",
        "GET /xml",
        "GET /resource_providers",
        "select_destinations",
    ]

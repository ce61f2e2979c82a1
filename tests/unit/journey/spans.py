"""Spans for tests: recorded ones, and values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from jetbridge.journey import attributes
from jetbridge.journey.seams import Seams
from jetbridge.model.events import Seam, SeamEvent
from jetbridge.model.span import Span

BEGAN = datetime(2026, 3, 1, 12, 0, 0)


class Recorder:
    """``seams`` whose events and spans can be looked at."""

    def __init__(self, at: float = 1000.0) -> None:
        self._memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.events: list[SeamEvent] = []
        self.seams = Seams(self.events.append, provider.get_tracer("test"), lambda: at)

    @property
    def spans(self) -> Sequence[Span]:
        """In the order they ended."""
        return [attributes.span_of(span) for span in self._memory.get_finished_spans()]


def span(span_id: str, parent_id: str | None = None, at: float = 0.0, **more: Any) -> Span:
    fields: dict[str, Any] = {
        "trace_id": "0" * 31 + "1",
        "request_id": "req-1",
        "server": None,
        "seam": Seam.CALL,
        "source": "api",
        "target": "conductor",
        "what": "build",
        "seconds": 0.5,
        **more,
    }
    return Span(span_id=span_id, parent_id=parent_id, started_at=BEGAN + timedelta(seconds=at), **fields)

"""Spans on their way into the database: in batches, off the path of requests.

OpenTelemetry's batch processor has the queue and the one thread; here it is bounded, so that a database that is slow or away costs spans and
never a request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace import Span as LiveSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from jetbridge.journey import attributes
from jetbridge.model.span import Span

logger = logging.getLogger(__name__)

QUEUE = 8192
BATCH = 512
PAUSE_SECONDS = 1.0

Write = Callable[[Sequence[Span]], None]
"""Stores spans. May take as long as it needs, and raise when they are lost."""


class SpanStore(SpanProcessor):
    """Hands every span of a request to ``write``, at most ``batch`` at a time, ``pause_seconds`` apart when there are few. At most ``queue``
    wait: more are dropped, counted and logged.

    Spans of no request (periodic looks at the hypervisor) aren't kept, nor the requests of clients that only read and crossed no other
    seam: who waits for a server asks again and again.
    """

    def __init__(
        self, write: Write, *, queue: int = QUEUE, batch: int = BATCH, pause_seconds: float = PAUSE_SECONDS
    ) -> None:
        self._queue = queue
        self._guard = threading.Lock()
        self._waiting = 0
        self._dropped = 0
        self._unsaid = 0
        self._parents: set[int] = set()
        self._batches = BatchSpanProcessor(
            _Exporter(write, self._written),
            max_queue_size=queue,
            max_export_batch_size=min(batch, queue),
            schedule_delay_millis=pause_seconds * 1000,
        )

    @property
    def dropped(self) -> int:
        """How many spans were lost so far."""
        return self._dropped

    def on_start(self, span: LiveSpan, parent_context: Context | None = None) -> None:
        parent = trace.get_current_span(parent_context)
        if parent.is_recording():  # one of a message's sender isn't: it may have ended
            with self._guard:
                self._parents.add(parent.get_span_context().span_id)

    def on_end(self, span: ReadableSpan) -> None:
        assert span.context is not None
        with self._guard:
            led_on = span.context.span_id in self._parents
            self._parents.discard(span.context.span_id)
            only_looked = attributes.only_reads(span) and span.parent is None and not led_on
            if attributes.request_of(span) is None or only_looked:
                return
            if self._waiting >= self._queue:
                self._dropped += 1
                self._unsaid += 1
                return
            self._waiting += 1
        self._batches.on_end(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Returns when everything that ended before is stored or lost."""
        return self._batches.force_flush(timeout_millis)

    def shutdown(self) -> None:
        """Stores what waits; what can't be stored within half a minute is lost."""
        self._batches.shutdown()  # type: ignore[no-untyped-call]
        if self._waiting:
            logger.warning("%d spans of journeys were lost: the database took too long", self._waiting)

    def _written(self, count: int, *, lost: bool) -> None:
        with self._guard:
            self._waiting -= count
            if lost:
                self._dropped += count
                self._unsaid += count
            unsaid, self._unsaid = self._unsaid, 0
        if unsaid:
            logger.warning(
                "%d spans of journeys were lost (%d since the start): %s",
                unsaid,
                self._dropped,
                "they could not be stored" if lost else f"the database did not keep up, and {self._queue} wait at most",
            )


class _Exporter(SpanExporter):
    def __init__(self, write: Write, written: Callable[..., None]) -> None:
        self._write = write
        self._written = written

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lost = True
        try:
            self._write([attributes.span_of(span) for span in spans])
            lost = False
        except Exception as error:  # noqa: BLE001 - whatever it is: the next batch may go through
            logger.warning("%d spans of journeys could not be stored: %s", len(spans), error)
        finally:
            self._written(len(spans), lost=lost)
        return SpanExportResult.FAILURE if lost else SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def shutdown(self) -> None:
        pass

"""Where a request crosses from one service to another: each crossing becomes a span of the request's trace, and an event.

Which span is the parent of the next is known by OpenTelemetry's context, which follows a request through its thread (and through the
threads that asyncio hands it to). Between threads of a pool and between processes it travels in the message, as a traceparent of W3C Trace
Context (https://www.w3.org/TR/trace-context/). This module needs OpenTelemetry's API only: without its SDK nothing is recorded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import NoOpTracer, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from jetbridge.errors import JetbridgeError
from jetbridge.journey import attributes
from jetbridge.model.events import EventSink, Seam, SeamEvent, no_events

logger = logging.getLogger(__name__)

CLIENT = "client"
"""Where requests come from that knock at the front door."""

_TRACEPARENT = "traceparent"
_PROPAGATOR = TraceContextTextMapPropagator()


class Crossing:
    """A crossing under way. ``what``, ``server`` and ``essentials`` may be filled in until it ends."""

    def __init__(
        self,
        seams: Seams,
        seam: Seam,
        source: str,
        target: str,
        what: str,
        request_id: str | None,
        server: str | None,
        essentials: Mapping[str, str],
    ) -> None:
        self.what = what
        self.server = server
        self.essentials = dict(essentials)
        self._seams = seams
        self._seam = seam
        self._source = source
        self._target = target
        self._request_id = request_id
        self._at = seams.clock()
        self._started = time.monotonic()
        self._error: str | None = None
        self._ended = False
        self.span = seams.tracer.start_span(what, kind=_kind(seam, source), start_time=attributes.nanoseconds(self._at))

    @property
    def traceparent(self) -> str | None:
        """For a message that is sent on the way; None when nothing is recorded."""
        if not self.span.is_recording():
            return None
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(self.span))
        return carrier[_TRACEPARENT]

    def fail(self, error: str, message: str = "") -> None:
        """``error``: of which class it is, or another short word."""
        self._error = error
        self.span.set_status(Status(StatusCode.ERROR, f"{error}: {message}" if message else error))

    def end(self) -> None:
        """Tell it. Again: nothing happens."""
        if self._ended:
            return
        self._ended = True
        seconds = time.monotonic() - self._started
        span = self.span
        if span.is_recording():
            span.update_name(self.what)
            span.set_attributes(
                attributes.of(self._seam, self._source, self._target, self._request_id, self.server, self.essentials)
            )
            span.end(attributes.nanoseconds(self._at + seconds))
        self._seams.tell(
            SeamEvent(
                seam=self._seam,
                source=self._source,
                target=self._target,
                what=self.what,
                request_id=self._request_id,
                server=self.server,
                at=self._at,
                seconds=None if self._seam is Seam.CAST else seconds,
                essentials=self.essentials if self._error is None else {**self.essentials, "error": self._error},
            )
        )


@dataclass(frozen=True)
class Seams:
    """``events`` is told each crossing when it is over; ``tracer`` makes the spans; ``clock`` gives seconds since the epoch."""

    events: EventSink = no_events
    tracer: Tracer = field(default_factory=NoOpTracer)
    clock: Callable[[], float] = time.time

    @contextmanager
    def crossing(
        self,
        seam: Seam,
        source: str,
        target: str,
        what: str,
        *,
        request_id: str | None,
        server: str | None = None,
        essentials: Mapping[str, str] | None = None,
    ) -> Iterator[Crossing]:
        """Around what crosses: crossings inside it are its children. An error inside it is told and comes through."""
        crossing = Crossing(self, seam, source, target, what, request_id, server, essentials or {})
        with trace.use_span(crossing.span, record_exception=False, set_status_on_exception=False):
            try:
                yield crossing
            except BaseException as error:
                crossing.fail(error.code if isinstance(error, JetbridgeError) else type(error).__name__, str(error))
                raise
            finally:
                crossing.end()

    @contextmanager
    def continued(self, traceparent: str | None) -> Iterator[None]:
        """Around the handling of a message: crossings inside it are children of the one that sent the message."""
        if traceparent is None:
            yield
            return
        token = otel_context.attach(_PROPAGATOR.extract({_TRACEPARENT: traceparent}))
        try:
            yield
        finally:
            otel_context.detach(token)

    def tell(self, event: SeamEvent) -> None:
        """A listener that fails changes nothing."""
        try:
            self.events(event)
        except Exception:
            logger.exception("A listener failed on %s", event)


def _kind(seam: Seam, source: str) -> SpanKind:
    if seam is Seam.CAST:
        return SpanKind.PRODUCER
    return SpanKind.SERVER if source == CLIENT else SpanKind.CLIENT

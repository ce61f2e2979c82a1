"""A crossing as attributes of an OpenTelemetry span, and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from opentelemetry.trace import format_span_id, format_trace_id

from jetbridge.model.events import Seam
from jetbridge.model.span import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

SEAM = "jetbridge.seam"
_SOURCE = "jetbridge.source"
_TARGET = "jetbridge.target"
_REQUEST_ID = "jetbridge.request_id"
_SERVER = "jetbridge.server"
_ESSENTIAL = "jetbridge.essential."

_EPOCH = datetime(1970, 1, 1)


def of(
    seam: Seam, source: str, target: str, request_id: str | None, server: str | None, essentials: Mapping[str, str]
) -> dict[str, str]:
    known = {SEAM: seam.value, _SOURCE: source, _TARGET: target}
    if request_id is not None:
        known[_REQUEST_ID] = request_id
    if server is not None:
        known[_SERVER] = server
    return {**known, **{_ESSENTIAL + key: value for key, value in essentials.items()}}


def request_of(recorded: ReadableSpan) -> str | None:
    return _text(recorded, _REQUEST_ID)


def only_reads(recorded: ReadableSpan) -> bool:
    """Whether it is a request over HTTP that changes nothing (RFC 9110, 9.2.1)."""
    return _text(recorded, SEAM) == Seam.REST and recorded.name.partition(" ")[0] in ("GET", "HEAD", "OPTIONS")


def span_of(recorded: ReadableSpan) -> Span:
    """Of an ended span that a ``Crossing`` made."""
    attributes = recorded.attributes or {}
    assert recorded.context is not None
    assert recorded.start_time is not None
    assert recorded.end_time is not None
    return Span(
        trace_id=format_trace_id(recorded.context.trace_id),
        span_id=format_span_id(recorded.context.span_id),
        parent_id=None if recorded.parent is None else format_span_id(recorded.parent.span_id),
        request_id=request_of(recorded),
        server=_text(recorded, _SERVER),
        seam=Seam(str(attributes[SEAM])),
        source=str(attributes[_SOURCE]),
        target=str(attributes[_TARGET]),
        what=recorded.name,
        started_at=_EPOCH + timedelta(microseconds=recorded.start_time // 1000),
        seconds=(recorded.end_time - recorded.start_time) / 1e9,
        essentials={
            key.removeprefix(_ESSENTIAL): str(value) for key, value in attributes.items() if key.startswith(_ESSENTIAL)
        },
        error=None if recorded.status.is_ok else recorded.status.description,
    )


def nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _text(recorded: ReadableSpan, key: str) -> str | None:
    value = (recorded.attributes or {}).get(key)
    return None if value is None else str(value)

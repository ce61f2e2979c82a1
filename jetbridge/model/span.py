"""A span: that a request crossed from one service to another, and how long it took; its parent is the span that led to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from jetbridge.model.events import Seam


@dataclass(frozen=True)
class Span:
    """``trace_id`` (32) and ``span_id``, ``parent_id`` (16) are hexadecimal digits (W3C Trace Context); ``parent_id`` None: the first of its
    trace. ``source``, ``target``, ``what`` and ``essentials`` as in ``SeamEvent``. ``started_at`` is UTC without zone, ``seconds`` how
    long it took: of a CAST until the message was handed over. ``error``: how it failed, beginning with the class of the error."""

    trace_id: str
    span_id: str
    parent_id: str | None
    request_id: str | None
    server: str | None
    seam: Seam
    source: str
    target: str
    what: str
    started_at: datetime
    seconds: float
    essentials: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None

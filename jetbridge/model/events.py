"""Seam events: each time a request crosses from one service to another, this is said."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


class Seam(enum.StrEnum):
    CAST = "CAST"  # a message, no answer awaited
    CALL = "CALL"  # a blocking call, in process or over the bus
    REST = "REST"  # HTTP to a service
    LIBRARY = "LIBRARY"  # libvirt, VFIO, sysfs


@dataclass(frozen=True)
class SeamEvent:
    """``source`` and ``target`` are service names (api, conductor, scheduler, compute:HOST, libvirt, ...);
    ``what`` the message or call; ``essentials`` small facts worth showing; ``at`` seconds since the epoch; ``seconds`` its duration, when it is over."""

    seam: Seam
    source: str
    target: str
    what: str
    request_id: str | None
    server: str | None
    at: float
    seconds: float | None = None
    essentials: Mapping[str, str] = field(default_factory=dict)


EventSink = Callable[[SeamEvent], None]
"""Takes an event, quickly and without raising."""


def no_events(event: SeamEvent) -> None:
    """The sink that nobody reads."""

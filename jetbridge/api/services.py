"""What the HTTP front doors are given: everything they may touch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jetbridge.config.settings import Settings
from jetbridge.model.events import EventSink, no_events
from jetbridge.pci.request import AliasTable
from jetbridge.rpc.bus import Bus

if TYPE_CHECKING:
    from jetbridge.db.engine import Database
    from jetbridge.image.store import ImageDirectory


@dataclass(frozen=True)
class ApiServices:
    """``aliases`` are validated when the service starts and never change while it runs. ``public_host`` is the
    host name or address the service listens on. ``new_id`` makes UUIDs."""

    database: Database
    bus: Bus
    settings: Settings
    aliases: AliasTable
    images: ImageDirectory
    new_id: Callable[[], str]
    listen: str = "127.0.0.1"
    events: EventSink = field(default=no_events)

"""A Placement of the tests' own, as the product runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jetbridge.config.settings import Settings
from jetbridge.journey.seams import Seams
from jetbridge.model.events import SeamEvent
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.session import Endpoint, placement_adapter
from jetbridge.placement.transport import Transport
from jetbridge.service.placement import EmbeddedPlacement
from tests.servers.placement import forks


@dataclass
class Ledger:
    """``events``: the crossings told so far; ``database``: Placement's, an SQLite file."""

    database: Path
    server: EmbeddedPlacement
    client: PlacementClient
    events: list[SeamEvent] = field(default_factory=list)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Empty, and running."""
    database = tmp_path / "placement.sqlite3"
    server = EmbeddedPlacement(Settings(), database, tmp_path / "placement.log", "127.0.0.1", 0, forks())
    server.start()
    events: list[SeamEvent] = []
    adapter = placement_adapter(Settings(), Endpoint(server.url, server.own_token))
    try:
        yield Ledger(database, server, PlacementClient(Transport(adapter, Seams(events=events.append))), events)
    finally:
        server.stop()

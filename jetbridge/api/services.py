"""What the HTTP front doors are given: everything they may touch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jetbridge.config.settings import Settings
from jetbridge.journey.seams import Seams
from jetbridge.network.embedded import EmbeddedPorts
from jetbridge.network.ports import Ports
from jetbridge.pci.request import AliasTable
from jetbridge.placement.client import PlacementClient
from jetbridge.rpc.bus import Bus

if TYPE_CHECKING:
    from jetbridge.accelerator.client import AcceleratorClient
    from jetbridge.accelerator.service import AcceleratorService
    from jetbridge.db.engine import Database
    from jetbridge.image.store import ImageDirectory


@dataclass(frozen=True)
class ApiServices:
    """``aliases`` are validated when the service starts and never change while it runs. ``public_host`` is the
    host name or address the service listens on. ``new_id`` makes UUIDs. ``settle_spans`` returns when the spans of this process
    that have ended are in the database. ``accelerators`` is the embedded accelerator service (None: another one is used),
    ``accelerator_client`` asks whichever is used. ``neutron`` None: networks and ports are our own. ``placement`` None: this process knows of none."""

    database: Database
    bus: Bus
    settings: Settings
    aliases: AliasTable
    images: ImageDirectory
    new_id: Callable[[], str]
    listen: str = "127.0.0.1"
    seams: Seams = field(default_factory=Seams)
    accelerators: AcceleratorService | None = None
    accelerator_client: AcceleratorClient | None = None
    settle_spans: Callable[[], None] = lambda: None
    neutron: Ports | None = None
    placement: PlacementClient | None = None

    @property
    def embedded_ports(self) -> EmbeddedPorts | None:
        """None: they are those of a Network service elsewhere."""
        return EmbeddedPorts(self.database) if self.neutron is None else None

    @property
    def ports(self) -> Ports:
        return self.neutron or EmbeddedPorts(self.database)

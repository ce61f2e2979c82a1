"""What the agent of one host works with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from jetbridge.accelerator.bindings import ServerBindings
from jetbridge.accelerator.client import AcceleratorClient
from jetbridge.accelerator.session import NEEDS_ENDPOINT
from jetbridge.compute.events import ExternalEvents
from jetbridge.compute.locks import ServerLocks
from jetbridge.compute.specs import SpecReader
from jetbridge.config.settings import Settings
from jetbridge.db.engine import Database
from jetbridge.image.store import ImageDirectory
from jetbridge.journey.seams import Crossing, Seams
from jetbridge.model.context import RequestContext
from jetbridge.model.events import Seam
from jetbridge.network.embedded import EmbeddedPorts
from jetbridge.network.ports import Ports
from jetbridge.placement.client import PlacementClient
from jetbridge.rpc.bus import Bus
from jetbridge.steps.runtime import Observer, nobody
from jetbridge.virt.connection import HostFiles, HypervisorConnection
from jetbridge.virt.hostfacts import SysfsFacts


@dataclass(frozen=True)
class AgentHost:
    """One host and everything its agent may touch.

    ``owner`` names the process (``builds.owner``, ``services.owner``); ``now`` is UTC without zone; ``shutdown_seconds`` is how long a
    guest may take to power off before the plug is pulled; ``random``
    gives so many random bytes. ``observe`` watches every step (tests kill processes there). ``neutron`` None: networks and ports are
    our own. ``unwritten_cleanings``: cleanings of this process that ended, which the database couldn't be told.
    ``stopping`` is set when the process stops: a cleaner, which may take minutes, is not waited for.
    """

    name: str
    connection: HypervisorConnection
    files: HostFiles
    settings: Settings
    database: Database
    bus: Bus
    images: ImageDirectory
    owner: str
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    disk_gb: int
    random: Callable[[int], bytes]
    seams: Seams = field(default_factory=Seams)
    observe: Observer = nobody
    shutdown_seconds: float = 60.0
    accelerator_client: AcceleratorClient | None = None  # None: no accelerator service can be asked
    events: ExternalEvents = field(default_factory=ExternalEvents)
    placement: PlacementClient | None = None  # None: the host is in no Placement (tests of other things)
    locks: ServerLocks = field(default_factory=ServerLocks)
    neutron: Ports | None = None
    unwritten_cleanings: set[int] = field(default_factory=set)
    stopping: threading.Event = field(default_factory=threading.Event)

    @cached_property
    def ports(self) -> Ports:
        return self.neutron or EmbeddedPorts(self.database)

    @cached_property
    def bindings(self) -> ServerBindings:
        """The accelerator requests of servers."""
        return ServerBindings(self.database, self.accelerator_client, self.now, NEEDS_ENDPOINT)

    @cached_property
    def specs(self) -> SpecReader:
        return SpecReader(
            self.name,
            self.settings.pci_device_spec,
            SysfsFacts(self.files),
            report_in_placement=self.settings.pci_report_in_placement,
        )

    @property
    def source(self) -> str:
        """The agent's name in messages and journeys."""
        return f"compute:{self.name}"

    def library(
        self, context: RequestContext | None, what: str, server: str | None = None, **essentials: str
    ) -> AbstractContextManager[Crossing]:
        """Around a call of the hypervisor."""
        return self.seams.crossing(
            Seam.LIBRARY,
            self.source,
            "libvirt",
            what,
            request_id=context.request_id if context else None,
            server=server,
            essentials={"host": self.name, **essentials},
        )

    def network(
        self, context: RequestContext | None, what: str, server: str, **essentials: str
    ) -> AbstractContextManager[object]:
        """Around a call of the Network service; our own tables are no other service."""
        if self.neutron is None:
            return nullcontext()
        return self.seams.crossing(
            Seam.REST,
            self.source,
            "neutron",
            what,
            request_id=context.request_id if context else None,
            server=server,
            essentials={"host": self.name, **essentials},
        )


def about(context: RequestContext | None, server: str | None = None) -> dict[str, str | None]:
    """``extra`` of a log line: the request and the server it is about."""
    return {"request_id": context.request_id if context else None, "server": server}

"""Everything in one process: front doors, conductor, scheduler and the agents of a fleet or of this machine."""

from __future__ import annotations

import logging
from pathlib import Path

from jetbridge.api.guards import check_listen
from jetbridge.config.fleet import Fleet
from jetbridge.config.origin import naming_origin
from jetbridge.config.settings import Settings
from jetbridge.db import services
from jetbridge.db.engine import Database
from jetbridge.errors import JetbridgeError
from jetbridge.model.events import EventSink, no_events
from jetbridge.pci.alias import parse_aliases
from jetbridge.placement.session import GROUP as PLACEMENT
from jetbridge.reasons import some
from jetbridge.rpc.inprocess import InProcessBus
from jetbridge.scheduler.manager import SchedulerManager
from jetbridge.service.conducting import Conducting
from jetbridge.service.front import open_front
from jetbridge.service.http import HttpServer
from jetbridge.service.placement import EmbeddedPlacement, Spawn, spawn_process
from jetbridge.service.process import Process
from jetbridge.sessions import is_configured
from jetbridge.steps.runtime import Observer, nobody

logger = logging.getLogger(__name__)

NAMED = 10
"""How many hosts a warning names."""


class AllInOne(Process):
    """``port`` and ``placement_port`` 0: any free one; ``spawn`` starts the process of the embedded Placement. Nothing but the database and the hypervisors is needed: messages stay in the process."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet | None,
        state_dir: Path,
        listen: str = "127.0.0.1",
        port: int = 8774,
        *,
        placement_port: int = 0,
        spawn: Spawn = spawn_process,
        events: EventSink = no_events,
        observe: Observer = nobody,
    ) -> None:
        super().__init__(settings, fleet, state_dir, events=events, observe=observe)
        self._listen = listen
        self._port = port
        self._placement_port = placement_port
        self._spawn = spawn

    def _start(self) -> str:
        settings = self.settings
        check_listen(settings, self._listen)
        embeds = not is_configured(settings, PLACEMENT)
        if embeds and self._port and self._port == self._placement_port:
            raise JetbridgeError(
                f"--port and --placement-port are both {self._port}: give them different ones (without --placement-port it is 8778)"
            )
        with naming_origin(settings, "pci", "alias"):
            aliases = parse_aliases(settings.pci_alias, pci_in_placement=settings.pci_in_placement)
        self.state.take()
        self._undo.callback(self.state.release)
        self._open_log(self.state.log)
        server = HttpServer(self._listen, self._port)
        self._undo.callback(server.stop)
        if embeds:
            self.embedded = EmbeddedPlacement(
                settings,
                self.state.placement_database,
                self.state.placement_log,
                self._listen,
                self._placement_port,
                self._spawn,
            )
            self._undo.callback(self.embedded.stop)
            self.embedded.start()
        self._open_database(Database.upgrade)
        self.images.install_builtin()
        self._open_journeys("jetbridge", self.host_name)
        self._open_placement()
        self._open_accelerators(server.port)
        self._open_bus(lambda executor: InProcessBus(executor, self.seams))
        conducting = self._serve_brain()
        self._open_agents(hold=lambda name: None, part=lambda fleet: fleet)
        self._name_hosts_left_over()
        conducting.reconcile(starting=True)
        self._look_after(conducting)
        self._live()
        self._settle_reports()
        return open_front(self, server, self._listen, aliases, self._undo.callback)

    def _name_hosts_left_over(self) -> None:
        """Hosts of an earlier start with another fleet file: nobody would find out why they are down."""
        assert self.agents is not None
        with self.database.read() as conn:
            known = services.hosts_of(conn, services.COMPUTE)
        left = sorted(host for host in known if host not in self.agents)
        if not left:
            return
        source = f"the fleet file {self._fleet.path}" if self._fleet else "this machine"
        logger.warning(
            "Not of %s, but in the database of an earlier start: %s. They count as down and keep their providers in Placement. Remove one"
            " that has no servers by `openstack compute service delete ID` (IDs: openstack compute service list), or keep what you start"
            " apart by --state-dir",
            source,
            some(left, NAMED),
        )

    def _serve_brain(self) -> Conducting:
        self._register(self.host_name, ("nova-conductor", "conductor"), ("nova-scheduler", "scheduler"))
        self.bus.serve("scheduler", SchedulerManager(self.database, self.settings, placement=self.placement).handlers())
        conducting = self._conducting()
        self.bus.serve("conductor", conducting.handlers())
        return conducting

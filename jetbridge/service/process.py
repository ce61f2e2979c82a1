"""What every process of Jetbridge has, whatever it serves: its folder, log, database, workers, bus, and signs of life."""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from jetbridge.accelerator.bindings import ServerBindings
from jetbridge.accelerator.service import AcceleratorService
from jetbridge.accelerator.session import NEEDS_ENDPOINT
from jetbridge.compute.report_queue import AT_ONCE
from jetbridge.config.fleet import Fleet
from jetbridge.config.settings import Settings
from jetbridge.db import builds, commits, services, spans, verdicts
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import DatabaseAway, JetbridgeError
from jetbridge.image.store import ImageDirectory
from jetbridge.journey.seams import Seams
from jetbridge.journey.tracing import Tracing
from jetbridge.model.events import EventSink, no_events
from jetbridge.model.span import Span
from jetbridge.network.neutron import GROUP as NEUTRON
from jetbridge.network.neutron import NeutronPorts
from jetbridge.network.ports import Ports
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.session import Endpoint, placement_adapter
from jetbridge.placement.transport import Transport
from jetbridge.rpc.bus import Bus
from jetbridge.rpc.inprocess import LAST_SECONDS
from jetbridge.service.accelerators import OwnDoor, embedded_service, external_client
from jetbridge.service.agents import AgentKit, Agents, FleetAgents, fleet_settings, local_agent
from jetbridge.service.conducting import Conducting
from jetbridge.service.http import leads_to
from jetbridge.service.logs import log_to_file, stop_logging
from jetbridge.service.owners import gone_owners, new_owner
from jetbridge.service.placement import EmbeddedPlacement
from jetbridge.service.pools import ended_in_time
from jetbridge.service.statedir import StateDir, writing
from jetbridge.service.ticker import Ticker
from jetbridge.sessions import is_configured
from jetbridge.steps.runtime import Observer, nobody

logger = logging.getLogger(__name__)

HOUR = 3600.0
AWAY_SECONDS = 10.0
"""How long a process that stops waits for a database that is away."""
FEW_HOSTS = 20
FIRST_REPORTS_SECONDS = 60.0
"""How long a start waits for few hosts to be in Placement; for many it would take minutes."""


class Process:
    """``fleet`` None: this machine through libvirt. ``events`` gets every seam event; ``observe`` watches every step of builds
    and deletes. Subclasses say in ``_start`` what is served."""

    bus: Bus
    database: Database
    images: ImageDirectory
    seams: Seams
    tracing: Tracing
    placement: PlacementClient
    embedded: EmbeddedPlacement | None = None
    bindings: ServerBindings
    accelerators: AcceleratorService | None = None
    agents: Agents | None = None
    left_behind: bool = False
    """After ``stop``: threads still wait for another service, as long as its requests may take. The interpreter would wait for them in the
    end; the process has to end as by SIGKILL, after which the next start, or another process, puts everything in order."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet | None,
        state_dir: Path,
        *,
        events: EventSink = no_events,
        observe: Observer = nobody,
    ) -> None:
        self._base = settings
        self._fleet = fleet
        self.settings = fleet_settings(settings, fleet)
        self.state = StateDir(state_dir)
        self._events = events
        self._observe = observe
        self._owner = new_owner()
        self._undo = ExitStack()
        self._started = False
        self._database_open = False
        self._ending = threading.Event()

    def start(self) -> str:
        """Serve; answers where (a URL, or the name of what serves). What fails stops what had been started, and nothing is held.

        Raises ``JetbridgeError`` of the kind that says what to change: a state folder or an address in use, an alias, device_spec or
        fleet file that can't be understood, a database that isn't ours, a hypervisor or a message bus that doesn't answer.
        """
        if self._started:
            raise JetbridgeError(f"This {type(self).__name__} was started before: make a new one")
        self._started = True
        try:
            return self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Finish what is under way and let everything go, the last started first. Again: nothing happens."""
        self._hurry()
        self._undo.close()

    def builds_under_way(self) -> int:
        """How many builds of this process ``stop`` would wait for, asked on the way to it; 0 too where the database doesn't say."""
        self._hurry()
        try:
            with self.database.read() as conn:
                return sum(build.owner == self._owner for build in builds.running(conn))
        except DatabaseAway:
            return 0

    def _hurry(self) -> None:
        if self._database_open:
            self.database.hurry(AWAY_SECONDS)

    def _start(self) -> str:
        raise NotImplementedError

    @cached_property
    def neutron(self) -> Ports | None:
        """The Network service of the options; None: networks and ports are our own. Raises ``InvalidConfiguration``."""
        return NeutronPorts(self.settings) if is_configured(self.settings, NEUTRON) else None

    # --- what is opened, in this order; stopping goes the other way ---

    @property
    def host_name(self) -> str:
        """This machine, as services are listed."""
        return self.settings.host or socket.gethostname()

    def _open_log(self, path: Path) -> None:
        with writing(path):
            handler = log_to_file(path, logging.DEBUG if self.settings.debug else logging.INFO)
        self._undo.callback(stop_logging, handler)

    def _open_database(self, prepare: Callable[[Database], object]) -> None:
        """``prepare`` brings the schema up to date, or checks that it is."""
        url = self.settings.database_connection or self.state.database_url
        self.database = Database(url)
        self._database_open = True
        self._undo.callback(self.database.close)
        prepare(self.database)
        self.state.note_database(url, self.database.shown_url)
        self.images = ImageDirectory(self.database, self.settings.image_dir or self.state.path / "images")

    def _open_journeys(self, service: str, instance: str) -> None:
        """Whatever crosses a seam of this process from now on becomes a span, also what is left to do while it stops."""
        self.tracing = Tracing(self._store_spans, service, instance, self.settings.otlp_endpoint)
        self._undo.callback(self.tracing.stop)
        self.seams = Seams(self._events, self.tracing.tracer)

    def _store_spans(self, ended: Sequence[Span]) -> None:
        self.database.write(lambda conn: spans.insert(conn, ended))

    def _open_placement(self) -> None:
        """After the journeys, whose seams its requests cross."""
        endpoint = Endpoint(self.embedded.url, self.embedded.own_token) if self.embedded else None
        transport = Transport(placement_adapter(self.settings, endpoint), self.seams, stopping=self._ending)
        self.placement = PlacementClient(transport)

    def _open_accelerators(self, port: int | None = None) -> None:
        """``port``: this process has the service there, unless the options name another. One file of options may be that of all processes:
        this one finds itself in it. Before the bus, so that builds that end while it stops can still give back what they had."""
        url = self.settings.cyborg_endpoint_override
        ourselves = port is not None and url is not None and leads_to(url, port)
        client = None if ourselves else external_client(self.settings, self.seams)
        if client is None and port is not None:
            self.accelerators = embedded_service(self.database, lambda: self.bus, new_id)
            door = OwnDoor(self.accelerators)
            self._undo.callback(door.stop)
            client = replace(door.start(), seams=self.seams)
        self.bindings = ServerBindings(self.database, client, utcnow, NEEDS_ENDPOINT)

    def _open_bus(self, make: Callable[[Executor], Bus]) -> None:
        """Workers, ticker and bus. On the way down the bus comes first: then nothing new arrives."""
        self._executor = ThreadPoolExecutor(self.settings.workers, thread_name_prefix="worker")
        self._undo.callback(self._end, self._executor, "worker")
        self._reporting = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="report")
        self._undo.callback(self._end, self._reporting, "report")
        self._cleaning = ThreadPoolExecutor(self.settings.workers, thread_name_prefix="clean")
        self._stopping = threading.Event()
        self._undo.callback(self._end_cleanings)
        self._undo.callback(self._withdraw)
        self._undo.callback(self._stop_agents)
        self.bus = make(self._executor)
        self.ticker = Ticker(self._submit)
        self._undo.callback(self.ticker.stop)
        self._undo.callback(self.bus.stop)

    def _register(self, name: str, *binaries: tuple[str, str]) -> None:
        """Be listed as serving ``(binary, topic)`` under ``name``."""

        def write(conn: Connection) -> None:
            for binary, topic in binaries:
                services.register(conn, [name], binary, topic, self._owner, new_id, now=utcnow())

        self.database.write(write)

    def _open_agents(self, hold: Callable[[str], None], part: Callable[[Fleet], Fleet]) -> FleetAgents | None:
        """The agents of this process. ``hold`` is told each host before it is touched; ``part`` picks hosts of the fleet."""
        kit = AgentKit(
            database=self.database,
            bus=self.bus,
            images=self.images,
            placement=self.placement,
            accelerator_client=self.bindings.client,
            executor=self._executor,
            ticker=self.ticker,
            owner=self._owner,
            now=utcnow,
            new_id=new_id,
            seams=self.seams,
            observe=self._observe,
            gone_owners=self._gone_owners,
            reporting=self._reporting,
            cleaning=self._cleaning,
            stopping=self._stopping,
            hold=hold,
            neutron=self.neutron,
        )
        self.agents = Agents(kit)
        if self._fleet is None:
            self.agents.start([local_agent(kit, self.settings, self.state.path)])
            return None
        fleet = FleetAgents(self.agents, kit, self._fleet, self._base, self.state.path, part=part)
        fleet.start()
        return fleet

    def _conducting(self) -> Conducting:
        """The conductor of this process, not yet served."""
        return Conducting(
            self.database,
            self.bus,
            self.settings,
            self.bindings,
            self.placement,
            owner=self._owner,
            observe=self._observe,
            heartbeat=self._heartbeat,
            gone_owners=self._gone_owners,
        )

    def _settle_reports(self) -> None:
        """Hosts that are in Placement by the time this process says that it is ready can be used by who waited for that."""
        if self.agents is None:
            return
        if not self.agents.settle_reports(FIRST_REPORTS_SECONDS if len(self.agents) <= FEW_HOSTS else 0):
            logger.info("Hosts are still being reported to Placement: each takes servers as soon as it is there")

    # --- again and again ---

    def _look_after(self, conducting: Conducting) -> None:
        """What one conductor at least has to do again and again."""
        self.ticker.add("requests", max(self.settings.update_resources_interval, 1), conducting.reconcile)
        self.ticker.add("purge", HOUR, self._purge, after=60)

    def _live(self) -> None:
        """Signs of life from now on."""
        self.ticker.add("heartbeat", max(self.settings.report_interval, 1), self._heartbeat)
        self.ticker.start()

    def _heartbeat(self) -> None:
        def beat(conn: Connection) -> None:
            services.heartbeat(conn, self._owner, now=utcnow())
            builds.heartbeat(conn, self._owner, now=utcnow())

        self.database.write(beat)

    def _purge(self) -> None:
        limit = utcnow() - timedelta(days=self.settings.keep_days)

        def forget(conn: Connection) -> None:
            verdicts.purge(conn, limit)
            builds.purge(conn, limit)
            spans.purge(conn, limit)
            commits.purge(conn, utcnow() - timedelta(seconds=HOUR))

        self.database.write(forget)

    def _gone_owners(self) -> Collection[str]:
        return gone_owners(self.database, self._owner, self.settings.service_down_time)

    def _stop_agents(self) -> None:
        if self.agents is not None:
            self.agents.stop()

    def _end_cleanings(self) -> None:
        """What has not begun is left to the next start, by its record."""
        self._stopping.set()
        self._cleaning.shutdown(cancel_futures=True)

    def _end(self, pool: ThreadPoolExecutor, name: str) -> None:
        """After the bus: who works still was given its time."""
        self._ending.set()
        if not ended_in_time(pool, LAST_SECONDS):
            self.left_behind = True
            logger.warning("Stopping while a %s still waits for another service: left as by a kill", name)

    def _withdraw(self) -> None:
        try:
            self.database.write(lambda conn: services.withdraw(conn, self._owner))
        except JetbridgeError as error:
            logger.warning(
                "This process counts as up for %d s more: %s", self.settings.service_down_time, error.message
            )

    def _submit(self, work: Callable[[], None]) -> None:
        self._executor.submit(work)


def new_id() -> str:
    return str(uuid.uuid4())

"""Everything in one process: front doors, conductor, scheduler and the agents of a fleet or of this machine."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from jetbridge.api.app import create_app
from jetbridge.api.guards import check_listen
from jetbridge.api.services import ApiServices
from jetbridge.conductor.manager import ConductorManager
from jetbridge.conductor.reconcile import reconcile_unplaced
from jetbridge.config.fleet import Fleet
from jetbridge.config.settings import Settings
from jetbridge.db import builds, commits, services, verdicts
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import JetbridgeError
from jetbridge.image.store import ImageDirectory
from jetbridge.model.events import EventSink, no_events
from jetbridge.pci.alias import parse_aliases
from jetbridge.rpc.inprocess import InProcessBus
from jetbridge.scheduler.manager import SchedulerManager
from jetbridge.service.agents import AgentKit, Agents, FleetAgents, fleet_settings, local_agent
from jetbridge.service.http import HttpServer
from jetbridge.service.logs import log_to_file, stop_logging
from jetbridge.service.owners import gone_owners, new_owner
from jetbridge.service.statedir import StateDir, write_clouds
from jetbridge.service.ticker import Ticker
from jetbridge.steps.runtime import Observer, nobody

logger = logging.getLogger(__name__)

HOUR = 3600.0


class AllInOne:
    """``fleet`` None: this machine through libvirt. ``port`` 0: any free one. ``events`` gets every seam event;
    ``observe`` watches every step of builds and deletes."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet | None,
        state_dir: Path,
        listen: str = "127.0.0.1",
        port: int = 8774,
        *,
        events: EventSink = no_events,
        observe: Observer = nobody,
    ) -> None:
        self._base = settings
        self._fleet = fleet
        self.settings = fleet_settings(settings, fleet)
        self.state = StateDir(state_dir)
        self._listen = listen
        self._port = port
        self._events = events
        self._observe = observe
        self._owner = new_owner()
        self._stack = ExitStack()
        self._started = False

    def start(self) -> str:
        """Serve; answers the base URL. What fails stops what had been started, and nothing is held.

        Raises ``JetbridgeError`` of the kind that says what to change: a state folder or an address in use, an alias, device_spec or
        fleet file that can't be understood, a database that isn't ours, a hypervisor that doesn't answer.
        """
        if self._started:
            raise JetbridgeError("This AllInOne was started before: make a new one")
        self._started = True
        try:
            return self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Finish what is under way and let everything go, the last started first. Again: nothing happens."""
        self._stack.close()

    def _start(self) -> str:
        settings, undo = self.settings, self._stack
        check_listen(settings, self._listen)
        aliases = parse_aliases(settings.pci_alias, pci_in_placement=settings.pci_in_placement)
        self.state.take()
        undo.callback(self.state.release)
        undo.callback(stop_logging, log_to_file(self.state.log, logging.DEBUG if settings.debug else logging.INFO))
        server = HttpServer(self._listen, self._port)
        undo.callback(server.stop)

        url = settings.database_connection or self.state.database_url
        self.database = Database(url)
        undo.callback(self.database.close)
        self.database.upgrade()
        self.state.note_database(url, self.database.shown_url)
        self.images = ImageDirectory(self.database, self.state.path / "images")
        self.images.install_builtin()

        executor = ThreadPoolExecutor(settings.workers, thread_name_prefix="worker")
        undo.callback(executor.shutdown)
        self.bus = InProcessBus(executor, self._events)
        ticker = Ticker(lambda work: _submit(executor, work))
        kit = AgentKit(
            database=self.database,
            bus=self.bus,
            images=self.images,
            executor=executor,
            ticker=ticker,
            owner=self._owner,
            now=utcnow,
            new_id=_new_id,
            events=self._events,
            observe=self._observe,
            gone_owners=self._gone_owners,
        )
        self.agents = Agents(kit)
        undo.callback(self._withdraw)
        undo.callback(self.agents.stop)
        undo.callback(ticker.stop)
        undo.callback(self.bus.stop)

        self._serve_brain(settings)
        self._start_agents(kit)
        self._start_ticking(ticker, settings)
        app = create_app(
            ApiServices(
                database=self.database,
                bus=self.bus,
                settings=settings,
                aliases=aliases,
                images=self.images,
                new_id=_new_id,
                listen=self._listen,
                events=self._events,
            )
        )
        undo.callback(server.stop)  # before everything else: no request should meet a service half gone
        server.start(app)
        write_clouds(self.state.clouds, server.base_url, settings.auth_strategy)
        logger.info(
            "Serving on %s, state in %s, database %s", server.base_url, self.state.path, self.database.shown_url
        )
        return server.base_url

    def _serve_brain(self, settings: Settings) -> None:
        """Scheduler and conductor; the conductor first gives an answer to the requests that an earlier process left."""
        host = settings.host or socket.gethostname()

        def register(conn: Connection) -> None:
            for binary, topic in (("nova-conductor", "conductor"), ("nova-scheduler", "scheduler")):
                services.register(conn, [host], binary, topic, self._owner, _new_id, now=utcnow())

        self.database.write(register)
        self.bus.serve("scheduler", SchedulerManager(self.database, settings).handlers())
        conductor = ConductorManager(self.database, self.bus, settings, owner=self._owner, now=utcnow)
        self.bus.serve("conductor", conductor.handlers())

    def _start_agents(self, kit: AgentKit) -> None:
        if self._fleet is None:
            self.agents.start([local_agent(kit, self.settings, self.state.path)])
        else:
            fleet = FleetAgents(self.agents, kit, self._fleet, self._base, self.state.path)
            fleet.start()
            self.bus.serve("fleet", {"reload": fleet.reload})
        self._reconcile(starting=True)

    def _start_ticking(self, ticker: Ticker, settings: Settings) -> None:
        ticker.add("heartbeat", max(settings.report_interval, 1), self._heartbeat)
        ticker.add("requests", max(settings.update_resources_interval, 1), self._reconcile)
        ticker.add("purge", HOUR, self._purge, after=60)
        ticker.start()

    # --- again and again ---

    def _heartbeat(self) -> None:
        def beat(conn: Connection) -> None:
            services.heartbeat(conn, self._owner, now=utcnow())
            builds.heartbeat(conn, self._owner, now=utcnow())

        self.database.write(beat)

    def _reconcile(self, *, starting: bool = False) -> None:
        reconcile_unplaced(
            self.database,
            now=utcnow,
            service_down_time=self.settings.service_down_time,
            gone_owners=self._gone_owners(),
            starting=starting,
        )

    def _purge(self) -> None:
        limit = utcnow() - timedelta(days=self.settings.keep_days)

        def forget(conn: Connection) -> None:
            verdicts.purge(conn, limit)
            builds.purge(conn, limit)
            commits.purge(conn, utcnow() - timedelta(seconds=HOUR))

        self.database.write(forget)

    def _gone_owners(self) -> Collection[str]:
        return gone_owners(self.database, self._owner, self.settings.service_down_time)

    def _withdraw(self) -> None:
        self.database.write(lambda conn: services.withdraw(conn, self._owner))


def _submit(executor: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    executor.submit(work)


def _new_id() -> str:
    return str(uuid.uuid4())

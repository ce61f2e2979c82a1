"""The agents of one process: those of a simulated fleet, or the one of this machine."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path

from jetbridge.accelerator.client import AcceleratorClient
from jetbridge.accelerator.device_spec import parse_accelerator_specs
from jetbridge.compute.agent import ComputeAgent
from jetbridge.compute.build import BUILD_STEPS
from jetbridge.compute.host import AgentHost
from jetbridge.compute.locks import ServerLocks
from jetbridge.compute.provider_sources import SOURCES
from jetbridge.compute.providers import retire_hosts
from jetbridge.compute.report_queue import ReportQueue
from jetbridge.config.fleet import Fleet, load_fleet
from jetbridge.config.origin import naming_origin
from jetbridge.config.overrides import apply_overrides
from jetbridge.config.settings import Settings
from jetbridge.db import hosts, services
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.services import COMPUTE
from jetbridge.errors import HostInUse, JetbridgeError
from jetbridge.image.store import ImageDirectory
from jetbridge.journey.seams import Seams
from jetbridge.mdev.config import read_config
from jetbridge.model.context import RequestContext
from jetbridge.model.fleet import FleetHost
from jetbridge.network.ports import Ports
from jetbridge.pci.alias import parse_aliases
from jetbridge.pci.device_spec import parse_device_specs
from jetbridge.placement.client import PlacementClient
from jetbridge.rpc.bus import Bus, Handler, Payload
from jetbridge.service.ticker import Ticker
from jetbridge.steps.runtime import Observer
from jetbridge.virt.connection import HostFiles, HypervisorConnection
from jetbridge.virt.hostfacts import SysfsFacts
from jetbridge.virt.simulated import SimulatedConnection, check_fleet_host, open_fleet_host
from jetbridge.virt.vgpus import VgpuFacts

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentKit:
    """What all agents of a process share. ``hold`` makes a host this process's own, or raises. ``reporting`` runs the reports to Placement:
    on the ``executor`` they would wait for hundreds of builds, and a host that was just added would get none of them. ``cleaning`` runs
    the operator's cleaner: on the ``executor`` a few devices that take minutes would keep everything waiting, signs of life too.
    ``stopping`` ends what runs there."""

    database: Database
    bus: Bus
    images: ImageDirectory
    placement: PlacementClient
    accelerator_client: AcceleratorClient | None
    executor: Executor
    ticker: Ticker
    owner: str
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    seams: Seams
    observe: Observer
    gone_owners: Callable[[], Collection[str]]
    reporting: Executor
    cleaning: Executor
    stopping: threading.Event
    hold: Callable[[str], None] = lambda name: None
    neutron: Ports | None = None

    def agent(
        self,
        name: str,
        connection: HypervisorConnection,
        files: HostFiles,
        settings: Settings,
        disk_gb: int,
        locks: ServerLocks | None = None,
        of_process: Mapping[str, Handler] | None = None,
    ) -> ComputeAgent:
        host = AgentHost(
            name=name,
            connection=connection,
            files=files,
            settings=settings,
            database=self.database,
            bus=self.bus,
            images=self.images,
            placement=self.placement,
            accelerator_client=self.accelerator_client,
            owner=self.owner,
            now=self.now,
            new_id=self.new_id,
            disk_gb=disk_gb,
            random=os.urandom,
            seams=self.seams,
            observe=self.observe,
            locks=locks or ServerLocks(),
            neutron=self.neutron,
            unwritten_cleanings=self.unwritten_cleanings,
            stopping=self.stopping,
        )
        cleaning = partial(_submit, self.cleaning)
        return ComputeAgent(host, self._background, of_process, SOURCES, self.reports, cleaning)

    @cached_property
    def unwritten_cleanings(self) -> set[int]:
        """Of all its hosts: an agent that takes over from another has them too."""
        return set()

    @cached_property
    def reports(self) -> ReportQueue:
        return ReportQueue(partial(_submit, self.reporting))

    def retire_gone_hosts(self) -> None:
        """Take hosts that are gone out of Placement, in the background."""

        def retire() -> None:
            retire_hosts(self.database, self.placement.by("jetbridge"))

        self.reports.ask("hosts that are gone", retire)

    def _background(self, work: Callable[[], None]) -> None:
        _submit(self.executor, work)


def _submit(executor: Executor, work: Callable[[], None]) -> None:
    try:
        executor.submit(_safely, work)
    except RuntimeError:
        logger.debug("The pool is shut down: work by event is left to the next start")


class Agents:
    """Starts, stops and watches over the agents of this process."""

    def __init__(self, kit: AgentKit) -> None:
        self._kit = kit
        self._agents: dict[str, ComputeAgent] = {}

    def start(self, agents: Iterable[ComputeAgent], *, succeed: bool = False) -> None:
        """Register and start agents, many at a time. Raises the first error of a device_spec, naming the host. ``succeed``: they
        take over from agents of this process."""
        fresh = {agent.host.name: agent for agent in agents}
        if not fresh:
            return
        kit = self._kit
        for name in fresh:
            kit.hold(name)
        kit.database.write(
            lambda conn: services.register(conn, list(fresh), COMPUTE, "compute", kit.owner, kit.new_id, now=kit.now())
        )
        gone = kit.gone_owners()
        settings = next(iter(fresh.values())).host.settings
        # Threads of their own: those of the bus may have hundreds of builds before them.
        threads = ThreadPoolExecutor(min(len(fresh), settings.workers), thread_name_prefix="start")
        with kit.reports.held():
            try:
                for name, outcome in [
                    (name, threads.submit(agent.start, gone, succeeds=succeed)) for name, agent in fresh.items()
                ]:
                    try:
                        outcome.result()
                    except JetbridgeError as error:
                        raise type(error)(f"Host {name}: {error.message}") from error
            finally:
                threads.shutdown(cancel_futures=True)
        self._agents.update(fresh)
        interval = max(settings.update_resources_interval, 1)
        for number, (name, agent) in enumerate(fresh.items()):
            # Spread over the interval, so that a thousand hosts don't all look at once.
            after = interval * (number + 1) / len(fresh)
            kit.ticker.add(f"host {name}", interval, partial(self._periodic, agent), after=after)
        kit.retire_gone_hosts()

    def _periodic(self, agent: ComputeAgent) -> None:
        agent.periodic(self._kit.gone_owners())

    def settle_reports(self, seconds: float) -> bool:
        """Wait until all hosts are in Placement, or can't be now. False: it takes longer than that."""
        return self._kit.reports.settle(seconds)

    def stop(self, names: Collection[str] | None = None) -> None:
        for name in list(self._agents if names is None else names):
            agent = self._agents.pop(name, None)
            if agent is not None:
                self._kit.ticker.remove(f"host {name}")
                agent.stop()

    def __getitem__(self, name: str) -> ComputeAgent:
        return self._agents[name]

    def __len__(self) -> int:
        return len(self._agents)

    def __contains__(self, name: str) -> bool:
        return name in self._agents

    def replace(self, agent: ComputeAgent) -> None:
        """The same host under other options: its connection stays open. A host whose agent failed to start gets this one.

        The agent before answers until this one does: a build that found none would count the host as failed.
        """
        before = self._agents.pop(agent.host.name, None)
        if before is None:
            self.start([agent])
            return
        self._kit.ticker.remove(f"host {agent.host.name}")
        before.hand_over()
        try:
            self.start([agent], succeed=True)
        except BaseException:
            before.retire()
            raise


def check_host_options(name: str, settings: Settings, files: HostFiles) -> None:
    """Raises the errors of the host's device_spec and aliases, naming the host. Changes nothing."""
    try:
        with naming_origin(settings, "pci", "device_spec"):
            parse_device_specs(
                settings.pci_device_spec, SysfsFacts(files), report_in_placement=settings.pci_report_in_placement
            )
        read_config(settings.enabled_mdev_types, settings.mdev_types, VgpuFacts(files))
        with naming_origin(settings, "accelerator", "device_spec"):
            parse_accelerator_specs(settings.accelerator_device_spec, SysfsFacts(files))
        with naming_origin(settings, "pci", "alias"):
            parse_aliases(settings.pci_alias, pci_in_placement=settings.pci_in_placement)
    except JetbridgeError as error:
        raise type(error)(f"Host {name}: {error.message}") from error


class FleetAgents:
    """The agents of a fleet file, and what happens when the file changes. ``base``: the options under those of the file; ``part``
    picks the hosts of the file that this process serves."""

    def __init__(
        self,
        agents: Agents,
        kit: AgentKit,
        fleet: Fleet,
        base: Settings,
        state_dir: Path,
        *,
        part: Callable[[Fleet], Fleet] = lambda fleet: fleet,
    ) -> None:
        self._agents = agents
        self._kit = kit
        self._base = base
        self._folder = state_dir / "sim"
        self._part = part
        self._fleet = part(fleet)
        self._hosts: dict[str, tuple[FleetHost, SimulatedConnection, HostFiles]] = {}
        self._reloading = threading.Lock()

    def start(self) -> None:
        self._agents.start([self._open(host) for host in self._fleet.hosts])

    def reload(self, context: RequestContext, payload: Payload) -> Payload:
        """Handler of ``compute.reload_fleet``: the file is read and checked whole before anything changes, or with ``check_only`` nothing
        does. ``left_out`` of the answer: its hosts that are not for this process; ``kept``: those of ``removed`` that have servers. Options for everyone (aliases, filters) count from the
        next start on."""
        with self._reloading:
            return self._reload(context, bool(payload.get("check_only", False)))

    def _reload(self, context: RequestContext, check_only: bool) -> Payload:
        whole = load_fleet(self._fleet.path)
        fleet = self._part(whole)
        wanted = {host.name: host for host in fleet.hosts}
        settings = {name: self._settings(host) for name, host in wanted.items()}
        added = [name for name in wanted if name not in self._hosts]
        removed = [name for name in self._hosts if name not in wanted]
        changed = [
            name
            for name, (host, _, _) in self._hosts.items()
            if name in wanted and (wanted[name] != host or name not in self._agents)
        ]
        for name in (*added, *changed):
            check_fleet_host(wanted[name])
            self._check_options(wanted[name], settings[name])
        left_out = [host.name for host in whole.hosts if host.name not in wanted]
        answer = {"added": added, "removed": removed, "changed": changed, "left_out": left_out, "kept": []}
        if check_only:
            return answer
        if fleet.config != self._fleet.config:
            logger.warning(
                "%s: aliases, filters and weights of its config count from the next start of jetbridge on", fleet.path
            )
        for name in changed:
            self._change(wanted[name], settings[name])
        answer["kept"] = [name for name in removed if not self._remove(name)]
        self._agents.start([self._open(wanted[name]) for name in added])
        self._fleet = fleet
        logger.info(
            "[%s] Fleet reloaded: %d hosts added, %d removed, %d changed",
            context.request_id,
            len(added),
            len(removed),
            len(changed),
        )
        return answer

    def _open(self, host: FleetHost) -> ComputeAgent:
        connection, files = open_fleet_host(host, self._folder)
        self._hosts[host.name] = (host, connection, files)
        settings = self._settings(host)
        check_host_options(host.name, settings, files)
        return self._agent(host, connection, files, settings)

    def _agent(
        self,
        host: FleetHost,
        connection: SimulatedConnection,
        files: HostFiles,
        settings: Settings,
        locks: ServerLocks | None = None,
    ) -> ComputeAgent:
        answers = {"reload_fleet": self.reload}
        return self._kit.agent(host.name, connection, files, settings, host.disk_gb, locks, answers)

    def _check_options(self, host: FleetHost, settings: Settings) -> None:
        _, files = open_fleet_host(
            host, self._folder
        )  # as the host will be: its interfaces and PFs belong to the lines
        check_host_options(host.name, settings, files)

    def _settings(self, host: FleetHost) -> Settings:
        return apply_overrides(self._base, host.config, f"{self._fleet.path}, host {host.name}")

    def _change(self, host: FleetHost, settings: Settings) -> None:
        before, connection, files = self._hosts[host.name]
        connection.apply_hardware(host)
        self._hosts[host.name] = (host, connection, files)
        same_options = before.config == host.config and before.disk_gb == host.disk_gb
        if same_options and host.name in self._agents:
            self._agents[host.name].inventory()
            return
        locks = self._agents[host.name].host.locks if host.name in self._agents else None
        self._agents.replace(self._agent(host, connection, files, settings, locks))

    def _remove(self, name: str) -> bool:
        """A host that holds servers stays in the tables as down, so that they can be seen and deleted (False); others go."""
        self._agents.stop([name])
        del self._hosts[name]
        owner, now = self._kit.owner, self._kit.now()

        def forget(conn: Connection) -> bool:
            services.withdraw(conn, owner, [name])
            try:
                hosts.forget(conn, name, now=now, unclaimed=BUILD_STEPS[0].name)
            except HostInUse:
                logger.warning("Host %s left the fleet while it has servers: it counts as down", name)
                return False
            return True

        gone = self._kit.database.write(forget)
        self._kit.retire_gone_hosts()
        return gone


def local_agent(kit: AgentKit, settings: Settings, state_dir: Path) -> ComputeAgent:
    """The agent of this machine. Raises ``HypervisorUnavailable`` when no libvirt answers, saying what to install."""
    from jetbridge.virt.libvirt.connection import LibvirtConnection  # needs libvirt-python, which a fleet doesn't
    from jetbridge.virt.libvirt.files import LocalHostFiles

    name = settings.host or socket.gethostname()
    connection = LibvirtConnection(settings.connection_uri, name, state_dir)
    disk_gb = shutil.disk_usage(state_dir).total // 1024**3
    return kit.agent(name, connection, LocalHostFiles("/"), settings, disk_gb)


def fleet_settings(settings: Settings, fleet: Fleet | None) -> Settings:
    """The options that count for everybody: those of the files, and over them those of the fleet."""
    return settings if fleet is None else apply_overrides(settings, fleet.config, str(fleet.path))


def _safely(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        logger.exception("Work by event failed")

"""jetbridge compute: the agent of this machine, or those of a simulated fleet or a part of it."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jetbridge.config.fleet import Fleet
from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidFleet, JetbridgeError, NotSupported
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.events import EventSink, no_events
from jetbridge.service.agents import FleetAgents
from jetbridge.service.separate import SeparateProcess
from jetbridge.steps.runtime import Observer, nobody

logger = logging.getLogger(__name__)


class ComputeProcess(SeparateProcess):
    """``hosts``: names, or patterns such as ``gpu0*``, of the fleet's hosts to serve; none: all. However many they are, they share this
    process's threads and its connection to RabbitMQ."""

    role = "compute"

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet | None,
        state_dir: Path,
        hosts: Sequence[str] = (),
        *,
        events: EventSink = no_events,
        observe: Observer = nobody,
    ) -> None:
        super().__init__(settings, fleet, state_dir, events=events, observe=observe)
        if hosts and fleet is None:
            raise NotSupported(reason="--host picks hosts of a fleet file: give --fleet FILE as well, or leave it out")
        self._patterns = tuple(hosts)
        self._fleet_agents: FleetAgents | None = None

    def _start(self) -> str:
        self._open()
        self._live()  # before the agents: a fleet takes a while to start, and must not count as silent meanwhile
        self._fleet_agents = self._open_agents(hold=self.state.hold_host, part=self._part)
        self._settle_reports()
        return self.name

    def reload(self) -> None:
        """Read the fleet file again. Says what is wrong with it and raises nothing."""
        if self._fleet_agents is None:
            return
        context = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-reload")
        try:
            self._fleet_agents.reload(context, {})
        except JetbridgeError as error:
            logger.error("The fleet is left as it is: %s", error)

    def _part(self, fleet: Fleet) -> Fleet:
        """Raises ``InvalidFleet`` when no host is left."""
        if not self._patterns:
            return fleet
        chosen = tuple(
            host for host in fleet.hosts if any(fnmatch.fnmatchcase(host.name, pattern) for pattern in self._patterns)
        )
        if not chosen:
            known = ", ".join(host.name for host in fleet.hosts[:5])
            raise InvalidFleet(
                path=fleet.path, reason=f"no host is named {' or '.join(self._patterns)}; its hosts are {known}, ..."
            )
        return replace(fleet, hosts=chosen)

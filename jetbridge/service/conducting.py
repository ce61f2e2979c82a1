"""The conductor of a process, whether it has that process to itself or not: what it serves, and what it looks after again and again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from jetbridge.accelerator.bindings import ServerBindings
from jetbridge.compute.providers import retire_hosts
from jetbridge.conductor.gone_hosts import answer_for_gone_hosts
from jetbridge.conductor.ledger import Ledger
from jetbridge.conductor.manager import ConductorManager
from jetbridge.conductor.reconcile import reconcile_unplaced
from jetbridge.config.settings import Settings
from jetbridge.db.clock import utcnow
from jetbridge.db.engine import Database
from jetbridge.errors import JetbridgeError
from jetbridge.model.context import RequestContext
from jetbridge.placement.client import PlacementClient
from jetbridge.rpc.bus import Bus, Handler, Payload
from jetbridge.steps.runtime import Observer

logger = logging.getLogger(__name__)


class Conducting:
    """``owner`` names the process; ``heartbeat`` gives its sign of life; ``gone_owners`` are processes that have given none for long."""

    def __init__(
        self,
        database: Database,
        bus: Bus,
        settings: Settings,
        bindings: ServerBindings,
        placement: PlacementClient,
        *,
        owner: str,
        observe: Observer,
        heartbeat: Callable[[], None],
        gone_owners: Callable[[], Collection[str]],
    ) -> None:
        self._database = database
        self._settings = settings
        self._bindings = bindings
        self._placement = placement
        self._heartbeat = heartbeat
        self._gone_owners = gone_owners
        self._ledger = Ledger(database, placement)
        self._manager = ConductorManager(
            database,
            bus,
            settings,
            owner=owner,
            now=utcnow,
            bindings=bindings,
            ledger=self._ledger,
            observe=observe,
        )

    def handlers(self) -> Mapping[str, Handler]:
        """For ``Bus.serve("conductor", ...)``."""
        return {**self._manager.handlers(), "retire_hosts": self._retire_hosts}

    def _retire_hosts(self, context: RequestContext, payload: Payload) -> None:
        """Take the providers of hosts that were removed out of Placement."""
        self._retire_gone(self._placement.by("conductor", context))

    def _retire_gone(self, client: PlacementClient) -> None:
        try:
            retire_hosts(self._database, client)
        except JetbridgeError as error:
            logger.warning("Providers of hosts that are gone stay in Placement, which is tried again: %s", error)

    def reconcile(self, *, starting: bool = False) -> None:
        """``starting``: no other conductor can be at work, so that requests left by an earlier process get an answer at once."""
        self._heartbeat()  # a machine that slept must not take itself for dead
        reconcile_unplaced(
            self._database,
            now=utcnow,
            service_down_time=self._settings.service_down_time,
            gone_owners=self._gone_owners(),
            starting=starting,
            bindings=self._bindings,
        )
        self._manager.send_again()
        self._ledger.give_back_abandoned()
        self._retire_gone(self._placement.by("conductor"))  # after what servers had of them
        answer_for_gone_hosts(self._database, now=utcnow, service_down_time=self._settings.service_down_time)

"""jetbridge conductor: as many processes as wanted share the work."""

from __future__ import annotations

from jetbridge.conductor.gone_hosts import answer_for_gone_hosts
from jetbridge.conductor.manager import ConductorManager
from jetbridge.conductor.reconcile import reconcile_unplaced
from jetbridge.db.clock import utcnow
from jetbridge.service.process import HOUR
from jetbridge.service.separate import SeparateProcess


class ConductorProcess(SeparateProcess):
    """Ends what dead processes left, never what a living one works on: that has an owner whose row has signs of life."""

    role = "conductor"

    def _start(self) -> str:
        self._open()
        self._register(self.name, ("nova-conductor", "conductor"))
        self._manager = ConductorManager(
            self.database,
            self.bus,
            self.settings,
            owner=self._owner,
            now=utcnow,
            bindings=self.bindings,
            observe=self._observe,
        )
        self._reconcile()
        self.ticker.add("requests", max(self.settings.update_resources_interval, 1), self._reconcile)
        self.ticker.add("purge", HOUR, self._purge, after=60)
        self._live()
        self.bus.serve("conductor", self._manager.handlers())
        return self.name

    def _reconcile(self) -> None:
        self._heartbeat()  # a machine that slept must not take itself for dead
        reconcile_unplaced(
            self.database,
            now=utcnow,
            service_down_time=self.settings.service_down_time,
            gone_owners=self._gone_owners(),
            bindings=self.bindings,
        )
        self._manager.send_again()
        answer_for_gone_hosts(self.database, now=utcnow, service_down_time=self.settings.service_down_time)

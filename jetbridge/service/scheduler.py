"""jetbridge scheduler: as many processes as wanted; what two choose at once, the claims on the hosts decide."""

from __future__ import annotations

from jetbridge.scheduler.manager import SchedulerManager
from jetbridge.service.separate import SeparateProcess


class SchedulerProcess(SeparateProcess):
    role = "scheduler"

    def _start(self) -> str:
        self._open()
        self._register(self.name, ("nova-scheduler", "scheduler"))
        self._live()
        self.bus.serve("scheduler", SchedulerManager(self.database, self.settings, placement=self.placement).handlers())
        return self.name

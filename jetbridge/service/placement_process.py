"""jetbridge placement: the Placement of `jetbridge up` as a process of its own, for services that share it."""

from __future__ import annotations

from pathlib import Path

from jetbridge.api.guards import check_listen
from jetbridge.config.settings import Settings
from jetbridge.service.placement import EmbeddedPlacement, spawn_process
from jetbridge.service.process import Process


class PlacementProcess(Process):
    """``port`` 0: any free one. It needs neither database nor messages: its state is an SQLite file in the state folder."""

    role = "placement"

    def __init__(self, settings: Settings, state_dir: Path, listen: str, port: int) -> None:
        super().__init__(settings, None, state_dir)
        self._listen = listen
        self._port = port

    def _start(self) -> str:
        check_listen(self.settings, self._listen)
        self.state.take_role(self.role, 1)
        self._undo.callback(self.state.release)
        self._open_log(self.state.log_of(f"{self.role}-service", 1))
        placement = EmbeddedPlacement(
            self.settings,
            self.state.placement_database,
            self.state.placement_log,
            self._listen,
            self._port,
            spawn_process,
        )
        self._undo.callback(placement.stop)
        placement.start()
        return placement.url

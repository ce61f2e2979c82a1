"""jetbridge api: the HTTP front doors as a process of their own. It also takes the images, so there is one per image folder."""

from __future__ import annotations

from pathlib import Path

from jetbridge.api.guards import check_listen
from jetbridge.config.fleet import Fleet
from jetbridge.config.origin import naming_origin
from jetbridge.config.settings import Settings
from jetbridge.model.events import EventSink, no_events
from jetbridge.pci.alias import parse_aliases
from jetbridge.service.front import open_front
from jetbridge.service.http import HttpServer
from jetbridge.service.separate import SeparateProcess


class ApiProcess(SeparateProcess):
    """``port`` 0: any free one. Of ``fleet`` only the options for everybody count here, its aliases above all."""

    role = "api"
    most = 1
    asks_placement = False

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet | None,
        state_dir: Path,
        listen: str = "127.0.0.1",
        port: int = 8774,
        *,
        events: EventSink = no_events,
    ) -> None:
        super().__init__(settings, fleet, state_dir, events=events)
        self._listen = listen
        self._port = port

    def _start(self) -> str:
        settings = self.settings
        check_listen(settings, self._listen)
        with naming_origin(settings, "pci", "alias"):
            aliases = parse_aliases(settings.pci_alias, pci_in_placement=settings.pci_in_placement)
        server = HttpServer(self._listen, self._port)
        self._undo.callback(server.stop)
        self._open(server.port)
        self.images.install_builtin()
        self._live()
        return open_front(self, server, self._listen, aliases, self._undo.callback)

"""What services as processes of their own have in common: one state folder per machine, messages over RabbitMQ."""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from typing import ClassVar

from jetbridge.config.settings import Settings
from jetbridge.db import services
from jetbridge.db.clock import utcnow
from jetbridge.db.engine import Database
from jetbridge.errors import InvalidConfiguration, NotFound
from jetbridge.placement.session import GROUP as PLACEMENT
from jetbridge.rpc.bus import Bus
from jetbridge.rpc.oslo import OsloBus
from jetbridge.rpc.tls import Tls
from jetbridge.service.process import Process
from jetbridge.service.statedir import numbered
from jetbridge.sessions import is_configured

logger = logging.getLogger(__name__)

BINARIES = {"compute": "nova-compute"}


class SeparateProcess(Process):
    """``role`` names lock, log and queue; of ``most`` at a time on one machine."""

    role: ClassVar[str]
    most: ClassVar[int] = 64
    asks_placement: ClassVar[bool] = True

    name: str
    """How this process is listed: the machine's name, with a number from the second of its role on."""

    def _open(self, port: int | None = None) -> None:
        """Folder, log, database and bus. ``port``: where this process has front doors."""
        url = self.settings.transport_url
        if not url:
            raise InvalidConfiguration(
                reason=f"[DEFAULT]transport_url is not set, and jetbridge {self.role} reaches the other services over RabbitMQ: write "
                "transport_url = rabbit://USER:PASSWORD@HOST:5672/ in a file jetbridge.conf, or run `jetbridge up` instead: all services in one process, which needs none"
            )
        if self.asks_placement and not is_configured(self.settings, PLACEMENT):
            raise InvalidConfiguration(
                reason=f"[placement]endpoint_override is not set, and jetbridge {self.role} needs the Placement that all services share: run"
                " `jetbridge placement` on one machine, or use the one that is there, and write endpoint_override = http://HOST:8778 in the"
                " section [placement] of a file jetbridge.conf"
            )
        number = self.state.take_role(self.role, self.most)
        self._undo.callback(self.state.release)
        self.name = self.host_name if number == 1 else f"{self.host_name}:{number}"
        self._open_log(self.state.log_of(self.role, number))
        self._open_database(self._prepare)
        self._open_journeys(f"jetbridge-{self.role}", self.name)
        if is_configured(self.settings, PLACEMENT):  # the API, which needs none, tells whether it answers
            self._open_placement()
        self._open_accelerators(port)
        self._open_bus(lambda executor: self._connect(url, executor))
        logger.info("jetbridge %s as %s, database %s", numbered(self.role, number), self.name, self.database.shown_url)

    def _connect(self, url: str, executor: Executor) -> Bus:
        bus = OsloBus(url, executor, self.seams, tls=_tls(self.settings), served=self._is_served)
        try:
            bus.start()
        except BaseException:
            bus.stop()
            raise
        return bus

    def _prepare(self, database: Database) -> None:
        """All processes that share an SQLite file are on this machine, so that the first one can make it. A database server has others,
        perhaps of another version: there `jetbridge db upgrade` is a decision."""
        if not database.is_sqlite:
            database.check_schema()
            return
        with self.state.alone("upgrade"):
            database.upgrade()

    def _is_served(self, topic: str, server: str) -> bool:
        """By its row: a process that died silently counts for ``service_down_time`` more."""
        with self.database.read() as conn:
            try:
                service = services.find(conn, server, BINARIES.get(topic, topic))
            except NotFound:
                return False
        return service.is_alive(utcnow(), self.settings.service_down_time)


def _tls(settings: Settings) -> Tls | None:
    if not settings.oslo_messaging_rabbit_ssl:
        return None
    if settings.oslo_messaging_rabbit_ssl_ca_file is None:
        logger.warning("[oslo_messaging_rabbit]ssl_ca_file is not set: RabbitMQ's certificate is not checked")
    return Tls(
        ca_file=settings.oslo_messaging_rabbit_ssl_ca_file,
        cert_file=settings.oslo_messaging_rabbit_ssl_cert_file,
        key_file=settings.oslo_messaging_rabbit_ssl_key_file,
        version=settings.oslo_messaging_rabbit_ssl_version,
    )

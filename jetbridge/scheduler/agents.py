"""Whether the hosts' agents are enabled and alive, without reading ten thousand rows that say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from jetbridge.db import services
from jetbridge.db.connection import Connection

Facts = tuple[bool, bool, str | None]
"""Enabled, alive, and why it is disabled."""

_WELL: Facts = (True, True, None)
_NONE: Facts = (False, False, None)


@dataclass(frozen=True)
class Agents:
    """``hosts`` have an agent; ``unwell`` are those of them that are disabled or not alive."""

    hosts: frozenset[str] = frozenset()
    unwell: Mapping[str, Facts] = field(default_factory=dict)

    def of(self, host: str) -> Facts:
        if host in self.unwell:
            return self.unwell[host]
        return _WELL if host in self.hosts else _NONE


class AgentWatch:
    """``service_down_time`` in seconds. Not safe to use from several threads at once."""

    def __init__(self, service_down_time: int) -> None:
        self._service_down_time = service_down_time
        self._known = Agents()
        self._registered: tuple[int, int] | None = None

    def look(self, conn: Connection, now: datetime) -> Agents:
        """The agents as they are; the same object as the last time when nothing changed. One statement while all are well."""
        silent_since = now - timedelta(seconds=self._service_down_time)
        census = services.census(conn, services.COMPUTE, silent_since)
        hosts = self._known.hosts
        if (census.services, census.newest) != self._registered:
            self._registered = census.services, census.newest
            hosts = services.hosts_of(conn, services.COMPUTE)
        unwell: dict[str, Facts] = {}
        if census.unwell:
            for host, service in services.unwell(conn, services.COMPUTE, silent_since).items():
                alive = service.is_alive(now, self._service_down_time)
                unwell[host] = (not service.disabled, alive, service.disabled_reason)
        agents = Agents(hosts, unwell)
        if agents != self._known:
            self._known = agents
        return self._known

"""Every host as a value, reloaded only where its generation moved."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime

from jetbridge.db import compute_nodes, networks, pci_devices, services
from jetbridge.db.clock import utcnow
from jetbridge.db.compute_nodes import Usage
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.host_states import host_state
from jetbridge.db.services import Service
from jetbridge.model.host_state import HostState

logger = logging.getLogger(__name__)

FULL_RELOAD_SECONDS = 300.0
"""How often everything is read again, for rows that somebody edited by hand without moving a generation."""


class SnapshotCache:
    """The hosts of one database. ``with_pools``: a filter that is enabled needs the devices; without it they are never read.

    Asking costs two statements (generations, services) and, when hosts moved, one grouped statement for each of: hosts, usage,
    fitted topologies, networks and pools. Safe to use from several threads.
    """

    def __init__(
        self,
        database: Database,
        *,
        service_down_time: int,
        with_pools: bool,
        full_reload_seconds: float = FULL_RELOAD_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._database = database
        self._service_down_time = service_down_time
        self._with_pools = with_pools
        self._full_reload_seconds = full_reload_seconds
        self._monotonic = monotonic
        self._now = now
        self._lock = threading.Lock()
        self._states: dict[int, HostState] = {}
        self._loaded_at: float | None = None

    def hosts(self) -> tuple[HostState, ...]:
        """All hosts as they are now, by id. Values that didn't change are the same objects as before."""
        with self._lock, self._database.read() as conn:
            generations = compute_nodes.generations(conn)
            agents = services.computes(conn)
            moved = self._moved(generations)
            kept = {node: state for node, state in self._states.items() if node in generations and node not in moved}
            if moved:
                kept.update(self._load(conn, moved, everything=len(moved) == len(generations)))
            self._states = {node: self._with_agent(kept[node], agents) for node in sorted(kept)}
            return tuple(self._states.values())

    def _moved(self, generations: Mapping[int, int]) -> frozenset[int]:
        now = self._monotonic()
        if self._loaded_at is None or now - self._loaded_at >= self._full_reload_seconds:
            self._loaded_at = now
            return frozenset(generations)
        return frozenset(
            node
            for node, generation in generations.items()
            if node not in self._states or self._states[node].generation != generation
        )

    def _load(self, conn: Connection, moved: Collection[int], *, everything: bool) -> dict[int, HostState]:
        which = None if everything else moved
        usage = compute_nodes.usage(conn, which)
        guests = compute_nodes.guest_topologies(conn, which)
        names = networks.by_node(conn, which)
        pools = pci_devices.pools(conn, which) if self._with_pools else None
        loaded = {}
        for node in compute_nodes.listing(conn, which):
            if node.id in moved:
                loaded[node.id] = host_state(
                    node,
                    usage.get(node.id, Usage()),
                    guests.get(node.id, ()),
                    names.get(node.id, frozenset()),
                    None if pools is None else pools.get(node.id, ()),
                )
        logger.debug("Loaded %d of the hosts from the database", len(loaded))
        return loaded

    def _with_agent(self, state: HostState, agents: Mapping[str, Service]) -> HostState:
        agent = agents.get(state.host)
        facts = (
            agent is not None and not agent.disabled,
            agent is not None and agent.is_alive(self._now(), self._service_down_time),
            None if agent is None else agent.disabled_reason,
        )
        if facts == (state.enabled, state.alive, state.disabled_reason):
            return state
        enabled, alive, reason = facts
        return replace(state, enabled=enabled, alive=alive, disabled_reason=reason)

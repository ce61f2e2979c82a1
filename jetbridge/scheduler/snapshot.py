"""Every host as a value, reloaded only where its generation moved."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime

from jetbridge.db import compute_nodes, networks, pci_devices
from jetbridge.db.clock import utcnow
from jetbridge.db.compute_nodes import Usage
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.host_states import host_state
from jetbridge.model.host_state import HostState, Look
from jetbridge.numa.topology import HostTopology
from jetbridge.scheduler.agents import Agents, AgentWatch
from jetbridge.scheduler.shared import Shared

logger = logging.getLogger(__name__)

FULL_RELOAD_SECONDS = 300.0
"""How often everything is read again, for rows that somebody edited by hand without moving a generation."""

MOST_SHARED = 50_000
"""Values of each kind that are held to be shared: more than there are hosts."""


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
        self._agents = AgentWatch(service_down_time)
        self._known_agents: Agents | None = None
        self._with_pools = with_pools
        self._full_reload_seconds = full_reload_seconds
        self._monotonic = monotonic
        self._now = now
        self._lock = threading.Lock()
        self._states: dict[int, HostState] = {}
        self._generations: Mapping[int, int] = {}
        self._looks: Shared[Look] = Shared(MOST_SHARED)
        self._topologies: Shared[HostTopology] = Shared(MOST_SHARED)
        self._loaded_at: float | None = None

    def hosts(self) -> tuple[HostState, ...]:
        """All hosts as they are now, by id. Values that didn't change are the same objects as before."""
        with self._lock, self._database.read() as conn:
            generations = compute_nodes.generations(conn)
            agents = self._agents.look(conn, self._now())
            moved = self._moved(generations)
            loaded = self._load(conn, moved, everything=len(moved) == len(generations)) if moved else {}
            self._states.update(loaded)
            if self._states.keys() != generations.keys():
                self._states = {node: self._states[node] for node in sorted(generations) if node in self._states}
            for node in self._states if agents is not self._known_agents else loaded:
                self._states[node] = self._shared(self._with_agent(self._states[node], agents))
            self._generations, self._known_agents = generations, agents
            return tuple(self._states.values())

    def _moved(self, generations: Mapping[int, int]) -> Collection[int]:
        now = self._monotonic()
        if self._loaded_at is None or now - self._loaded_at >= self._full_reload_seconds:
            self._loaded_at = now
            return generations.keys()
        known = self._generations
        return frozenset(node for node, generation in generations.items() if known.get(node) != generation)

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

    def _with_agent(self, state: HostState, agents: Agents) -> HostState:
        facts = agents.of(state.host)
        if facts == (state.enabled, state.alive, state.disabled_reason):
            return state
        enabled, alive, reason = facts
        return replace(state, enabled=enabled, alive=alive, disabled_reason=reason)

    def _shared(self, state: HostState) -> HostState:
        """The same, holding in common with other hosts what equals theirs."""
        if state.numa is not None and (numa := self._topologies.of(state.numa)) is not state.numa:
            state = replace(state, numa=numa)
        state.share_look(self._looks.of(state.look))
        return state

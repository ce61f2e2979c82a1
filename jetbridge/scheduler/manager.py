"""The scheduler's service: answers ``select_destinations`` on the bus."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jetbridge.config.settings import Settings
from jetbridge.db import consumers, pci_devices, providers, request_specs, servers, verdicts
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import NoValidHost, ServerNotFound
from jetbridge.model.context import RequestContext
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.verdict import Selection
from jetbridge.pci.existing import Existing
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.names import resource_class_name
from jetbridge.reasons import Reason
from jetbridge.rpc.bus import Handler, Payload
from jetbridge.scheduler.cards import Card, cards_of
from jetbridge.scheduler.filters.base import FilterFactory
from jetbridge.scheduler.filters.load import installed_filters, load_filters, needs_pools
from jetbridge.scheduler.filters.reported import PlacementFilter
from jetbridge.scheduler.inflight import InFlight
from jetbridge.scheduler.memo import Memo
from jetbridge.scheduler.placement import Placing
from jetbridge.scheduler.select import Choosing, Outcome, Place, Placer, Random, failure, select_destinations
from jetbridge.scheduler.snapshot import SnapshotCache

logger = logging.getLogger(__name__)

TOPIC = "scheduler"

Hosts = tuple[tuple[Selection, ...], ...]


class SchedulerManager:
    """One per process. ``placement`` None: nothing is recorded (tests of other things). ``installed``: filters by name beyond ours (None: those of the installed packages)."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        placement: PlacementClient | None = None,
        snapshot: SnapshotCache | None = None,
        installed: Mapping[str, FilterFactory] | None = None,
        rng: Random | None = None,
    ) -> None:
        self._database = database
        self._snapshot = snapshot or SnapshotCache(
            database, service_down_time=settings.service_down_time, with_pools=needs_pools(settings)
        )
        filters = load_filters(settings, installed_filters() if installed is None else installed)
        self._choosing = Choosing(
            filters=filters if placement is None else (PlacementFilter(), *filters),
            random=rng or random.Random(),
            alternates=max(settings.max_attempts - 1, 0),
            pci_weight_multiplier=settings.pci_weight_multiplier,
            host_subset_size=settings.host_subset_size,
            shuffle_best=settings.shuffle_best_same_weighed_hosts,
            packing=settings.packing_host_numa_cells_allocation_strategy,
        )

        self._placement = placement
        self._memo = Memo(self._choosing.filters)
        self._in_flight = InFlight(settings.packing_host_numa_cells_allocation_strategy)
        self._choosing_alone = (
            threading.Lock()
        )  # two at once would choose the same device; let go while Placement is asked

    def handlers(self) -> Mapping[str, Handler]:
        """For ``Bus.serve("scheduler", ...)``."""
        return {"select_destinations": self.handle_select_destinations}

    def handle_select_destinations(self, context: RequestContext, payload: Payload) -> Payload:
        """Payload and answer as in ``rpc/bus.py``. Raises ``NoValidHost``, and ``ServerNotFound`` for a server without request."""
        chosen = self.select(context, payload["server_uuids"], payload.get("exclude_hosts", ()))
        return {"selections": [[selection.to_message() for selection in hosts] for hosts in chosen]}

    def select(self, context: RequestContext, server_uuids: Sequence[str], exclude_hosts: Sequence[str] = ()) -> Hosts:
        """Per server the host and its alternates, all of one request. What was decided is kept with the servers."""
        specs = self._specs(server_uuids)
        with self._choosing_alone:
            outcome = self._choose(context, specs, frozenset(exclude_hosts))
        self._keep(context, specs, outcome)
        if outcome.selections is None:
            reason = failure(outcome, specs, self._existing)
            logger.info("[%s] [instance: %s] %s", context.request_id, list(outcome.verdicts)[-1], reason)
            raise NoValidHost(reason=reason)
        for uuid, hosts in zip(server_uuids, outcome.selections, strict=True):
            logger.info(
                "[%s] [instance: %s] Selected host %s, alternates: %s",
                context.request_id,
                uuid,
                hosts[0].host,
                ", ".join(selection.host for selection in hosts[1:]) or "none",
            )
        return outcome.selections

    def _choose(self, context: RequestContext, specs: Sequence[RequestSpec], exclude_hosts: frozenset[str]) -> Outcome:
        asking = {spec.instance_uuid for spec in specs}
        # Before the snapshot: whoever has claimed by now is in it.
        if self._in_flight.servers:
            with self._database.read() as conn:
                self._in_flight.keep_only(servers.waiting(conn, self._in_flight.servers - asking))
        now = self._snapshot.hosts()
        expected = self._in_flight.applied(now)
        placer = self._placer(context)

        def choose(states: Sequence[HostState]) -> Outcome:
            return select_destinations(context, states, specs, self._choosing, exclude_hosts, self._memo, placer)

        selected = False
        try:
            outcome = choose(expected)
            if outcome.selections is None and any(one is not other for one, other in zip(now, expected, strict=True)):
                # Servers on their way may never arrive: they are no reason to refuse, the claim decides.
                logger.debug("[%s] No host beside the servers on their way: asked again without", context.request_id)
                outcome = choose(now)
            selected = outcome.selections is not None
        finally:
            if not selected:
                self._in_flight.forget(asking)
        for spec, hosts in zip(specs, outcome.selections or (), strict=False):
            self._in_flight.add(hosts[0].compute_node_id, spec, hosts[0].providers)
        return outcome

    def _placer(self, context: RequestContext) -> Placer | None:
        if self._placement is None:
            return None
        client = self._placement
        packing = self._choosing.packing
        return lambda spec: self._beside_others(spec, Placing(client, context, spec, packing, cards=self._cards).place)

    def _existing(self) -> Sequence[Existing]:
        with self._database.read() as conn:
            kinds = pci_devices.existing(conn)
        return [
            replace(kind, resource_class=resource_class_name(kind.resource_class, kind.vendor_id, kind.product_id))
            for kind in kinds
        ]

    def _cards(self, state: HostState) -> Sequence[Card]:
        with self._database.read() as conn:
            return cards_of(providers.of_node(conn, state.compute_node_id), state.hypervisor_hostname)

    def _beside_others(self, spec: RequestSpec, place: Place) -> Place:
        """``place``, which waits for Placement, while others choose: they count the server where it tries. When two choose the same all
        the same, Placement refuses one of them, and else its claim."""

        def placed(state: HostState) -> Selection | Reason:
            self._in_flight.add(state.compute_node_id, spec)
            self._choosing_alone.release()
            try:
                answer = place(state)
            finally:
                self._choosing_alone.acquire()
            if isinstance(answer, Reason):
                self._in_flight.forget({spec.instance_uuid})
            return answer

        return placed

    def _specs(self, server_uuids: Sequence[str]) -> list[RequestSpec]:
        with self._database.read() as conn:
            found = request_specs.get_many(conn, server_uuids)
        for uuid in server_uuids:
            if uuid not in found:
                raise ServerNotFound(server=uuid)
        return [found[uuid] for uuid in server_uuids]

    def _keep(self, context: RequestContext, specs: Sequence[RequestSpec], outcome: Outcome) -> None:
        """Verdicts, and which providers serve whom. A server whose build ended meanwhile gets no allocation: who ended it may have
        taken the allocation back before it was written."""
        placed = dict(zip((spec.instance_uuid for spec in specs), outcome.selections or (), strict=False))

        def store(conn: Connection) -> frozenset[str]:
            for uuid, answers in outcome.verdicts.items():
                earlier = max((stored.attempt for stored in verdicts.of_server(conn, uuid)), default=0)
                verdicts.store(conn, uuid, context.request_id, earlier + 1, answers)
            for spec in specs:
                if spec.groups and spec.instance_uuid in placed:
                    request_specs.save(conn, _served(spec, placed[spec.instance_uuid][0]))
            return consumers.entitled(conn, placed)

        entitled = self._database.write(store)
        if self._placement is not None:
            for uuid in placed.keys() - entitled:
                self._placement.by(TOPIC, context, uuid).delete_allocations(uuid)


def _served(spec: RequestSpec, selection: Selection) -> RequestSpec:
    providers = selection.providers
    groups = tuple(replace(group, providers=providers.get(group.requester_id, ())) for group in spec.groups)
    return replace(spec, groups=groups)

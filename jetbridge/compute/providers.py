"""A host's providers in Placement: what its agent writes there, and how it knows without reading that nothing has changed.

What we made is known by record (``placement_providers``): a provider that isn't in it is never touched, nor are traits, aggregates
and ``reserved`` that others set on ours. A record is written before what it stands for is made.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from jetbridge.compute.allocations import take_back_strays
from jetbridge.compute.host import AgentHost
from jetbridge.compute.provider_source import Contribution, ProviderSource
from jetbridge.compute.provider_writer import Placed, ProviderWriter
from jetbridge.compute.server_allocations import healed_allocations
from jetbridge.db import compute_nodes, providers
from jetbridge.db.codec import canonical
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.providers import ROOT, ProviderRecord, Report
from jetbridge.errors import (
    HostNotFound,
    JetbridgeError,
    PlacementConflict,
    PlacementGenerationConflict,
    PlacementInventoryInUse,
)
from jetbridge.model.provider import Provider, ProviderTree, Seen
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.host_tree import root_provider

logger = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often a pass is begun again because somebody else changed the same providers meanwhile."""


@dataclass(frozen=True)
class _Wanted:
    tree: ProviderTree
    kinds: Mapping[str, str] = field(default_factory=dict)  # of each child, by name
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Facts:
    """A host before Placement is asked. ``first``: what there is to report as far as our tables tell; ``digest`` stands for it."""

    node: ComputeNode
    records: Mapping[str, ProviderRecord]  # by UUID
    stands: Report
    first: _Wanted
    digest: str


class ProviderReport:
    """The report of one host. It may be asked from several threads: one pass runs at a time."""

    def __init__(self, host: AgentHost, sources: Sequence[ProviderSource]) -> None:
        self._host = host
        self._sources = tuple(sources)
        self._lock = threading.Lock()
        self._told: frozenset[str] = frozenset()

    def check(self) -> None:
        """For a starting agent: whether the host can be reported, as far as its rows tell. Raises the errors of the sources.

        A model whose devices were never reported has been switched on: until they are, the host takes no servers.
        """
        facts = self._facts()
        new = set(facts.first.kinds.values()) - {record.kind for record in facts.records.values()}
        if facts.node.reported and new:
            self._host.database.write(
                partial(compute_nodes.set_reported, compute_node_id=facts.node.id, reported=False)
            )

    def run(self) -> None:
        """One pass. Raises ``JetbridgeError`` when it can't be done now; why is recorded."""
        client = self._host.placement
        if client is None:
            return
        with self._lock:
            try:
                for attempt in range(1, ATTEMPTS + 1):
                    try:
                        self._pass(client.by(self._host.source))
                        return
                    except PlacementGenerationConflict as error:
                        if attempt == ATTEMPTS:
                            raise
                        logger.info("Host %s: %s; its providers are read again", self._host.name, error)
            except JetbridgeError as error:
                self._record_failure(error.message)
                raise

    # --- one pass ---

    def _pass(self, client: PlacementClient, *, after_healing: bool = False) -> None:
        facts = self._facts()
        if facts.node.vcpus == 0:
            raise HostNotFound(f"Host {self._host.name} has not been seen yet: there is nothing of it to report")
        live = {provider.uuid: provider for provider in client.in_tree(facts.node.uuid)}
        unchanged = all(
            uuid in live and live[uuid].generation == record.generation for uuid, record in facts.records.items()
        )
        if facts.node.reported and facts.digest == facts.stands.digest and not facts.stands.waiting and unchanged:
            self._tell(facts.first.warnings)
            if facts.stands.error is not None:
                self._save(facts, facts.records.values(), Report(facts.digest))
            return
        writer = ProviderWriter(
            client,
            self._host.name,
            live,
            changed=facts.digest != facts.stands.digest,
            gone=self._retire_namesake,
        )
        placed = {uuid: writer.look(record) for uuid, record in facts.records.items() if uuid in live}
        consumers = {consumer for each in placed.values() for consumer in each.allocations}
        taken = take_back_strays(self._host, client, facts.node, consumers)
        placed = {uuid: each.without(taken.consumers) for uuid, each in placed.items()}
        wanted = self._wanted(facts.node, _seen(placed.values()))
        self._tell(wanted.warnings)
        healed = self._write(client, writer, facts, wanted, placed, settled=taken.complete)
        if healed and not after_healing:
            self._pass(client, after_healing=True)  # what was held back for it

    def _write(
        self,
        client: PlacementClient,
        writer: ProviderWriter,
        facts: _Facts,
        wanted: _Wanted,
        placed: Mapping[str, Placed],
        *,
        settled: bool,
    ) -> bool:
        """Answers whether allocations were healed. ``settled``: of everybody who has some it is known what they are."""
        records = self._recorded(facts, wanted, placed)
        by_name = {record.name: record for record in records}
        after: dict[str, Placed] = {}
        to_heal = {name for _, name, _, _ in wanted.tree.heal}
        for provider in (wanted.tree.root, *wanted.tree.children):
            record = by_name[provider.name]
            after[provider.name] = writer.write(
                record,
                provider,
                placed.get(record.uuid),
                parent=None if record.kind == ROOT else facts.node.uuid,
                hold_inventories=provider.name in to_heal,
            )
        healed = self._heal(client, writer, facts.node, wanted.tree, after)
        kept, retired = self._retire(writer, facts.node, records, after, placed)
        # What stays only because it is used, and what was held back for healing, is for the next pass whether or not anything changes.
        waiting = (
            not settled
            or bool(kept)
            or not healed
            or bool(to_heal)
            or any(name not in facts.first.kinds for name in wanted.kinds)
        )
        self._save(
            facts,
            [*(each.record for each in after.values()), *kept],
            Report(facts.digest, waiting=waiting),
            retired=retired,
        )
        self._tell_sources(facts.node, wanted, after)
        return bool(to_heal) and healed

    def _tell_sources(self, node: ComputeNode, wanted: _Wanted, after: Mapping[str, Placed]) -> None:
        for source in self._sources:
            mine = [each for name, each in after.items() if wanted.kinds.get(name) == source.kind]
            source.reported(
                self._host,
                node,
                {each.record.name: each.record.uuid for each in mine},
                _seen(mine).get(source.kind, {}),
            )

    # --- what is wanted ---

    def _facts(self) -> _Facts:
        with self._host.database.read() as conn:
            node = compute_nodes.of_host(conn, self._host.name)
            records = {record.uuid: record for record in providers.of_node(conn, node.id)}
            stands = providers.report(conn, node.id)
        first = self._wanted(node, None)
        return _Facts(node, records, stands, first, _digest(first.tree))

    def _wanted(self, node: ComputeNode, seen: Mapping[str, Mapping[str, Seen]] | None) -> _Wanted:
        parts: dict[str, Contribution] = {
            source.kind: source.contribute(self._host, node, None if seen is None else seen.get(source.kind, {}))
            for source in self._sources
        }
        root = root_provider(
            node.hypervisor_hostname,
            vcpus=node.vcpus,
            numa=node.numa,
            memory_mb=node.memory_mb,
            disk_gb=node.local_gb,
            reserved_memory_mb=node.reserved_memory_mb,
            reserved_disk_gb=node.reserved_disk_gb,
            cpu_ratio=node.cpu_allocation_ratio,
            memory_ratio=node.ram_allocation_ratio,
            disk_ratio=node.disk_allocation_ratio,
            traits=frozenset().union(*(part.root_traits for part in parts.values())),
        )
        children = tuple(child for part in parts.values() for child in part.children)
        return _Wanted(
            tree=ProviderTree(
                root,
                children,
                tuple(
                    heal
                    for kind, part in parts.items()
                    for heal in part.heal
                    if seen is None or not _has(seen.get(kind, {}), *heal)
                ),
            ),
            kinds={child.name: kind for kind, part in parts.items() for child in part.children},
            warnings=tuple(warning for part in parts.values() for warning in part.warnings),
        )

    def _tell(self, warnings: Iterable[str]) -> None:
        now = frozenset(warnings)
        for warning in sorted(now - self._told):
            logger.warning("update_provider_tree: host %s: %s", self._host.name, warning)
        self._told = now

    # --- records ---

    def _recorded(self, facts: _Facts, wanted: _Wanted, placed: Mapping[str, Placed]) -> list[ProviderRecord]:
        """The host's records, and one for each provider that is about to be made; with the traits that are about to be written, so that
        they are known as ours though the pass may end half-way."""
        records = {record.name: record for record in facts.records.values()}
        moved = []
        for provider in (wanted.tree.root, *wanted.tree.children):
            kind = wanted.kinds.get(provider.name, ROOT)
            known = records.get(provider.name)
            record = known or ProviderRecord(
                facts.node.uuid if kind == ROOT else self._host.new_id(), facts.node.id, kind, provider.name
            )
            there = placed[record.uuid].traits if record.uuid in placed else frozenset()
            if there is not None:
                record = replace(record, traits=record.traits | (provider.traits - there))
            if record != known:
                records[provider.name] = record
                moved.append(record)
        if moved:
            self._host.database.write(lambda conn: providers.save(conn, moved, now=self._host.now()))
        return list(records.values())

    def _save(
        self, facts: _Facts, records: Iterable[ProviderRecord], stands: Report, retired: Sequence[str] = ()
    ) -> None:
        moved = [record for record in records if facts.records.get(record.uuid) != record]
        if not moved and not retired and stands == facts.stands and facts.node.reported:
            return

        def write(conn: Connection) -> None:
            providers.save(conn, moved, now=self._host.now())
            providers.forget(conn, retired)
            providers.save_report(conn, facts.node.id, stands, now=self._host.now())
            if not facts.node.reported:
                compute_nodes.set_reported(conn, facts.node.id)

        self._host.database.write(write)

    def _record_failure(self, error: str) -> None:
        def write(conn: Connection) -> None:
            try:
                node = compute_nodes.of_host(conn, self._host.name)
            except HostNotFound:
                return
            before = providers.report(conn, node.id)
            if before.error != error:
                providers.save_report(conn, node.id, replace(before, error=error), now=self._host.now())

        self._host.database.write(write)

    # --- what goes, and what servers lack ---

    def _retire(
        self,
        writer: ProviderWriter,
        node: ComputeNode,
        records: Iterable[ProviderRecord],
        after: Mapping[str, Placed],
        placed: Mapping[str, Placed],
    ) -> tuple[list[ProviderRecord], list[str]]:
        """Providers that stand for nothing any more: those that have to stay because they are used, and the UUIDs of those that went."""
        kept, retired = [], []
        for record in records:
            if record.name in after:
                continue
            if writer.retire(record, placed.get(record.uuid)):
                logger.info("update_provider_tree: host %s: provider %s is gone", self._host.name, record.name)
                retired.append(record.uuid)
            else:
                kept.append(record)
        return kept, retired

    def _heal(
        self,
        client: PlacementClient,
        writer: ProviderWriter,
        node: ComputeNode,
        tree: ProviderTree,
        after: dict[str, Placed],
    ) -> bool:
        """Give servers the allocations that they must have, in one step with the inventories that were held back for it."""
        if not tree.heal:
            return True
        uuids = {name: placed.record.uuid for name, placed in after.items()}
        allocations = healed_allocations(self._host, client, node, tree.heal, uuids)
        try:
            after.update(
                writer.reshape(
                    [after[name] for name in dict.fromkeys(name for _, name, _, _ in tree.heal)], allocations
                )
            )
        except (PlacementConflict, PlacementInventoryInUse) as error:
            logger.error(
                "update_provider_tree: host %s: the allocations of servers %s can't be put right yet: %s",
                self._host.name,
                ", ".join(sorted(allocations)),
                error,
            )
            after.update(writer.reshape([after[name] for name in {name for _, name, _, _ in tree.heal}], {}))
            return False
        for consumer, name, resource_class, amount in tree.heal:
            if consumer in allocations:
                logger.warning(
                    "update_provider_tree: host %s: server %s had no allocation of its device: it has %s:%d of %s now",
                    self._host.name,
                    consumer,
                    resource_class,
                    amount,
                    name,
                )
        return True

    def _retire_namesake(self, name: str, client: PlacementClient) -> bool:
        """Whether the provider of that name was ours, of a host that is gone, and is away now."""
        with self._host.database.read() as conn:
            orphans = {record.compute_node_id for record in providers.orphans(conn) if record.name == name}
        return bool(orphans) and retire_hosts(self._host.database, client, orphans)


def retire_hosts(database: Database, client: PlacementClient, only: Iterable[int] | None = None) -> bool:
    """Take the providers of hosts that are gone out of Placement (``only``: of these). Answers whether none is left; one that is still
    used stays, and is tried again next time. Raises ``PlacementUnavailable``."""
    with database.read() as conn:
        orphans = providers.orphans(conn)
    wanted = None if only is None else set(only)
    mine = [record for record in orphans if wanted is None or record.compute_node_id in wanted]
    complete = True
    # Children first: a provider with children can't go.
    for record in sorted(mine, key=lambda record: record.kind == ROOT):
        try:
            client.delete_provider(record.uuid)
        except PlacementInventoryInUse as error:
            complete = False
            logger.warning("Provider %s of a host that is gone stays in Placement: %s", record.name, error)
            continue
        database.write(partial(providers.forget, uuids=[record.uuid]))
    for node_id in {record.compute_node_id for record in mine} if complete else ():
        database.write(partial(providers.forget_report, compute_node_id=node_id))
    return complete


def _seen(placed: Iterable[Placed]) -> dict[str, dict[str, Seen]]:
    """By kind and name."""
    found: dict[str, dict[str, Seen]] = {}
    for each in placed:
        found.setdefault(each.record.kind, {})[each.record.name] = Seen(
            traits=each.record.traits,
            allocations=each.allocations,
            reserved={name: inventory.get("reserved", 0) for name, inventory in each.record.inventories.items()},
        )
    return found


def _has(seen: Mapping[str, Seen], consumer: str, name: str, resource_class: str, amount: int) -> bool:
    return name in seen and seen[name].allocations.get(consumer, {}).get(resource_class) == amount


def _digest(tree: ProviderTree) -> str:
    def plain(provider: Provider) -> object:
        return [
            provider.name,
            {name: vars(inventory) for name, inventory in provider.inventories.items()},
            sorted(provider.traits),
        ]

    text = canonical([plain(tree.root), sorted(map(plain, tree.children), key=str), sorted(tree.heal)])
    return hashlib.sha256(text.encode()).hexdigest()

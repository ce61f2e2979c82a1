"""The resource providers that we made in Placement: what is ours there, and what we last knew of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables import compute_nodes
from jetbridge.db.tables_providers import placement_providers, provider_reports

_p = placement_providers.c
_r = provider_reports.c

_OF_NODE = sa.select(placement_providers).where(_p.compute_node_id == sa.bindparam("node")).order_by(_p.name)
_REPORT = sa.select(provider_reports).where(_r.compute_node_id == sa.bindparam("node"))

ROOT = "root"
"""Kind of a host's own provider."""

VGPU_CARD = "mdev"
"""Kind of the provider of a card that carries vGPUs."""


@dataclass(frozen=True)
class ProviderRecord:
    """A provider of ours. ``generation`` as after our last look or write; None: it may not be in Placement yet. ``inventories`` and
    ``traits``: those that we wrote, by which others' are told apart."""

    uuid: str
    compute_node_id: int
    kind: str
    name: str
    generation: int | None = None
    inventories: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Report:
    """How a host's report stands. ``digest`` of what was reported when all of it last was; ``waiting``: there is something to do
    though nothing changes on the host (a provider that is still used, say); ``error``: why the last pass failed."""

    digest: str | None = None
    waiting: bool = False
    error: str | None = None


def of_node(conn: Connection, compute_node_id: int) -> list[ProviderRecord]:
    return [_record(row) for row in conn.execute(_OF_NODE, {"node": compute_node_id})]


def named(conn: Connection, names: Collection[str]) -> list[ProviderRecord]:
    """Those of any host, gone ones too."""
    if not names:
        return []
    return [_record(row) for row in conn.execute(sa.select(placement_providers).where(_p.name.in_(list(names))))]


def names_of(conn: Connection, uuids: Collection[str]) -> dict[str, str]:
    """The names of providers of ours by UUID; others are left out."""
    if not uuids:
        return {}
    query = sa.select(_p.uuid, _p.name).where(_p.uuid.in_(list(uuids)))
    return {row.uuid: row.name for row in conn.execute(query)}


def orphans(conn: Connection) -> list[ProviderRecord]:
    """Providers of hosts that are gone."""
    living = sa.select(compute_nodes.c.id).where(compute_nodes.c.deleted == 0)
    query = (
        sa.select(placement_providers).where(_p.compute_node_id.not_in(living)).order_by(_p.compute_node_id, _p.name)
    )
    return [_record(row) for row in conn.execute(query)]


def save(conn: Connection, records: Iterable[ProviderRecord], *, now: datetime | None = None) -> None:
    """Insert or update, known by ``uuid``."""
    at = now or utcnow()
    for record in records:
        values = {
            "compute_node_id": record.compute_node_id,
            "kind": record.kind,
            "name": record.name,
            "generation": record.generation,
            "inventories": canonical({name: dict(each) for name, each in record.inventories.items()}),
            "traits": canonical(sorted(record.traits)),
            "updated_at": at,
        }
        changed = conn.execute(placement_providers.update().where(_p.uuid == record.uuid).values(**values))
        if changed.rowcount == 0:
            conn.execute(placement_providers.insert().values(uuid=record.uuid, created_at=at, **values))


def forget(conn: Connection, uuids: Collection[str]) -> None:
    if uuids:
        conn.execute(placement_providers.delete().where(_p.uuid.in_(list(uuids))))


def report(conn: Connection, compute_node_id: int) -> Report:
    row = conn.execute(_REPORT, {"node": compute_node_id}).first()
    return Report() if row is None else Report(row.digest, row.waiting, row.error)


def errors(conn: Connection) -> dict[int, str]:
    """Why the last pass failed, by host."""
    query = sa.select(_r.compute_node_id, _r.error).where(_r.error.is_not(None))
    return {row.compute_node_id: row.error for row in conn.execute(query)}


def save_report(conn: Connection, compute_node_id: int, stands: Report, *, now: datetime | None = None) -> None:
    values = {
        "digest": stands.digest,
        "waiting": stands.waiting,
        "error": stands.error,
        "updated_at": now or utcnow(),
    }
    changed = conn.execute(provider_reports.update().where(_r.compute_node_id == compute_node_id).values(**values))
    if changed.rowcount == 0:
        conn.execute(provider_reports.insert().values(compute_node_id=compute_node_id, **values))


def forget_report(conn: Connection, compute_node_id: int) -> None:
    conn.execute(provider_reports.delete().where(_r.compute_node_id == compute_node_id))


def _record(row: Row[Any]) -> ProviderRecord:
    return ProviderRecord(
        uuid=row.uuid,
        compute_node_id=row.compute_node_id,
        kind=row.kind,
        name=row.name,
        generation=row.generation,
        inventories=decoded(row.inventories),
        traits=frozenset(decoded(row.traits)),
    )

"""The cards of hosts that carry vGPUs, as their agents last saw them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables import compute_nodes
from jetbridge.db.tables_vgpu import vgpu_cards
from jetbridge.mdev.cards import Card, CardType
from jetbridge.mdev.values import Instance, Kind

_t = vgpu_cards.c

_OF_NODE = sa.select(vgpu_cards).where(_t.compute_node_id == sa.bindparam("node")).order_by(_t.id)


@dataclass(frozen=True)
class ListedCard:
    card: Card
    host: str


def replace(conn: Connection, compute_node_id: int, cards: Iterable[Card]) -> bool:
    """The host has exactly these now; whether anything changed."""
    wanted = list(cards)
    if list(of_node(conn, compute_node_id)) == wanted:
        return False
    conn.execute(vgpu_cards.delete().where(_t.compute_node_id == compute_node_id))
    if wanted:
        conn.execute(vgpu_cards.insert(), [{"compute_node_id": compute_node_id, **_columns(card)} for card in wanted])
    return True


def of_node(conn: Connection, compute_node_id: int) -> tuple[Card, ...]:
    """In the order in which they were written."""
    return tuple(_card(row) for row in conn.execute(_OF_NODE, {"node": compute_node_id}))


def listing(conn: Connection, host: str | None = None) -> list[ListedCard]:
    """Of one host, or of all, by host."""
    query = (
        sa.select(vgpu_cards, compute_nodes.c.host)
        .join(compute_nodes, compute_nodes.c.id == _t.compute_node_id)
        .where(compute_nodes.c.deleted == 0)
        .order_by(compute_nodes.c.host, _t.id)
    )
    if host is not None:
        query = query.where(compute_nodes.c.host == host)
    return [ListedCard(_card(row), row.host) for row in conn.execute(query)]


def _columns(card: Card) -> dict[str, Any]:
    return {
        "name": card.name,
        "address": card.address,
        "kind": card.kind.value,
        "functions": card.functions,
        "types": canonical([asdict(kind) for kind in card.types]),
        "totals": canonical(dict(card.totals)),
        "foreign_vgpus": canonical([asdict(instance) for instance in card.foreign]),
    }


def _card(row: Row[Any]) -> Card:
    return Card(
        name=row.name,
        address=row.address,
        kind=Kind(row.kind),
        functions=row.functions,
        types=tuple(CardType(**kind) for kind in decoded(row.types)),
        totals=decoded(row.totals),
        foreign=tuple(Instance(**instance) for instance in decoded(row.foreign_vgpus)),
    )

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from jetbridge.db import compute_nodes, vgpu_cards, vgpus
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.mdev.cards import Card, CardType
from jetbridge.mdev.values import Instance, Kind, State, Vgpu
from tests.contract.db.rows import node

NOW = datetime(2026, 1, 2, 3, 4, 5, 678)
FIRST = Vgpu("u-1", Kind.MDEV, "pci_0000_3b_00_0", "pci_0000_3b_00_0", "nvidia-222", "VGPU", "server-1")
SECOND = Vgpu(
    "u-2", Kind.VFIO, "pci_0000_65_00_0", "pci_0000_65_00_4", "nvidia-558", "CUSTOM_B", "server-1", State.READY
)
FREE = replace(FIRST, uuid="u-0", server=None, state=State.READY)
CARD = Card(
    "pci_0000_65_00_0",
    "0000:65:00.0",
    Kind.VFIO,
    16,
    (CardType("nvidia-558", "NVIDIA L40S-4Q", 12, "CUSTOM_B", 4), CardType("nvidia-55", None, 1)),
    {"CUSTOM_B": 4},
    (Instance("pci_0000_65_00_5", "nvidia-558", "u-9", False, "mdev_x"),),
)
VIRTUAL = Card("mtty_mtty", None, Kind.MDEV, 1)


def test_vgpus_are_kept_as_they_were_written(database: Database) -> None:
    database.write(lambda conn: vgpus.save(conn, 7, [SECOND, FIRST, FREE], now=NOW))
    moved = replace(FREE, server="server-2", resource_class="CUSTOM_A", state=State.RESERVED)
    database.write(lambda conn: vgpus.save(conn, 7, [moved], now=NOW))
    with database.read() as conn:
        assert vgpus.of_node(conn, 7) == (moved, FIRST, SECOND)
        assert vgpus.of_node(conn, 8) == ()
        assert vgpus.of_server(conn, "server-1") == (SECOND, FIRST)


def test_what_a_server_had_can_be_used_again_unless_it_was_taken_down(database: Database) -> None:
    gone = replace(SECOND, state=State.REMOVED)
    database.write(lambda conn: vgpus.save(conn, 7, [FIRST, gone], now=NOW))
    assert database.write(lambda conn: vgpus.release(conn, 7, "server-1", now=NOW)) == (FIRST, gone)
    with database.read() as conn:
        assert vgpus.of_node(conn, 7) == (replace(FIRST, server=None),)
        assert vgpus.of_server(conn, "server-1") == ()
    assert database.write(lambda conn: vgpus.release(conn, 7, "server-1", now=NOW)) == ()


def test_a_state_follows_only_from_states_it_may(database: Database) -> None:
    database.write(lambda conn: vgpus.save(conn, 7, [FIRST, SECOND], now=NOW))

    def ready(conn: Connection) -> None:
        vgpus.set_state(conn, ["u-1", "u-2"], State.REMOVING, before=[State.READY], now=NOW)
        vgpus.set_state(conn, [], State.REMOVED, before=list(State), now=NOW)

    database.write(ready)
    with database.read() as conn:
        assert vgpus.of_node(conn, 7) == (FIRST, replace(SECOND, state=State.REMOVING))
    database.write(lambda conn: vgpus.delete(conn, ["u-1"]))
    database.write(lambda conn: vgpus.delete(conn, []))
    with database.read() as conn:
        assert [vgpu.uuid for vgpu in vgpus.of_node(conn, 7)] == ["u-2"]


def test_the_vgpus_and_cards_of_hosts_are_listed_by_name(database: Database) -> None:
    def fill(conn: Connection) -> int:
        stored = compute_nodes.upsert(conn, node("gpu001"), now=NOW)
        vgpus.save(conn, stored.id, [FIRST, SECOND], now=NOW)
        assert vgpu_cards.replace(conn, stored.id, [CARD, VIRTUAL])
        assert not vgpu_cards.replace(conn, stored.id, [CARD, VIRTUAL])
        return stored.id

    node_id = database.write(fill)
    with database.read() as conn:
        assert [(one.vgpu, one.host, one.server_name) for one in vgpus.listing(conn)] == [
            (FIRST, "gpu001", None),
            (SECOND, "gpu001", None),
        ]
        assert vgpus.listing(conn, "gpu002") == []
        assert [(one.card, one.host) for one in vgpu_cards.listing(conn)] == [(CARD, "gpu001"), (VIRTUAL, "gpu001")]
        assert vgpu_cards.listing(conn, "gpu002") == []
        assert vgpu_cards.of_node(conn, node_id) == (CARD, VIRTUAL)
    database.write(lambda conn: compute_nodes.delete(conn, node_id))
    with database.read() as conn:
        assert vgpu_cards.listing(conn) == []
        assert vgpus.listing(conn) == []

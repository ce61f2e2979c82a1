"""/jetbridge/v1/vgpus: what cards carry, and what exists of it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from jetbridge.api.jetbridge import vgpus as api
from jetbridge.db import compute_nodes, vgpu_cards, vgpus
from jetbridge.db.connection import Connection
from jetbridge.mdev.cards import Card, CardType
from jetbridge.mdev.values import Instance, Kind, State, Vgpu
from tests.contract.db.rows import node
from tests.unit.api.doors import Door, PasswordFile, open_door

NOW = datetime(2026, 1, 2, 3, 4, 5)
CARD = Card(
    "pci_0000_65_00_0",
    "0000:65:00.0",
    Kind.MDEV,
    16,
    (CardType("nvidia-558", "A40-4Q", 16), CardType("nvidia-712", "A40-12Q", 11, "VGPU", 4)),
    {"VGPU": 4},
    (Instance("pci_0000_65_00_5", "nvidia-712", "u-0"), Instance("pci_0000_65_00_6", "nvidia-558", "u-4", False)),
)
VENDOR = Card("pci_0000_66_00_0", "0000:66:00.0", Kind.VFIO, 4, foreign=(Instance("pci_0000_66_00_2", "nvidia-5"),))
MINE = Vgpu("u-1", Kind.MDEV, CARD.name, "pci_0000_65_00_4", "nvidia-712", "VGPU", "s-1", State.READY)
FREE = Vgpu("u-2", Kind.MDEV, CARD.name, "pci_0000_65_00_7", "nvidia-712", "VGPU", None, State.READY)
VF = Vgpu("u-3", Kind.VFIO, VENDOR.name, "pci_0000_66_00_1", "nvidia-5", "VGPU", "s-1", State.READY)


def filled(door: Door) -> Door:
    def fill(conn: Connection) -> None:
        host = compute_nodes.upsert(conn, node("gpu001"), now=NOW)
        compute_nodes.upsert(conn, node("gpu002"), now=NOW)
        vgpus.save(conn, host.id, [MINE, FREE, VF], now=NOW)
        vgpu_cards.replace(conn, host.id, [CARD, VENDOR])

    door.services.database.write(fill)
    return door


def listed(door: Door, path: str, collection: str) -> list[dict[str, Any]]:
    answer = door.get(path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()[collection]
    return found


def test_types_of_cards_tell_what_is_offered_and_used(tmp_path: Path) -> None:
    with open_door(tmp_path, [api.router]) as door:
        one, other = listed(filled(door), "/jetbridge/v1/vgpus/types", "types")
        assert (one["type"], one["resource_class"], one["total"], one["used"], one["available"]) == (
            "nvidia-558",
            None,
            None,
            0,
            16,
        )
        assert other == {
            "host": "gpu001",
            "host_state": "down",  # no agent tells of itself here
            "parent": "pci_0000_65_00_0",
            "address": "0000:65:00.0",
            "kind": "mdev",
            "functions": 16,
            "type": "nvidia-712",
            "name": "A40-12Q",
            "available": 11,
            "resource_class": "VGPU",
            "total": 4,
            "used": 1,
        }
        assert listed(door, "/jetbridge/v1/vgpus/types?host=gpu002", "types") == []


def test_vgpus_of_ours_and_of_others_are_listed_together(tmp_path: Path) -> None:
    with open_door(tmp_path, [api.router]) as door:
        found = listed(filled(door), "/jetbridge/v1/vgpus?host=gpu001", "vgpus")
        shown = [(one["uuid"], one["parent"][-1], one["owner"], one["state"], one["instance_uuid"]) for one in found]
        assert shown == [
            ("u-1", "4", "jetbridge", "ready", "s-1"),
            ("u-0", "5", "foreign", "ready", None),
            ("u-4", "6", "foreign", "defined", None),
            ("u-2", "7", "jetbridge", "ready", None),
            (None, "1", "jetbridge", "ready", "s-1"),
            (None, "2", "foreign", "ready", None),
        ]
        assert found[0]["type"] == "nvidia-712"
        assert listed(door, "/jetbridge/v1/vgpus?host=gpu002", "vgpus") == []


def test_a_host_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with open_door(tmp_path, [api.router]) as door:
        assert door.get("/jetbridge/v1/vgpus?host=x").status_code == 404
        assert door.get("/jetbridge/v1/vgpus/types?host=x").status_code == 404


def test_only_administrators_see_them(tmp_path: Path) -> None:
    file = PasswordFile(tmp_path / "users")
    member = file.add("ann", "pw", "blue", "member")
    with open_door(tmp_path, [api.router], settings=file.settings) as door:
        for path in ("/jetbridge/v1/vgpus", "/jetbridge/v1/vgpus/types"):
            assert door.get(path, headers=member).status_code == 403

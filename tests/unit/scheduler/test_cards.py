"""Which of a host's providers are cards."""

from __future__ import annotations

from jetbridge.db.providers import ROOT, VGPU_CARD, ProviderRecord
from jetbridge.scheduler.cards import Card, cards_of


def record(uuid: str, kind: str, name: str, generation: int | None = 1) -> ProviderRecord:
    return ProviderRecord(uuid, 1, kind, name, generation, {"VGPU": {"total": 4}})


def test_cards_are_the_hosts_providers_of_that_kind_that_placement_has() -> None:
    found = cards_of(
        [
            record("1", ROOT, "gpu_7"),
            record("2", "pci", "gpu_7_0000:17:00.0"),
            record("3", VGPU_CARD, "gpu_7_pci_0000_3b_00_0"),
            record("4", VGPU_CARD, "gpu_7_pci_0000_5e_00_0", generation=None),
            record("5", VGPU_CARD, "gpu_7_mtty_mtty"),
        ],
        "gpu_7",
    )
    classes = frozenset({"VGPU"})
    assert found == (Card("3", "pci_0000_3b_00_0", classes), Card("5", "mtty_mtty", classes))

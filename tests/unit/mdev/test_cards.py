from __future__ import annotations

from typing import Any

from jetbridge.mdev.cards import Card, CardType, cards_of
from jetbridge.mdev.values import HostVgpus, Instance, Kind, Offer, Parent
from tests.unit.mdev.build import host_of, ours_of, shares_of


def cards(case: dict[str, Any]) -> tuple[Card, ...]:
    return cards_of(host_of(case), shares_of(case), ours_of(case))


def test_a_card_tells_all_its_types_and_which_are_offered() -> None:
    case = {
        "enabled": ["t"],
        "vf_card": {"name": "pci_0000_65_00_0", "vfs": 3, "offer": "u=1 t=1/2"},
        "parents": ["mtty_mtty x=4"],
        "foreign": ["pci_0000_65_00_3 u", "mtty_mtty x inactive"],
    }
    virtual, card = cards(case)
    assert card == Card(
        "pci_0000_65_00_0",
        "0000:65:00.0",
        Kind.MDEV,
        3,
        (CardType("t", None, 3, "VGPU", 2), CardType("u", None, 3)),
        {"VGPU": 2},
        (Instance("pci_0000_65_00_3", "u", "foreign-0"),),
    )
    assert virtual == Card(
        "mtty_mtty",
        "mtty_mtty",
        Kind.MDEV,
        1,
        (CardType("x", None, 4),),
        {},
        (Instance("mtty_mtty", "x", "foreign-1", False),),
    )


def test_each_card_tells_its_own_total() -> None:
    case = {"enabled": ["t"], "parents": ["pci_0000_3b_00_0 t=4", "pci_0000_5e_00_0 t=2"]}
    assert [[(kind.type, kind.total) for kind in card.types] for card in cards(case)] == [[("t", 4)], [("t", 2)]]


def test_a_type_is_named_by_any_function_that_knows_its_name() -> None:
    """A VF that carries a type names it no more: its file lists what can be created on it now."""
    vfs = [
        Parent(f"vf{number}", f"vf{number}", "card", "card", Kind.VFIO, (Offer("t", 1, name),))
        for number, name in enumerate((None, "L40S-4Q", None))
    ]
    [card] = cards_of(HostVgpus(tuple(vfs)), (), ())
    assert card.types == (CardType("t", "L40S-4Q", 3),)


def test_what_is_ours_is_not_foreign() -> None:
    case = {"enabled": ["t"], "parents": ["pci_0000_3b_00_0 t=1"], "ours": ["u1 pci_0000_3b_00_0 t ready"]}
    [card] = cards(case)
    assert card.foreign == ()
    assert card.totals == {"VGPU": 2}


def test_a_card_that_is_gone_is_told_while_it_is_held() -> None:
    case = {
        "enabled": ["t"],
        "parents": [],
        "ours": ["u1 pci_0000_3b_00_0 t s1 absent", "u2 mtty_mtty t s1 absent", "u3 pci_0000_5e_00_0 t absent"],
    }
    assert cards(case) == (
        Card("mtty_mtty", None, Kind.MDEV, 0, totals={"VGPU": 1}),
        Card("pci_0000_3b_00_0", "0000:3b:00.0", Kind.MDEV, 0, totals={"VGPU": 1}),
    )

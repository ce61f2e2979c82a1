from __future__ import annotations

import pytest

from jetbridge.errors import PlacementConflict, PlacementUnknownName
from jetbridge.model.request_group import RequestGroup
from jetbridge.scheduler.placement_reasons import CardRoom, described, no_room, none_free, too_few, unknown


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (RequestGroup("1", {"VGPU": 1}), "VGPU"),
        (RequestGroup("1", {"VGPU": 2, "CUSTOM_MEM": 8}), "8 CUSTOM_MEM and 2 VGPU"),
        (RequestGroup("1", {"CUSTOM_GPU": 1}, frozenset({"OWNER_NOVA"})), "CUSTOM_GPU"),
        (RequestGroup("1", {"CUSTOM_GPU": 1}, forbidden=frozenset({"OWNER_CYBORG"})), "CUSTOM_GPU"),
        (
            RequestGroup("1", {"VGPU": 1}, frozenset({"CUSTOM_B", "CUSTOM_A"}), frozenset({"CUSTOM_C"})),
            "VGPU with trait CUSTOM_A, CUSTOM_B without trait CUSTOM_C",
        ),
        (
            RequestGroup("1", {"VGPU": 1}, member_of=frozenset({"one"}), outside_of=frozenset({"two"})),
            "VGPU in aggregate one outside of aggregate two",
        ),
    ],
)
def test_what_was_asked_for_in_words(group: RequestGroup, words: str) -> None:
    assert described(group) == words


def test_the_hint_is_a_command_that_asks_the_same() -> None:
    group = RequestGroup(
        "1", {"VGPU": 2}, frozenset({"CUSTOM_A", "OWNER_NOVA"}), frozenset({"CUSTOM_B"}), frozenset({"one"})
    )
    assert none_free(group).hint == (
        "openstack allocation candidate list --resource VGPU=2 --required CUSTOM_A --required OWNER_NOVA --forbidden CUSTOM_B"
        " --member-of one lists who could serve it now, openstack resource provider show --allocations PROVIDER who holds what of a"
        " provider"
    )


def test_hosts_without_room_are_told_together() -> None:
    """Placement's words name the provider."""
    said = [
        PlacementConflict(reason=f"Unable to allocate inventory: Unable to create allocation for '{name}' on {where}")
        for name, where in (("VCPU", "resource provider 'one'"), ("VCPU", "resource provider 'two'"))
    ]
    assert len({no_room(conflict, {}) for conflict in said}) == 1
    assert no_room(said[0], {}).text == "Placement has not enough VCPU free"
    assert no_room(PlacementConflict(reason="something else"), {}).text.endswith("something else")


def test_a_name_that_nobody_reported() -> None:
    assert "no host has ever reported it" in unknown(PlacementUnknownName(names="CUSTOM_ODD")).text


@pytest.mark.parametrize(
    ("cards", "told"),
    [
        ((), ""),
        ((CardRoom("pci_0000_3b_00_0", {"VGPU": (0, 16)}),), ": card pci_0000_3b_00_0 has 0 of 16 VGPU free"),
        (
            (CardRoom("a", {"VGPU": (1, 4), "CUSTOM_MEM": (0, 8)}), CardRoom("b", {"VGPU": (0, 2)})),
            ": card a has 0 of 8 CUSTOM_MEM and 1 of 4 VGPU free, card b has 0 of 2 VGPU free",
        ),
        (
            (CardRoom("a", {"VGPU": (4, 4)}, lacks={"CUSTOM_Y", "CUSTOM_X"}, has={"CUSTOM_OLD"}),),
            ": card a has 4 of 4 VGPU free and lacks trait CUSTOM_X, CUSTOM_Y and has trait CUSTOM_OLD",
        ),
        (
            (CardRoom("a", {"VGPU": (0, 1)}), CardRoom("b"), CardRoom("c")),
            ": card a has 0 of 1 VGPU free, and 2 other cards",
        ),
        ((CardRoom("a"),), ""),
    ],
)
def test_cards_are_named_with_what_they_have(cards: tuple[CardRoom, ...], told: str) -> None:
    one = RequestGroup("1", {"VGPU": 1})
    assert none_free(one, cards).text == f"Placement has no free VGPU{told}"
    text = "Placement has too few providers for all of VGPU; VGPU"
    assert too_few([one, one], 1, cards, apart=False).text == text + told
    apart = f"{text}, each of another provider as group_policy isolate asks{told}"
    assert too_few([one, one], 1, cards, apart=True).text == apart


def test_a_card_that_others_fill_again_and_again_is_named() -> None:
    conflict = PlacementConflict(reason="Unable to create allocation for 'VGPU' on resource provider 'uuid-2'")
    cards = {"uuid-1": "pci_0000_3b_00_0", "uuid-2": "pci_0000_5e_00_0"}
    assert no_room(conflict, cards).text == "Placement has not enough VGPU free on card pci_0000_5e_00_0"

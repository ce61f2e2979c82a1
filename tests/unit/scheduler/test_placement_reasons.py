from __future__ import annotations

import pytest

from jetbridge.errors import PlacementConflict, PlacementUnknownName
from jetbridge.model.request_group import RequestGroup
from jetbridge.scheduler.placement_reasons import described, no_room, none_free, unknown


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (RequestGroup("1", {"VGPU": 1}), "VGPU"),
        (RequestGroup("1", {"VGPU": 2, "CUSTOM_MEM": 8}), "8 CUSTOM_MEM and 2 VGPU"),
        (RequestGroup("1", {"CUSTOM_GPU": 1}, frozenset({"OWNER_NOVA"})), "CUSTOM_GPU"),
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
        " --member-of one shows who has it"
    )


def test_hosts_without_room_are_told_together() -> None:
    """Placement's words name the provider."""
    said = [
        PlacementConflict(reason=f"Unable to allocate inventory: Unable to create allocation for '{name}' on {where}")
        for name, where in (("VCPU", "resource provider 'one'"), ("VCPU", "resource provider 'two'"))
    ]
    assert len({no_room(conflict) for conflict in said}) == 1
    assert no_room(said[0]).text == "Placement has not enough VCPU free"
    assert no_room(PlacementConflict(reason="something else")).text.endswith("something else")


def test_a_name_that_nobody_reported() -> None:
    assert "no host has ever reported it" in unknown(PlacementUnknownName(names="CUSTOM_ODD")).text

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.mdev.capacity import inventories, shares
from jetbridge.mdev.config import TypeOptions, read_config
from jetbridge.mdev.values import HostVgpus, Kind, Offer, Parent, Vgpu
from tests.unit.mdev.build import Facts, ours_of, shares_of
from tests.unit.pci.build import cases


@pytest.mark.parametrize("case", cases("mdev_capacity.yaml"))
def test_capacity(case: dict[str, Any]) -> None:
    found = shares_of(case)
    assert inventories(found, ours_of(case)) == case["totals"]
    for card, types in case.get("free", {}).items():
        assert {share.type.id: share.free for share in found if share.card == card} == types
    for share in found:
        assert share.total == share.used + share.idle + share.creatable


def test_what_a_share_tells() -> None:
    [share] = shares_of(
        {
            "enabled": ["t"],
            "parents": ["pci_0000_3b_00_0 t=3"],
            "ours": ["u1 pci_0000_3b_00_0 t s1 ready", "u2 pci_0000_3b_00_0 t ready"],
            "foreign": ["pci_0000_3b_00_0 t"],
        }
    )
    assert (share.card, share.card_address, share.kind) == ("pci_0000_3b_00_0", "0000:3b:00.0", Kind.MDEV)
    assert (share.used, share.idle, share.foreign, share.creatable, share.total) == (1, 1, 1, 3, 5)
    assert share.room == {"pci_0000_3b_00_0": 3}


sizes = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=6)


@given(sizes, st.integers(1, 60))
def test_a_cap_is_reached_where_there_is_room_and_drops_nothing(cards: list[tuple[int, int]], cap: int) -> None:
    """``cards``: room and held of each."""
    parents = tuple(
        Parent(f"c{number}", f"c{number}", f"c{number}", f"c{number}", offers=(Offer("t", room),))
        for number, (room, _) in enumerate(cards)
    )
    ours = [
        Vgpu(f"u{number}-{one}", Kind.MDEV, f"c{number}", f"c{number}", "t", "VGPU", "s")
        for number, (_, held) in enumerate(cards)
        for one in range(held)
    ]
    config = read_config(["t"], {"t": TypeOptions(max_instances=cap)}, Facts())
    # All of ours are written down and not made yet: their places come off the room.
    parents = tuple(
        Parent(p.name, p.address, p.card, p.card_address, p.kind, (Offer("t", room + held),))
        for p, (room, held) in zip(parents, cards, strict=True)
    )
    found = shares(config, HostVgpus(parents), ours)
    held, room = len(ours), sum(room for room, _ in cards)
    assert sum(share.total for share in found) == max(held, min(held + room, cap))
    assert [share.used for share in found] == [held for _, held in cards]
    # A later card has something new only once the earlier ones are full.
    short = [share.creatable < room for share, (room, _) in zip(found, cards, strict=True)]
    for number, share in enumerate(found):
        assert not (share.creatable and any(short[:number]))

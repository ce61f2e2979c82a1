from __future__ import annotations

from typing import Any

import pytest

from jetbridge.errors import ComputeResourcesUnavailable
from jetbridge.mdev.choice import Wanted, choose
from jetbridge.mdev.values import Kind, State
from tests.unit.mdev.build import numbered, ours_of, shares_of
from tests.unit.pci.build import cases


@pytest.mark.parametrize("case", cases("mdev_choice.yaml"))
def test_choice(case: dict[str, Any]) -> None:
    card, resource_class, amount = case["want"].split()
    wanted = Wanted(card, resource_class, int(amount))
    new = iter(numbered("new"))
    if "says" in case:
        with pytest.raises(ComputeResourcesUnavailable) as caught:
            choose(wanted, shares_of(case), ours_of(case), "me", lambda: next(new))
        for word in case["says"]:
            assert word in caught.value.message
        return
    chosen = choose(wanted, shares_of(case), ours_of(case), "me", lambda: next(new))
    assert [f"{vgpu.uuid} {vgpu.parent} {vgpu.type}" for vgpu in chosen] == case["gets"]
    assert {vgpu.server for vgpu in chosen} == {"me"}
    assert {vgpu.resource_class for vgpu in chosen} == {resource_class}
    assert {vgpu.card for vgpu in chosen} == {card}


def test_a_new_one_is_written_down_before_it_is_made_and_a_used_one_stays_made() -> None:
    case = {
        "enabled": ["t"],
        "parents": ["pci_0000_65_00_1@pci_0000_65_00_0 vfio t=1", "pci_0000_65_00_2@pci_0000_65_00_0 vfio t=0"],
        "ours": ["u1 pci_0000_65_00_2@pci_0000_65_00_0 t ready vfio"],
    }
    used, new = choose(Wanted("pci_0000_65_00_0", "VGPU", 2), shares_of(case), ours_of(case), "me", lambda: "n")
    assert (used.uuid, used.state, new.uuid, new.state) == ("u1", State.READY, "n", State.RESERVED)
    assert used.kind is new.kind is Kind.VFIO
    assert (new.address, used.address) == ("0000:65:00.1", "0000:65:00.2")


def test_a_virtual_parent_has_no_address() -> None:
    case = {"enabled": ["t"], "parents": ["mtty_mtty t=1"]}
    [new] = choose(Wanted("mtty_mtty", "VGPU", 1), shares_of(case), (), "me", lambda: "n")
    assert new.address is None

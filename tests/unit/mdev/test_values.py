from __future__ import annotations

from dataclasses import replace

import pytest

from jetbridge.mdev.values import Instance, Kind, State, Vgpu, address_of

MDEV = Vgpu("u-1", Kind.MDEV, "pci_0000_3b_00_0", "pci_0000_3b_00_0", "t", "VGPU", None)
VF = Vgpu("u-2", Kind.VFIO, "pci_0000_65_00_0", "pci_0000_65_00_4", "t", "VGPU", None)


def test_a_mediated_device_is_known_by_its_uuid_alone() -> None:
    assert MDEV.is_(Instance("elsewhere", "other", "u-1"))
    assert not MDEV.is_(Instance("pci_0000_3b_00_0", "t", "u-3"))
    assert not MDEV.is_(Instance("pci_0000_3b_00_0", "t"))


def test_a_vf_with_a_type_is_known_by_both() -> None:
    assert VF.is_(Instance("pci_0000_65_00_4", "t"))
    assert not VF.is_(Instance("pci_0000_65_00_5", "t"))
    assert not VF.is_(Instance("pci_0000_65_00_4", "u"))
    assert not VF.is_(Instance("pci_0000_65_00_4", "t", "u-2"))


def test_what_is_stored_keeps_its_words() -> None:
    assert [str(kind) for kind in Kind] == ["mdev", "vfio"]
    assert [str(state) for state in State] == ["reserved", "ready", "held", "removing", "removed"]
    assert MDEV.state is State.RESERVED


def test_an_instance_is_active_and_nameless_unless_said() -> None:
    one = Instance("p", "t")
    assert (one.uuid, one.active, one.node_name) == ("", True, "")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("pci_0000_3b_00_0", "0000:3b:00.0"),
        ("pci_10000_e1_00_7", "10000:e1:00.7"),
        ("mtty_mtty", None),
        ("pci_0000_3b_00_8", None),
        ("pci_0000_3b_00_0_x", None),
    ],
)
def test_names_of_functions(name: str, address: str | None) -> None:
    assert address_of(name) == address
    assert replace(MDEV, parent=name).address == address

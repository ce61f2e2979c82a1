"""What carries vGPUs and what exists of them, read from real documents and from simulated cards."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from lxml import etree

from jetbridge.mdev.values import HostVgpus, Instance, Kind, Offer, Parent
from jetbridge.virt.connection import HostFiles
from jetbridge.virt.libvirt.files import LocalHostFiles
from jetbridge.virt.node_xml import mdev_xml
from jetbridge.virt.simulated import SimulatedConnection, SimulatedHostFiles
from jetbridge.virt.vgpus import VgpuFacts, current_type, host_vgpus, type_file, vendor_number
from tests.unit.virt.fleets import LAB, opened
from tests.unit.virt.simulated.test_vgpus import CARD, VENDOR, VF, mdev

UUID = "4b20d080-1b54-4048-85b3-a6a62d165c01"


def read(connection: SimulatedConnection, files: SimulatedHostFiles) -> HostVgpus:
    return host_vgpus(connection.node_devices(), files)


def test_a_card_and_a_virtual_parent_as_a_real_host_shows_them(tmp_path: Path) -> None:
    seen = read(*opened(tmp_path, f"nodedevs: {LAB}"))
    card, virtual = seen.parents
    assert (card.name, card.address, card.card, card.card_address, card.kind) == (
        "pci_0000_42_00_0",
        "0000:42:00.0",
        "pci_0000_42_00_0",
        "0000:42:00.0",
        Kind.MDEV,
    )
    assert card.offers == (Offer("labvgpu-2", 11, "Dual port serial"), Offer("labvgpu-1", 23, "Single port serial"))
    assert (virtual.name, virtual.address, virtual.card) == ("mtty_mtty", "mtty_mtty", "mtty_mtty")
    found = {(one.parent, one.type, one.uuid, one.active) for one in seen.instances}
    assert found == {
        ("mtty_mtty", "mtty-1", "11111111-2222-3333-4444-555555555500", True),
        ("pci_0000_42_00_0", "labvgpu-1", "aaaaaaaa-2222-3333-4444-555555555501", True),
    }


def test_vfs_belong_to_their_card_and_its_description_says_how_many_it_carries(tmp_path: Path) -> None:
    seen = read(*opened(tmp_path, CARD))
    assert len(seen.parents) == 16
    assert {parent.card for parent in seen.parents} == {"pci_0000_65_00_0"}
    assert {parent.card_address for parent in seen.parents} == {"0000:65:00.0"}
    assert seen.parents[0].name == "pci_0000_65_00_1"
    assert seen.parents[0].offer("nvidia-712") == Offer("nvidia-712", 1, "A40-12Q", 4)
    assert [parent.address for parent in seen.parents] == sorted(parent.address for parent in seen.parents)


def test_one_that_is_defined_and_not_started_is_not_active(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, CARD)
    name = connection.create_mdev(mdev("pci_0000_65_00_1", "nvidia-712", 1))
    connection.stop_mdev(name)
    [instance] = read(connection, files).instances
    uuid = "c0ffee00-0000-4000-8000-000000000001"
    assert instance == Instance("pci_0000_65_00_1", "nvidia-712", uuid, False, name)


def test_f22_the_types_of_a_vf_stand_in_its_files(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, VENDOR)
    seen = read(connection, files)
    assert [parent.kind for parent in seen.parents] == [Kind.VFIO] * 4
    assert seen.parents[0] == Parent(
        "pci_0000_65_00_1",
        "0000:65:00.1",
        "pci_0000_65_00_0",
        "0000:65:00.0",
        Kind.VFIO,
        (Offer("nvidia-558", 1, "NVIDIA L40S-4Q"), Offer("nvidia-55", 1, "NVIDIA L40S-1B")),
    )
    assert seen.instances == ()
    files.write_text(f"{VF.format(2)}/current_vgpu_type", vendor_number("nvidia-558"))
    seen = read(connection, files)
    assert seen.instances == (Instance("pci_0000_65_00_2", "nvidia-558", node_name="pci_0000_65_00_2"),)
    assert seen.parents[1].offers == (Offer("nvidia-558", 0),)
    assert current_type("0000:65:00.2", files) == "nvidia-558"
    assert current_type("0000:65:00.1", files) is None
    assert current_type("0000:99:00.1", files) is None


def test_f22_the_vendors_files_are_read_and_set_under_an_injected_root(tmp_path: Path) -> None:
    """As the vendor's documentation shows them, with its padding; a VF that the driver doesn't know has none."""
    connection, _ = opened(tmp_path, VENDOR)
    root = tmp_path / "root"
    for number in (1, 2):
        folder = root / VF.format(number).lstrip("/")
        folder.mkdir(parents=True)
        table = (
            "ID    : vGPU Name\n557   : NVIDIA L40S-1B\n558   : NVIDIA L40S-4Q\n"
            if number == 1
            else "ID    : vGPU Name\n"
        )
        (folder / "creatable_vgpu_types").write_text(table)
        (folder / "current_vgpu_type").write_text("0\n" if number == 1 else "558\n")
    files = LocalHostFiles(root)
    seen = host_vgpus(connection.node_devices(), files)
    assert [(parent.address, parent.offers) for parent in seen.parents] == [
        ("0000:65:00.1", (Offer("nvidia-557", 1, "NVIDIA L40S-1B"), Offer("nvidia-558", 1, "NVIDIA L40S-4Q"))),
        ("0000:65:00.2", (Offer("nvidia-558", 0),)),
    ]
    assert [(one.parent, one.type) for one in seen.instances] == [("pci_0000_65_00_2", "nvidia-558")]
    files.write_text(type_file("0000:65:00.1"), vendor_number("nvidia-557"))
    assert (root / VF.format(1).lstrip("/") / "current_vgpu_type").read_text() == "557"
    assert current_type("0000:65:00.1", files) == "nvidia-557"


def test_vfs_of_nics_are_not_asked(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, "hardware: [connectx6]")
    assert read(connection, files) == HostVgpus()
    asked: list[str] = []

    class Files(SimulatedHostFiles):
        def read_text(self, path: str) -> str | None:
            asked.append(path)
            return super().read_text(path)

    host_vgpus(connection.node_devices(), Files(connection._machine))
    assert [path for path in asked if "nvidia" in path] == []


def test_what_the_options_need_to_know_of_a_host(tmp_path: Path) -> None:
    facts = VgpuFacts(opened(tmp_path, f"nodedevs: {LAB}")[1])
    assert facts.is_virtual_parent("mtty_mtty")
    assert not facts.is_virtual_parent("mtty")
    assert not facts.is_virtual_parent("mtty_other")
    assert not facts.is_virtual_parent("")
    assert facts.card_of("0000:42:00.0") == "0000:42:00.0"
    assert facts.card_of("mtty_mtty") == "mtty_mtty"
    card = VgpuFacts(opened(tmp_path / "b", CARD)[1]) if (tmp_path / "b").mkdir() is None else facts
    assert card.card_of("0000:65:00.5") == "0000:65:00.0"


@pytest.mark.parametrize(
    ("name", "found"),
    [("vgpu_card_0", True), ("my_driver_card", True), ("my_driver_card_0", False), ("vgpu_card", False)],
)
def test_virtual_parents_may_have_underscores_of_their_own(name: str, found: bool) -> None:
    folders = {"/sys/devices/virtual/vgpu": ("card_0",), "/sys/devices/virtual/my_driver": ("card",)}

    class Files:
        def list_dir(self, path: str) -> tuple[str, ...]:
            return folders.get(path, ())

    assert VgpuFacts(cast("HostFiles", Files())).is_virtual_parent(name) is found


@pytest.mark.parametrize("parent", ["pci_0000_65_00_1", "mtty_mtty"])
def test_libvirts_schema_accepts_what_is_defined(parent: str) -> None:
    schema = etree.RelaxNG(etree.parse("/usr/share/libvirt/schemas/nodedev.rng"))
    document = etree.fromstring(mdev_xml(UUID, parent, "nvidia-712"))
    # A document for libvirt has no name yet, which its schema doesn't know.
    name = etree.Element("name")
    name.text = "new"
    document.insert(0, name)
    assert schema.validate(document), schema.error_log

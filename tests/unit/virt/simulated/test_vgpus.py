"""A simulated card that is given away in parts: what is left of it, what it refuses, and what a restart of the host leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetbridge.errors import HypervisorError
from jetbridge.virt.nodedev import parse_node_device
from jetbridge.virt.simulated import SimulatedConnection, SimulatedHostFiles
from tests.unit.virt.fleets import LAB, domain, hostdev, opened

A, B = "instance-00000001", "instance-00000002"
CARD = """
devices:
  - {address: "65:00.0", vendor_id: 10de, product_id: 2235, driver: nvidia, pf: {vfs: 16},
     mdev_types: {nvidia-712: {available: 1, name: A40-12Q, max_instance: 4}, nvidia-558: {available: 1, max_instance: 12}}}
"""
WHOLE = """
devices:
  - {address: "3b:00.0", vendor_id: 10de, product_id: 1eb8, driver: nvidia,
     mdev_types: {nvidia-222: {available: 16}, nvidia-223: {available: 8}}}
"""
VENDOR = """
devices:
  - {address: "65:00.0", vendor_id: 10de, product_id: 26b9, driver: nvidia, pf: {vfs: 4},
     vgpu_types: {558: {name: NVIDIA L40S-4Q, max_instance: 2}, 55: NVIDIA L40S-1B}}
"""
VF = "/sys/bus/pci/devices/0000:65:00.{}/nvidia"


def mdev(parent: str, kind: str, number: int) -> str:
    return (
        f"<device><parent>{parent}</parent><capability type='mdev'><type id='{kind}'/>"
        f"<uuid>c0ffee00-0000-4000-8000-{number:012d}</uuid></capability></device>"
    )


def left(connection: SimulatedConnection, parent: str) -> dict[str, int]:
    nodes = {node.name: node for node in map(parse_node_device, connection.node_devices())}
    return {kind.id: kind.available for kind in nodes[parent].mdev_types}


def creatable(files: SimulatedHostFiles, number: int) -> list[str]:
    text = files.read_text(f"{VF.format(number)}/creatable_vgpu_types")
    assert text is not None
    return [line.split(" : ")[0] for line in text.splitlines()[1:]]


def test_f9_a_card_is_full_for_all_its_vfs(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, CARD)
    for number in range(1, 5):
        vf = f"pci_0000_65_00_{number}"
        assert left(connection, vf) == {"nvidia-712": 1, "nvidia-558": 1}
        connection.create_mdev(mdev(vf, "nvidia-712", number))
        assert left(connection, vf) == {"nvidia-712": 0, "nvidia-558": 0}
    assert left(connection, "pci_0000_65_00_5") == {"nvidia-712": 0, "nvidia-558": 1}
    with pytest.raises(HypervisorError, match=r"No available instances of nvidia-712 on 0000:65:00\.5"):
        connection.create_mdev(mdev("pci_0000_65_00_5", "nvidia-712", 5))
    folder = "/sys/class/mdev_bus/0000:65:00.5/mdev_supported_types/nvidia-712"
    assert files.read_text(f"{folder}/description") == "max_instance=4\n"
    assert files.read_text(f"{folder}/available_instances") == "0\n"
    assert files.read_text(f"{folder}/name") == "A40-12Q\n"


def test_a_function_carries_one_type_at_a_time(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, WHOLE)
    connection.create_mdev(mdev("pci_0000_3b_00_0", "nvidia-222", 1))
    assert left(connection, "pci_0000_3b_00_0") == {"nvidia-222": 15, "nvidia-223": 0}


def test_a_restart_of_the_host_leaves_what_is_defined(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, WHOLE)
    name = connection.create_mdev(mdev("pci_0000_3b_00_0", "nvidia-222", 1))
    uuid = "c0ffee00-0000-4000-8000-000000000001"
    taken = (
        f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{uuid}'/></source></hostdev>"
    )
    connection.define_domain(domain(A, extra=taken))
    connection.start_domain(A)
    connection.reboot_host()
    assert [info.state for info in connection.domains()] == ["shutoff"]
    connection.start_domain(A)
    connection.destroy_domain(A)
    with pytest.raises(HypervisorError, match="already active"):
        connection.start_mdev(name)


def test_an_mdev_that_does_not_start_with_its_host_has_no_path(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, WHOLE)
    name = connection.create_mdev(mdev("pci_0000_3b_00_0", "nvidia-222", 1))
    connection.stop_mdev(name)
    found = {node.name: node for node in map(parse_node_device, connection.node_devices())}
    assert (found[name].path, found[name].driver) == (None, None)
    assert found[name].mdev is not None
    assert left(connection, "pci_0000_3b_00_0") == {"nvidia-222": 16, "nvidia-223": 8}
    connection.start_mdev(name)
    assert left(connection, "pci_0000_3b_00_0") == {"nvidia-222": 15, "nvidia-223": 0}


def test_f22_a_vendors_type_is_set_on_a_vf(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, VENDOR)
    assert creatable(files, 1) == ["558", "55"]
    give = hostdev("0000:65:00.1", "no")
    connection.define_domain(domain(A, extra=give))
    with pytest.raises(HypervisorError, match="No such device"):
        connection.start_domain(A)
    with pytest.raises(HypervisorError, match="Input/output error"):
        files.write_text(f"{VF.format(1)}/current_vgpu_type", "5")
    files.write_text(f"{VF.format(1)}/current_vgpu_type", "558")
    assert creatable(files, 1) == []
    connection.start_domain(A)
    with pytest.raises(HypervisorError, match="busy"):
        files.write_text(f"{VF.format(1)}/current_vgpu_type", "0")
    connection.destroy_domain(A)
    with pytest.raises(HypervisorError, match="busy"):
        files.write_text(f"{VF.format(1)}/current_vgpu_type", "55")
    files.write_text(f"{VF.format(2)}/current_vgpu_type", "558")
    assert creatable(files, 3) == ["55"]
    files.write_text(f"{VF.format(1)}/current_vgpu_type", "0")
    assert creatable(files, 3) == ["558", "55"]


def test_virtual_parents_are_in_sysfs(tmp_path: Path) -> None:
    _, files = opened(tmp_path, f"nodedevs: {LAB}")
    assert files.list_dir("/sys/devices/virtual") == ("mtty",)
    assert files.list_dir("/sys/devices/virtual/mtty") == ("mtty",)
    assert files.list_dir("/sys/devices/virtual/mdpy") == ()
    assert set(files.list_dir("/sys/class/mdev_bus")) == {"mtty", "0000:42:00.0"}
    assert files.list_dir("/sys/class/mdev_bus/nothing") == ()
    assert files.read_text("/sys/class/mdev_bus/mtty/mdev_supported_types/mtty-2/device_api") == "vfio-pci\n"

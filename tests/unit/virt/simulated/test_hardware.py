"""Fleet hardware as node-device documents and sysfs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from lxml import etree

from jetbridge.config.fleet import templates
from jetbridge.errors import HypervisorError, InvalidFleet
from jetbridge.pci.device import DeviceType
from jetbridge.virt.nodedev import NodeDevice, PciFunction, parse_node_device
from tests.unit.virt.fleets import LAB, domain, opened

SCHEMA = Path("/usr/share/libvirt/schemas/nodedev.rng")
MDEVS = """
devices:
  - address: "3b:00.0"
    vendor_id: 10de
    product_id: 1eb8
    vpd: {card_serial_number: "S<1>"}
    mdev_types: {nvidia-222: {available: 16, name: "GRID T4-1B & co"}}
"""


def nodes(documents: Sequence[str]) -> dict[str, NodeDevice]:
    return {node.name: node for node in map(parse_node_device, documents)}


def functions(documents: Sequence[str]) -> dict[str, PciFunction]:
    return {node.pci.address: node.pci for node in map(parse_node_device, documents) if node.pci}


@pytest.mark.skipif(not SCHEMA.exists(), reason="libvirt's schemas are not installed")
@pytest.mark.parametrize("body", [f"hardware: [{', '.join(templates())}]", "vcpus: 1", MDEVS])
def test_documents_are_as_libvirt_prints_them(tmp_path: Path, body: str) -> None:
    connection, _ = opened(tmp_path, body)
    alone = [
        pci
        for pci in functions(connection.node_devices()).values()
        if len(pci.iommu_members) == 1 and not pci.is_bridge
    ]
    connection.define_domain(domain("instance-00000001", *(pci.address for pci in alone[:1])))
    connection.start_domain("instance-00000001")  # changes the driver in its document
    schema = etree.RelaxNG(etree.parse(str(SCHEMA)))
    for document in connection.node_devices():
        assert schema.validate(etree.fromstring(document)), (document, schema.error_log)


@pytest.mark.skipif(not SCHEMA.exists(), reason="libvirt's schemas are not installed")
@pytest.mark.parametrize("body", ["hardware: [h100x8]", "vcpus: 4"])
def test_capabilities_are_as_libvirt_prints_them(tmp_path: Path, body: str) -> None:
    schema = etree.RelaxNG(etree.parse(str(SCHEMA.with_name("capability.rng"))))
    document = opened(tmp_path, body)[0].capabilities()
    assert schema.validate(etree.fromstring(document)), schema.error_log


def test_the_lab_works_as_it_is(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, f"nodedevs: {LAB}")
    documents = connection.node_devices()
    given = {path.read_text() for path in LAB.glob("*.xml") if "capabilities" not in path.name}
    assert set(documents) == given
    assert connection.capabilities() == (LAB / "capabilities.xml").read_text()
    assert connection.domain_capabilities() == (LAB / "domcapabilities.xml").read_text()
    # sysfs agrees with what the kernel of that machine said, function by function.
    for line in (LAB / "sysfs.txt").read_text().splitlines():
        address, *facts = line.removeprefix("== ").split(" ")
        told = dict(fact.split("=", 1) for fact in facts if "=" in fact)
        folder = f"/sys/bus/pci/devices/{address}"

        def text(name: str, folder: str = folder) -> str:
            return (files.read_text(f"{folder}/{name}") or "").strip()

        def link(name: str, folder: str = folder) -> str:
            return (files.read_link(f"{folder}/{name}") or "").rpartition("/")[2]

        assert {
            "vendor": text("vendor"),
            "device": text("device"),
            "class": text("class"),
            "numa": text("numa_node"),
            "group": link("iommu_group"),
            "driver": link("driver"),
            "totalvfs": text("sriov_totalvfs"),
            "numvfs": text("sriov_numvfs"),
            "physfn": link("physfn"),
        } == {name: value for name, value in told.items() if name != "reset"}


def test_a_vf_has_links_both_ways(tmp_path: Path) -> None:
    _, files = opened(tmp_path, "hardware: [connectx6]")
    pf = "/sys/bus/pci/devices/0000:a1:00.0"
    assert files.read_link(f"{pf}/virtfn3") == "../0000:a1:00.5"
    assert files.read_link("/sys/bus/pci/devices/0000:a1:00.5/physfn") == "../0000:a1:00.0"
    assert files.list_dir("/sys/bus/pci/devices/0000:a1:00.5/physfn/net") == ("enp161s0f0",)
    assert files.read_text("/sys/bus/pci/devices/0000:a1:00.5/physfn/net/enp161s0f0/address") == "0c:42:a1:6e:20:10\n"
    assert files.read_text("/sys/class/net/enp161s0f0/device/vendor") == "0x15b3\n"
    assert files.list_dir("/sys/kernel/iommu_groups/0/devices") == ("0000:a1:00.0",)
    assert "0000:a1:00.0" in files.list_dir("/sys/bus/pci/drivers/mlx5_core")


@pytest.mark.parametrize("path", ["", "/", "/nowhere", "/sys/bus/pci/devices/0000:ff:00.0/vendor", "//sys//..", "/sys/bus/pci/devices/x"])  # fmt: skip
def test_paths_that_are_not_there(tmp_path: Path, path: str) -> None:
    _, files = opened(tmp_path, "hardware: [t4x4]")
    assert files.read_text(path) is None
    assert files.read_link(path) is None
    assert path in {"", "/"} or files.list_dir(path) == ()
    with pytest.raises(HypervisorError):
        files.write_text(path, "1")


def test_a_large_bar_shows_in_resource(tmp_path: Path) -> None:
    _, files = opened(tmp_path, "hardware: [h100x8]")
    lines = (files.read_text("/sys/bus/pci/devices/0000:1b:00.0/resource") or "").splitlines()
    sizes = [int(end, 16) - int(start, 16) + 1 for start, end, _ in (line.split() for line in lines) if int(end, 16)]
    assert max(sizes) == 131072 * 2**20


def test_vf_addresses_carry(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, "hardware: [a100x2-vf]")
    found = functions(connection.node_devices())
    vfs = found["0000:21:00.0"].virt_functions
    assert vfs is not None
    assert (vfs[0], vfs[6], vfs[7], vfs[15]) == ("0000:21:00.1", "0000:21:00.7", "0000:21:01.0", "0000:21:02.0")
    assert {found[vf].dev_type for vf in vfs} == {DeviceType.VF}
    assert {found[vf].parent_addr for vf in vfs} == {"0000:21:00.0"}
    assert len({found[vf].iommu_group for vf in vfs}) == 16


def test_a_function_without_a_group_gets_one_of_its_own(tmp_path: Path) -> None:
    body = """
    devices:
      - {address: "01:00.0", vendor_id: 10de, product_id: 1eb8}
      - {address: "02:00.0", vendor_id: 10de, product_id: 1eb8, iommu_group: 0}
      - {address: "03:00.0", vendor_id: 10de, product_id: 1eb8}
      - {address: "03:00.1", vendor_id: 10de, product_id: 1eb8, iommu_group: 0}
    """
    found = functions(opened(tmp_path, body)[0].node_devices())
    assert {address: pci.iommu_members for address, pci in found.items()} == {
        "0000:01:00.0": ("0000:01:00.0",),
        "0000:02:00.0": ("0000:02:00.0", "0000:03:00.1"),
        "0000:03:00.0": ("0000:03:00.0",),
        "0000:03:00.1": ("0000:02:00.0", "0000:03:00.1"),
    }


def test_switches_stand_above_their_devices(tmp_path: Path) -> None:
    found = nodes(opened(tmp_path, "hardware: [h100x8]")[0].node_devices())
    gpu = found["pci_0000_43_00_0"]
    assert gpu.parent == "pci_0000_16_00_0"
    assert gpu.path == "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:43:00.0"
    switch = found["pci_0000_16_00_0"].pci
    assert switch is not None
    assert switch.is_bridge
    assert len({node.parent for node in found.values() if node.pci and node.pci.product_id == "2330"}) == 4


def test_f22_vendor_vgpu_types_are_files_of_each_vf(tmp_path: Path) -> None:
    body = """
    devices:
      - address: "34:00.0"
        vendor_id: 10de
        product_id: 26b9
        vgpu_types: {1155: NVIDIA L40S-4Q, 1158: NVIDIA L40S-8Q}
        pf: {vfs: 2}
    """
    connection, files = opened(tmp_path, body)
    vf = "/sys/bus/pci/devices/0000:34:00.1/nvidia"
    assert (
        files.read_text(f"{vf}/creatable_vgpu_types")
        == "ID : vGPU Name\n1155 : NVIDIA L40S-4Q\n1158 : NVIDIA L40S-8Q\n"
    )
    assert files.read_text(f"{vf}/current_vgpu_type") == "0\n"
    assert files.list_dir("/sys/bus/pci/devices/0000:34:00.0/nvidia") == ()
    assert not any(node.mdev_types for node in nodes(connection.node_devices()).values())
    files.write_text(f"{vf}/current_vgpu_type", "1155")
    assert opened(tmp_path, body)[1].read_text(f"{vf}/current_vgpu_type") == "1155\n"
    assert files.read_text("/sys/bus/pci/devices/0000:34:00.2/nvidia/current_vgpu_type") == "0\n"


def test_hosts_without_given_macs_have_their_own(tmp_path: Path) -> None:
    body = "devices: [{address: '81:00.0', vendor_id: 8086, product_id: 1572, interface: ens1}]"
    connection, files = opened(tmp_path, body)
    mac = (files.read_text("/sys/class/net/ens1/address") or "").strip()
    assert mac.startswith("02:")
    assert any(node.net and node.net.mac == mac for node in nodes(connection.node_devices()).values())


def test_real_documents_and_devices_together(tmp_path: Path) -> None:
    body = f"nodedevs: {LAB}\ndevices: [{{address: '3b:00.0', vendor_id: 10de, product_id: 1eb8}}]"
    found = functions(opened(tmp_path, body)[0].node_devices())
    groups = {pci.iommu_group for address, pci in found.items() if address != "0000:3b:00.0"}
    assert found["0000:3b:00.0"].iommu_group not in groups


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("pci.xml", "<device><name>x</name><capability type='pci'/></device>", "pci.xml"),
        ("broken.xml", "<device>", "broken.xml"),
        ("copy.xml", (LAB / "pci_0000_41_00_0.xml").read_text(), "copy.xml"),
    ],
)
def test_documents_that_can_not_be_used_are_named(tmp_path: Path, name: str, content: str, words: str) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.xml").write_text((LAB / "pci_0000_41_00_0.xml").read_text())
    (folder / name).write_text(content)
    (folder / "notes.xml").write_text("<notes/>")
    with pytest.raises(InvalidFleet, match=words):
        opened(tmp_path, "nodedevs: documents")


def test_an_address_in_devices_and_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFleet, match=r"0000:41:00\.0 is in devices and in the documents"):
        opened(tmp_path, f"nodedevs: {LAB}\ndevices: [{{address: '41:00.0', vendor_id: 10de, product_id: 1eb8}}]")


def test_documents_without_the_host_itself_are_completed(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.xml").write_text((LAB / "pci_0000_41_00_0.xml").read_text())
    assert set(nodes(opened(tmp_path, "nodedevs: documents")[0].node_devices())) == {"computer", "pci_0000_41_00_0"}

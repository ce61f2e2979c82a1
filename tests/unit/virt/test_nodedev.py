"""Node-device documents, the host report, and telling a partial probe."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetbridge.errors import InvalidNodeDevice, PciDeviceNotFoundById, ProbeFailed
from jetbridge.pci.device import DeviceType
from jetbridge.virt.children import PCI_DEVICES, paths_of
from jetbridge.virt.nodedev import NodeDevice, check_complete, host_report, parse_node_device
from tests.unit.virt.fleets import LAB, opened

FIRST_LINE = {
    "dev_id": "pci_0000_83_10_2",
    "address": "0000:83:10.2",
    "vendor_id": "8086",
    "product_id": "10ca",
    "numa_node": 1,
    "label": "label_8086_10ca",
    "dev_type": "type-VF",
    "parent_addr": "0000:83:00.0",
    "parent_ifname": "enp131s0",
    "capabilities": {
        "network": ["rx", "tx", "sg", "tso", "gso", "gro", "rxvlan", "txvlan", "txudptnl"],
        "sriov": {"pf_mac_address": "52:54:00:00:00:05", "vf_num": 1},
    },
    "serial": None,
    "driver": "igbvf",
    "iommu_group": "22",
    "iommu_members": ["0000:83:10.2"],
    "class": "0x020000",
    "pcie_path": "0000:80:02.0",
}


class NoFiles:
    """A host whose sysfs can't be read."""

    def __init__(self, texts: dict[str, str] | None = None, folders: dict[str, list[str]] | None = None) -> None:
        self.texts, self.folders = texts or {}, folders or {}

    def read_text(self, path: str) -> str | None:
        return self.texts.get(path)

    def list_dir(self, path: str) -> list[str]:
        return self.folders.get(path, [])

    def read_link(self, path: str) -> str | None:
        return None

    def write_text(self, path: str, text: str) -> None:
        raise AssertionError("nothing is written")


def lab() -> list[str]:
    return [
        text for path in sorted(LAB.glob("*.xml")) if "capabilities" not in path.name for text in [path.read_text()]
    ]


def lab_document(name: str) -> NodeDevice:
    return parse_node_device((LAB / f"{name}.xml").read_text())


def test_a_real_physical_function() -> None:
    pci = lab_document("pci_0000_82_00_0").pci
    assert pci is not None
    assert (pci.address, pci.vendor_id, pci.product_id, pci.dev_type) == ("0000:82:00.0", "1b36", "0010", DeviceType.PF)
    assert pci.virt_functions == ("0000:82:00.1", "0000:82:00.2")
    assert (pci.max_vfs, pci.numa_node, pci.iommu_group, pci.class_code) == (4, 1, 13, "0x010802")


def test_decimal_in_the_capability_and_hexadecimal_in_addresses() -> None:
    node = lab_document("pci_0000_83_10_2")
    assert node.pci is not None
    assert (node.pci.address, node.pci.parent_addr, node.driver) == ("0000:83:10.2", "0000:83:00.0", "igbvf")


def test_a_real_mdev_parent_and_an_mdev() -> None:
    parent = lab_document("pci_0000_42_00_0")
    assert [(kind.id, kind.available) for kind in parent.mdev_types] == [("labvgpu-2", 11), ("labvgpu-1", 23)]
    assert [kind.id for kind in lab_document("mtty_mtty").mdev_types] == ["mtty-1", "mtty-2"]
    mdev = lab_document("mdev_aaaaaaaa_2222_3333_4444_555555555501_0000_42_00_0").mdev
    assert mdev is not None
    assert (mdev.type, mdev.parent_addr, mdev.iommu_group) == ("labvgpu-1", "0000:42:00.0", 24)


@pytest.mark.parametrize("suffix", ["", "_0000_3b_00_0", "_mtty"])
def test_the_uuid_of_an_mdev_stands_in_its_name_where_the_document_has_none(suffix: str) -> None:
    """libvirt before 7.3 has no <uuid>; from 7.7 on the name ends with the parent's address."""
    name = f"mdev_4b20d080_1b54_4048_85b3_a6a62d165c01{suffix}"
    capability = "<capability type='mdev'><type id='t'/><iommuGroup number='7'/></capability>"
    mdev = parse_node_device(f"<device><name>{name}</name><parent>pci_0000_3b_00_0</parent>{capability}</device>").mdev
    assert mdev is not None
    assert mdev.uuid == "4b20d080-1b54-4048-85b3-a6a62d165c01"


def test_a_shared_iommu_group() -> None:
    pci = lab_document("pci_0000_01_01_0").pci
    assert pci is not None
    assert set(pci.iommu_members) == {"0000:01:01.0", "0000:00:07.0", "0000:01:02.0"}
    assert pci.numa_node is None


def pci_document(inside: str = "", *, domain: str = "0", name: str = "pci_0000_3b_00_0") -> str:
    return (
        f"<device><name>{name}</name><capability type='pci'><domain>{domain}</domain><bus>59</bus><slot>0</slot>"
        f"<function>0</function><product id='0x2330'/><vendor id='0x10de'/>{inside}</capability></device>"
    )


@pytest.mark.parametrize(
    ("inside", "dev_type", "parent"),
    [
        ("", "type-PCI", None),
        ("<capability type='virt_functions' maxCount='16'/>", "type-PF", None),
        ("<capability type='phys_function'/>", "type-PCI", None),
        ("<capability type='phys_function'/><capability type='virt_functions'/>", "type-PF", None),
        (
            "<capability type='phys_function'><address domain='0x0000' bus='0x3a' slot='0x1f' function='0x7'/></capability>"
            "<capability type='virt_functions'/>",
            "type-VF",
            "0000:3a:1f.7",
        ),
    ],
)
def test_the_first_decisive_capability_says_the_type(inside: str, dev_type: str, parent: str | None) -> None:
    pci = parse_node_device(pci_document(inside)).pci
    assert pci is not None
    assert (pci.dev_type, pci.parent_addr) == (dev_type, parent)


def test_a_domain_of_more_than_four_digits_is_reported_as_it_is() -> None:
    (row,) = host_report([pci_document(domain="65536", name="pci_10000_3b_00_0")], NoFiles())
    assert row["address"] == "10000:3b:00.0"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "not well-formed"),
        ("<device>", "not well-formed"),
        ("<devices/>", "its root is <devices>"),
        ("<device/>", "no <name>"),
        (pci_document(domain="0x10"), "pci_0000_3b_00_0: <domain> is '0x10'"),
        (pci_document(domain="-1"), "'-1'"),
        (pci_document("<iommuGroup number='x'/>"), "number of <iommuGroup>"),
        (pci_document("<iommuGroup number='1'><address bus='zz'/></iommuGroup>"), "domain of <address>"),
        (pci_document("<capability type='mdev_types'><type id='a'/></capability>"), "availableInstances"),
        (pci_document().replace("0x10de", "NVIDIA"), "id of <vendor> is 'NVIDIA'"),
        (pci_document().replace("<slot>0", "<slot>32"), "out of range"),
        (
            "<!DOCTYPE device [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><device><name>&x;</name></device>",
            "document type",
        ),
    ],
)
def test_malformed_documents_are_named(document: str, words: str) -> None:
    with pytest.raises(InvalidNodeDevice, match="Node device document") as caught:
        parse_node_device(document)
    assert words in str(caught.value)
    assert isinstance(caught.value, ProbeFailed)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damaged_document_is_read_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(lab()))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    damaged = text[:start] + data.draw(st.text(max_size=10)) + text[end:]
    try:
        said = f"Node device document {parse_node_device(damaged).name}"
    except InvalidNodeDevice as error:
        said = str(error)
    assert said.startswith("Node device document ")


def test_the_report_of_the_lab(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, f"nodedevs: {LAB}")
    rows = {row["address"]: row for row in host_report(connection.node_devices(), files)}
    assert len(rows) == len(list(LAB.glob("pci_*.xml")))
    assert rows["0000:83:10.2"] == FIRST_LINE
    assert rows["0000:83:00.0"]["mac_address"] == "52:54:00:00:00:05"
    assert rows["0000:83:00.0"]["dev_type"] == "type-PF"
    assert "mac_address" not in rows["0000:82:00.0"]  # an NVMe PF has no interface
    assert "capabilities" not in rows["0000:82:00.1"]
    assert "parent_ifname" not in rows["0000:82:00.1"]
    assert rows["0000:82:00.1"]["parent_addr"] == "0000:82:00.0"
    assert rows["0000:00:06.0"]["numa_node"] is None
    # The lab's vDPA device is no child of any function.
    assert not [row for row in rows.values() if row["dev_type"] == "vdpa"]


def test_a_switch_is_the_nearest_bridge_with_another_card_below(tmp_path: Path) -> None:
    """Functions of one slot are one card, and so are a PF and its VFs; a root port has one card and is no switch."""
    connection, files = opened(
        tmp_path,
        """
        devices:
          - {address: "0000:41:00.0", vendor_id: 10de, product_id: 1eb8, switch: "0000:40:00.0"}
          - {address: "0000:41:00.1", vendor_id: 10de, product_id: 10f8, switch: "0000:40:00.0"}
          - {address: "0000:42:00.0", vendor_id: 10de, product_id: 1eb8, switch: "0000:40:00.0"}
          - {address: "0000:81:00.0", vendor_id: 10de, product_id: 1eb8, switch: "0000:80:00.0"}
          - {address: "0000:81:00.1", vendor_id: 10de, product_id: 10f8, switch: "0000:80:00.0"}
          - address: "0000:a1:00.0"
            vendor_id: 15b3
            product_id: 101b
            switch: "0000:a0:00.0"
            pf: {vfs: 2, vf_product_id: 101c}
        """,
    )
    found = {row["address"]: row.get("switch") for row in host_report(connection.node_devices(), files)}
    assert {address: found[address] for address in found if address[5:7] in ("41", "42", "81", "a1")} == {
        "0000:41:00.0": "0000:40:00.0",
        "0000:41:00.1": "0000:40:00.0",
        "0000:42:00.0": "0000:40:00.0",
        **dict.fromkeys(("0000:81:00.0", "0000:81:00.1", "0000:a1:00.0", "0000:a1:00.1", "0000:a1:00.2")),
    }


def test_vpd_vdpa_and_fabric(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, "hardware: [connectx6, h100x8]")
    rows = {row["address"]: row for row in host_report(connection.node_devices(), files)}
    port, vf, vdpa = rows["0000:a1:00.0"], rows["0000:a1:00.3"], rows["0000:a1:01.2"]
    assert (port["mac_address"], port["serial"]) == ("0c:42:a1:6e:20:10", "MT2124X09876")
    assert vf["capabilities"]["vpd"] == {"card_serial_number": "MT2124X09876"}  # the parent's
    assert vf["capabilities"]["sriov"] == {"pf_mac_address": "0c:42:a1:6e:20:10", "vf_num": 1}
    assert vf["parent_ifname"] == "enp161s0f0"
    assert (vdpa["dev_type"], vdpa["parent_addr"]) == ("vdpa", "0000:a1:00.1")
    assert "capabilities" not in vdpa
    gpu = rows["0000:52:00.0"]
    assert (gpu["dev_type"], gpu["fabric"], gpu["pcie_path"]) == ("type-PF", "nvlink0", "0000:4d:01.0/0000:4e:00.0")


def test_a_vdpa_device_behind_an_auxiliary_device_belongs_to_the_function_on_its_path() -> None:
    vf = pci_document(
        "<capability type='phys_function'><address domain='0x0000' bus='0x3a' slot='0x00' function='0x0'/></capability>"
    )
    pf = pci_document("<capability type='virt_functions'/>", name="pci_0000_3a_00_0").replace("<bus>59", "<bus>58")
    vdpa = (
        "<device><name>vdpa_vdpa0</name><path>/sys/devices/pci0000:3a/0000:3b:00.0/mlx5_core.sf.4/vdpa0</path>"
        "<capability type='vdpa'><chardev>/dev/vhost-vdpa-0</chardev></capability></device>"
    )
    assert [row["dev_type"] for row in host_report([vf, pf, vdpa], NoFiles())] == ["vdpa", "type-PF"]


@pytest.mark.parametrize(
    ("in_the_folder", "dev_type"), [(["vdpa0", "net"], "vdpa"), (["net"], "type-VF"), (["vdpa1"], "type-VF")]
)
def test_a_vdpa_device_without_its_pci_parent_is_known_by_the_folder_of_its_vf(
    in_the_folder: list[str], dev_type: str
) -> None:
    """libvirt lists it so where the kernel hangs vDPA devices elsewhere, as in the lab."""
    vf = pci_document(
        "<capability type='phys_function'><address domain='0x0000' bus='0x3a' slot='0x00' function='0x0'/></capability>"
    )
    pf = pci_document("<capability type='virt_functions'/>", name="pci_0000_3a_00_0").replace("<bus>59", "<bus>58")
    vdpa = (LAB / "vdpa_vdpa0.xml").read_text().replace("<parent>computer</parent>", "")
    files = NoFiles(folders={f"{PCI_DEVICES}/0000:3b:00.0": in_the_folder})
    assert [row["dev_type"] for row in host_report([vf, pf, vdpa], files)] == [dev_type, "type-PF"]
    nodes = [parse_node_device(text) for text in (vf, pf, vdpa)]
    assert paths_of(nodes, files) == ({"/dev/vhost-vdpa-0": "0000:3b:00.0"} if dev_type == "vdpa" else {})


def test_a_vf_that_its_pf_does_not_know() -> None:
    vf = pci_document(
        "<capability type='phys_function'><address domain='0x0000' bus='0x3a' slot='0x00' function='0x0'/></capability>"
    )
    pf = pci_document("<capability type='virt_functions'/>", name="pci_0000_3a_00_0").replace("<bus>59", "<bus>58")
    net = "/sys/bus/pci/devices/0000:3a:00.0/net"
    files = NoFiles({f"{net}/eth0/address": "52:54:00:00:00:01\n"}, {net: ["eth0"]})
    with pytest.raises(PciDeviceNotFoundById, match=r"0000:3b:00\.0"):
        host_report([vf, pf], files)


@pytest.mark.parametrize("mode", ["raise", "empty", "half"])
@pytest.mark.parametrize(
    "hardware",
    [
        "hardware: [t4x4]",
        "devices: [{address: '0000:3b:00.0', vendor_id: 10de, product_id: 1eb8}]",
        "hardware: [connectx6]",
        f"nodedevs: {LAB}",
    ],
)
def test_f24_a_broken_probe_is_never_taken_for_devices_that_left(tmp_path: Path, hardware: str, mode: str) -> None:
    connection, files = opened(tmp_path, f"{hardware}\nsimulate: {{discovery: {mode}}}")
    with pytest.raises(ProbeFailed, match="Device discovery on node1 failed"):
        host_report(connection.node_devices(), files, host="node1")


def test_f24_every_single_missing_function_is_noticed(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, "hardware: [t4x4]")
    documents = list(connection.node_devices())
    check_complete(documents, files)
    for document in documents:
        if parse_node_device(document).pci:
            with pytest.raises(ProbeFailed, match="libvirt did not return"):
                check_complete([other for other in documents if other is not document], files)


def test_f24_without_sysfs_documents_have_to_be_closed() -> None:
    check_complete(lab())
    for missing in ("pci_0000_82_00_1", "pci_0000_82_00_0", "pci_0000_01_02_0", "pci_0000_80_02_0", "computer"):
        rest = [document for document in lab() if f"<name>{missing}</name>" not in document]
        assert len(rest) == len(lab()) - 1
        with pytest.raises(ProbeFailed, match="not returned"):
            check_complete(rest)


def test_a_device_that_really_left_is_no_failed_probe(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, "hardware: [t4x4]")
    (tmp_path / "later").mkdir()
    later, _ = opened(tmp_path / "later", "vcpus: 4")
    connection.apply_hardware(later._machine.spec)
    assert host_report(connection.node_devices(), files) == []

"""Documents made from sysfs say what libvirt's say: both are read by the same parser and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jetbridge.config.fleet import load_fleet, templates
from jetbridge.virt.libvirt.files import LocalHostFiles
from jetbridge.virt.nodedev import parse_node_device
from jetbridge.virt.scan import scan
from jetbridge.virt.simulated import open_fleet_host
from jetbridge.virt.sysfs_documents import pci_documents


@pytest.mark.parametrize("template", sorted(templates()))
def test_sysfs_and_libvirt_tell_the_same_of_every_template(tmp_path: Path, template: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(f"hosts: [{{name: h, hardware: [{template}]}}]")
    connection, files = open_fleet_host(load_fleet(path).hosts[0], tmp_path)
    theirs = {
        device.pci.address: device
        for document in connection.node_devices()
        if (device := parse_node_device(document)).pci
    }
    ours = {
        device.pci.address: device for document in pci_documents(files) if (device := parse_node_device(document)).pci
    }
    assert ours.keys() == theirs.keys()
    for address, device in ours.items():
        expected = theirs[address]
        assert device.name == expected.name
        assert device.driver == expected.driver
        assert device.pci is not None
        assert expected.pci is not None
        # Names come from the machine's list; vital product data and bridges' capabilities aren't in sysfs as text.
        assert replace(device.pci, vendor=None, product=None) == replace(
            expected.pci, vendor=None, product=None, card_serial_number=None, mdev_types=(), is_bridge=False
        )


def test_names_come_from_the_machines_list(tmp_path: Path) -> None:
    device = tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    device.mkdir(parents=True)
    for name, text in {"vendor": "0x10de", "device": "0x1eb8", "class": "0x030200", "numa_node": "-1"}.items():
        (device / name).write_text(text + "\n")
    links = tmp_path / "sys/bus/pci/devices"
    links.mkdir(parents=True)
    (links / "0000:01:00.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0")
    share = tmp_path / "usr/share/misc"
    share.mkdir(parents=True)
    (share / "pci.ids").write_text(
        "# list\n10dd  Not this\n\t1eb8  Nor this\n10de  NVIDIA Corporation\n\t1eb8  TU104GL [Tesla T4]\n"
        "\t\t10de 12a2  T4 board\nC 03  Display controller\n\t1eb8  No device\n"
    )
    (document,) = pci_documents(LocalHostFiles(tmp_path))
    parsed = parse_node_device(document)
    assert parsed.pci is not None
    assert (parsed.pci.vendor, parsed.pci.product) == ("NVIDIA Corporation", "TU104GL [Tesla T4]")
    assert (parsed.pci.numa_node, parsed.pci.iommu_group, parsed.driver) == (None, None, None)
    assert parsed.parent == "pci_0000_00_01_0"
    assert parsed.path == "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"


def test_a_machine_without_pci_has_no_documents(tmp_path: Path) -> None:
    assert pci_documents(LocalHostFiles(tmp_path)) == []


def test_devices_that_the_kernel_half_describes_do_not_stop_the_scan(tmp_path: Path) -> None:
    links = tmp_path / "sys/bus/pci/devices"
    for entry in ("0000:01:00.0", "10000:02:00.0", "not-an-address"):
        (links / entry).mkdir(parents=True)
    (links / "0000:01:00.0" / "vendor").write_text("garbage")
    files = LocalHostFiles(tmp_path)
    found = [parse_node_device(document).pci for document in pci_documents(files)]
    assert [function.address for function in found if function] == ["0000:01:00.0", "10000:02:00.0"]
    assert [function.vendor_id for function in found if function] == ["0000", "0000"]


def test_this_machine_can_be_scanned() -> None:
    files = LocalHostFiles()
    documents = pci_documents(files)
    assert len(documents) == len(files.list_dir("/sys/bus/pci/devices"))
    if documents:
        assert len(scan(documents, files)) == len(documents)

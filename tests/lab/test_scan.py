"""``jetbridge scan`` against the kernel and libvirt: every function, not only those configured."""

from __future__ import annotations

import json
import re
from typing import Any

from lxml import etree

from lab.hardware import ALL
from lab.machine import Machine
from tests.lab.cloud import Cloud
from tests.lab.conftest import Scenario


def test_scan_agrees_with_sysfs_and_libvirt(cloud: Cloud, scenario: Scenario) -> None:
    """scan: ids, driver, group, members and node of every function as sysfs and nodedev-dumpxml have them."""
    scanned = {row["address"]: row for row in json.loads(cloud.jetbridge("scan", "--host", "l1", "--json"))}
    scenario.device = f"{len(scanned)} functions"
    assert {address: _facts(row) for address, row in scanned.items()} == by_sysfs(cloud.machine)
    libvirt = by_libvirt(cloud.machine)
    assert {address: (row["vendor_id"], row["product_id"], row["numa_node"]) for address, row in scanned.items()} == {
        address: document[:3] for address, document in libvirt.items()
    }
    for address, (*_, driver, members) in libvirt.items():
        assert scanned[address]["driver"] == driver
        others = {member["address"] for member in scanned[address]["group_members"]}
        assert others == members - {address}
    for device in ALL:
        row = scanned[device.address]
        assert (f"{row['vendor_id']}:{row['product_id']}", row["numa_node"]) == (device.ids, device.node)
    scenario.seen.append("no guest: scan, sysfs and libvirt agree")


def _facts(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["vendor_id"], row["product_id"], row["numa_node"], row["iommu_group"], row["driver"])


def by_sysfs(machine: Machine) -> dict[str, tuple[Any, ...]]:
    output = machine.run(
        "cd /sys/bus/pci/devices; for a in *; do read v <$a/vendor; read d <$a/device; read n <$a/numa_node;"
        " echo $a $v $d $n $(readlink $a/iommu_group || echo -) $(readlink $a/driver || echo -); done",
    )
    found: dict[str, tuple[Any, ...]] = {}
    for line in output.splitlines():
        address, vendor, product, node, group, driver = line.split()
        found[address] = (
            vendor.removeprefix("0x"),
            product.removeprefix("0x"),
            None if int(node) < 0 else int(node),
            None if group == "-" else group.rsplit("/", 1)[-1],
            None if driver == "-" else driver.rsplit("/", 1)[-1],
        )
    return found


def by_libvirt(machine: Machine) -> dict[str, tuple[Any, ...]]:
    # One virsh for all: each new process costs seconds in an emulator.
    names = machine.run("virsh -q nodedev-list --cap pci").split()
    output = machine.run(f"virsh -q '{'; '.join(f'nodedev-dumpxml {name}' for name in names)}'")
    found = {}
    for text in re.findall(r"<device>.*?</device>", output, re.DOTALL):
        device = etree.fromstring(text)
        pci = device.find("capability[@type='pci']")
        assert pci is not None
        node = pci.find("numa")
        driver = device.findtext("driver/name")
        members = {_address(member) for member in pci.findall("iommuGroup/address")}
        parts = [int(str(pci.findtext(name))) for name in ("domain", "bus", "slot", "function")]
        found["{:04x}:{:02x}:{:02x}.{:x}".format(*parts)] = (
            str(pci.find("vendor").get("id")).removeprefix("0x"),  # type: ignore[union-attr]
            str(pci.find("product").get("id")).removeprefix("0x"),  # type: ignore[union-attr]
            None if node is None else int(str(node.get("node"))),
            driver,
            members,
        )
    return found


def _address(element: Any) -> str:
    parts = [int(element.get(name), 16) for name in ("domain", "bus", "slot", "function")]
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*parts)

"""PCI node-device documents made from sysfs, as libvirt would write them: for machines where no libvirt runs.

https://libvirt.org/formatnode.html, https://docs.kernel.org/PCI/sysfs-pci.html, the kernel's ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lxml import etree

from jetbridge.virt.connection import HostFiles

DEVICES = "/sys/bus/pci/devices"
PCI_IDS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
"""Where distributions keep the names (Debian: package pci.ids); they do without, too."""

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


@dataclass(frozen=True)
class PciNames:
    vendors: Mapping[str, str] = field(default_factory=dict)
    products: Mapping[tuple[str, str], str] = field(default_factory=dict)


def pci_documents(files: HostFiles) -> list[str]:
    """One document for each PCI function the kernel lists, in order of address."""
    addresses = [entry for entry in sorted(files.list_dir(DEVICES)) if _ADDRESS.fullmatch(entry)]
    ids = {(_id(files, address, "vendor"), _id(files, address, "device")) for address in addresses}
    names = read_names(files, ids)
    return [_document(files, address, names) for address in addresses]


def read_names(files: HostFiles, wanted: Collection[tuple[str, str]]) -> PciNames:
    """The names of the given (vendor, product) pairs, as far as the machine's list knows them."""
    text = next((found for path in PCI_IDS if (found := files.read_text(path))), "")
    vendors: dict[str, str] = {}
    products: dict[tuple[str, str], str] = {}
    wanted_vendors = {vendor for vendor, _ in wanted}
    vendor: str | None = None
    for line in text.splitlines():
        if line.startswith("C "):  # classes follow: no more vendors
            break
        if not line or line.startswith(("#", "\t\t")):
            continue
        number, _, name = line.strip().partition("  ")
        if not line.startswith("\t"):
            vendor = number if number in wanted_vendors else None
            if vendor:
                vendors[vendor] = name
        elif vendor and (vendor, number) in wanted:
            products[vendor, number] = name
    return PciNames(vendors, products)


def _document(files: HostFiles, address: str, names: PciNames) -> str:
    folder = f"{DEVICES}/{address}"
    root = etree.Element("device")
    _text(root, "name", _name(address))
    path = (files.read_link(folder) or "").lstrip("./")
    if path:
        _text(root, "path", f"/sys/{path}")
    above = [part for part in path.split("/")[:-1] if _ADDRESS.fullmatch(part)]
    # Functions on a root bus hang on the computer itself in libvirt's tree, which only makes sense with its document.
    if above:
        _text(root, "parent", _name(above[-1]))
    if driver := _last(files.read_link(f"{folder}/driver")):
        _text(etree.SubElement(root, "driver"), "name", driver)
    capability = etree.SubElement(root, "capability", type="pci")
    _text(capability, "class", (files.read_text(f"{folder}/class") or "0x000000").strip())
    for name, part in zip(("domain", "bus", "slot", "function"), _numbers(address), strict=True):
        _text(capability, name, str(part))
    vendor, product = _id(files, address, "vendor"), _id(files, address, "device")
    etree.SubElement(capability, "product", id=f"0x{product}").text = names.products.get((vendor, product))
    etree.SubElement(capability, "vendor", id=f"0x{vendor}").text = names.vendors.get(vendor)
    _sriov(files, folder, capability)
    group = _last(files.read_link(f"{folder}/iommu_group"))
    if group:
        element = etree.SubElement(capability, "iommuGroup", number=group)
        for member in files.list_dir(f"/sys/kernel/iommu_groups/{group}/devices"):
            _address(element, member)
    node = (files.read_text(f"{folder}/numa_node") or "-1").strip()
    if not node.startswith("-"):
        etree.SubElement(capability, "numa", node=node)
    return etree.tostring(root, encoding="unicode", pretty_print=True)


def _sriov(files: HostFiles, folder: str, capability: etree._Element) -> None:
    if physical := _last(files.read_link(f"{folder}/physfn")):
        _address(etree.SubElement(capability, "capability", type="phys_function"), physical)
    total = (files.read_text(f"{folder}/sriov_totalvfs") or "0").strip()
    if total.isdecimal() and int(total) > 0:
        functions = etree.SubElement(capability, "capability", type="virt_functions", maxCount=total)
        links = [entry for entry in files.list_dir(folder) if re.fullmatch(r"virtfn[0-9]+", entry)]
        for link in sorted(links, key=lambda entry: int(entry.removeprefix("virtfn"))):
            if virtual := _last(files.read_link(f"{folder}/{link}")):
                _address(functions, virtual)


def _id(files: HostFiles, address: str, which: str) -> str:
    text = (files.read_text(f"{DEVICES}/{address}/{which}") or "").strip().lower().removeprefix("0x")
    return text if re.fullmatch(r"[0-9a-f]{4}", text) else "0000"


def _numbers(address: str) -> tuple[int, ...]:
    match = _ADDRESS.fullmatch(address)
    assert match is not None
    return tuple(int(part, 16) for part in match.groups())


def _name(address: str) -> str:
    return "pci_" + re.sub(r"[:.]", "_", address)


def _last(link: str | None) -> str:
    return (link or "").rpartition("/")[2]


def _address(parent: etree._Element, address: str) -> None:
    if _ADDRESS.fullmatch(address) is None:
        return
    domain, bus, slot, function = _numbers(address)
    etree.SubElement(
        parent,
        "address",
        domain=f"0x{domain:04x}",
        bus=f"0x{bus:02x}",
        slot=f"0x{slot:02x}",
        function=f"0x{function:x}",
    )


def _text(parent: etree._Element, tag: str, text: str) -> None:
    etree.SubElement(parent, tag).text = text

"""A simulated guest: the live XML of its domain, and what it prints on its serial console."""

from __future__ import annotations

from collections.abc import Mapping

from lxml import etree

from jetbridge.virt.simulated.hardware import Part
from jetbridge.virt.simulated.rules import is_pci, pci_use, read_domain
from jetbridge.virt.xml import Element, parse_xml

_FIRST_BUS = 5  # q35 root ports come first


def live_document(xml: str, number: int) -> str:
    """The XML of a running domain: with its id, and the alias and guest address that libvirt gives every hostdev."""
    root = parse_xml(xml)
    root.set("id", str(number))
    for index, device in enumerate(_host_devices(root)):
        if device.find("alias") is None:
            etree.SubElement(device, "alias", name=f"hostdev{index}")
        if device.find("address") is None:
            bus = f"0x{_FIRST_BUS + index:02x}"
            etree.SubElement(device, "address", type="pci", domain="0x0000", bus=bus, slot="0x00", function="0x0")
        etree.indent(device, level=2)  # read by people: one element a line, as libvirt writes it
    return etree.tostring(root, encoding="unicode")


def add_device(xml: str, device_xml: str) -> str:
    root = parse_xml(xml)
    devices = root.find("devices")
    if devices is None:
        devices = etree.SubElement(root, "devices")
    devices.append(parse_xml(device_xml))
    return etree.tostring(root, encoding="unicode")


def remove_device(xml: str, device_xml: str) -> str | None:
    """Without the device that ``device_xml`` describes: a PCI function by its address, another interface by its MAC address, as
    libvirt finds them. None: it has no such device."""
    root, wanted = parse_xml(xml), parse_xml(device_xml)
    mac = child_attribute(wanted, "mac", "address")
    for device in [*root.findall("devices/hostdev"), *root.findall("devices/interface")]:
        if is_pci(wanted):
            same = is_pci(device) and pci_use(device).address == pci_use(wanted).address
        else:
            same = device.tag == wanted.tag and mac is not None and child_attribute(device, "mac", "address") == mac
        parent = device.getparent()
        if same and parent is not None:
            parent.remove(device)
            return etree.tostring(root, encoding="unicode")
    return None


def child_attribute(element: Element, path: str, name: str) -> str | None:
    found = element.find(path)
    return None if found is None else found.get(name)


def _host_devices(root: Element) -> list[Element]:
    return [*root.findall("devices/hostdev"), *root.findall("devices/interface[@type='hostdev']")]


def boot_messages(live_xml: str, parts: Mapping[str, Part]) -> str:
    """The serial console of a guest that boots: its size, and one line per PCI function it was given."""
    document = read_domain(live_xml)
    lines = [
        "[    0.000000] Linux version 6.1.0 (simulated guest)",
        f"[    0.000000] DMI: QEMU Standard PC (Q35 + ICH9, 2009), domain {document.name}",
        f"[    0.004000] Memory: {document.memory_kib}K available",
        f"[    0.010000] smp: Brought up 1 node, {document.vcpus} CPUs",
    ]
    for device in _host_devices(parse_xml(live_xml)):
        guest = device.find("address")
        where = "0000:00:00.0"
        if guest is not None:
            bus, slot, function = (str(guest.get(key, "0x0")).removeprefix("0x") for key in ("bus", "slot", "function"))
            where = f"0000:{bus}:{slot}.{function}"
        if is_pci(device):
            part = parts.get(pci_use(device).address)
            ids = f"[{part.pci.vendor_id}:{part.pci.product_id}]" if part else "[unknown]"
            kind = part.pci.class_code if part else "unknown"
            lines.append(f"[    0.500000] pci {where}: {ids} type 00 class {kind}")
        else:
            lines.append(f"[    0.500000] pci {where}: mediated device")
    return "\n".join([*lines, "", "Simulated guest, serial console ttyS0", "", f"{document.name} login: ", ""])


POWER_DOWN = "\n[    9.000000] reboot: Power down\n"
RESTART = "\n[    9.000000] reboot: Restarting system\n"

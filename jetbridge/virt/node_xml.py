"""Node devices as libvirt writes them (https://libvirt.org/formatnode.html): what a PCI function's is called, a mediated device's to make it
and to find it."""

from __future__ import annotations

from lxml import etree

from jetbridge.virt.nodedev import parse_node_device


def mdev_xml(uuid: str, parent: str, type_id: str) -> str:
    """``parent``: its node device's name. For ``HypervisorConnection.create_mdev``."""
    root = etree.Element("device")
    etree.SubElement(root, "parent").text = parent
    capability = etree.SubElement(root, "capability", type="mdev")
    etree.SubElement(capability, "type", id=type_id)
    etree.SubElement(capability, "uuid").text = uuid
    return etree.tostring(root, pretty_print=True, encoding="unicode")


def mdev_name_of(document: str) -> tuple[str, str] | None:
    """UUID and node device name, when the document is a mediated device's."""
    device = parse_node_device(document)
    return (device.mdev.uuid, device.name) if device.mdev else None


def pci_node_name(address: str) -> str:
    """What libvirt calls a PCI function."""
    return "pci_" + address.replace(":", "_").replace(".", "_")

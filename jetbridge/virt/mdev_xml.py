"""Mediated devices as libvirt's node devices (https://libvirt.org/formatnode.html): to make one, and to find one."""

from __future__ import annotations

from lxml import etree

from jetbridge.virt.nodedev import parse_node_device


def mdev_xml(parent: str, type_id: str, uuid: str) -> str:
    """Of the node device ``parent``, for ``HypervisorConnection.create_mdev``."""
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

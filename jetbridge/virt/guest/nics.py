"""A NIC of a guest in its XML, by what kind of port it is (https://libvirt.org/formatdomain.html#network-interfaces)."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from lxml import etree

from jetbridge.errors import GuestXmlInvalid
from jetbridge.pci.port import VnicType
from jetbridge.virt.connection import NetworkInfo
from jetbridge.virt.guest import mapping
from jetbridge.virt.guest.address import read_address
from jetbridge.virt.guest.spec import PCI_HOSTDEV, Interface, PciHostdev


@dataclass(frozen=True)
class GuestNic:
    """A NIC with what its host knows of it.

    ``address``: of the function that its port got, which libvirt binds to vfio-pci and back if ``managed``. ``path``: what of that function the host lends instead of the function: the interface
    for macvtap, the character device for vDPA, the forwarder's socket. ``network``: where a normal port is plugged; with ``ovs_port``
    (the port's id) that is an Open vSwitch bridge.
    """

    mac: str
    vnic_type: VnicType = VnicType.NORMAL
    address: str | None = None
    managed: bool = True
    vlan: int | None = None
    path: str | None = None
    network: NetworkInfo | None = None
    ovs_port: str | None = None

    @property
    def shares_memory(self) -> bool:
        """A process on the host reads and writes the guest's memory."""
        return self.vnic_type is VnicType.VIRTIO_FORWARDER


def element_of(nic: GuestNic, model: str = "virtio") -> Interface | PciHostdev:
    """``model`` is that of NICs which QEMU plays. Raises ``PciDeviceWrongAddressFormat``."""
    match nic.vnic_type:
        case VnicType.NORMAL:
            assert nic.network is not None
            return Interface(
                nic.network.kind,
                mac=nic.mac,
                network=nic.network.name if nic.network.kind == "network" else None,
                bridge=nic.network.name if nic.network.kind == "bridge" else None,
                port_kind="openvswitch" if nic.ovs_port else None,
                port_id=nic.ovs_port,
                model=model,
            )
        case VnicType.MACVTAP:
            return Interface("direct", mac=nic.mac, dev=nic.path, mode="passthrough", vlan=nic.vlan, model=model)
        case VnicType.VDPA:
            return Interface("vdpa", mac=nic.mac, dev=nic.path, model=model)
        case VnicType.VIRTIO_FORWARDER:
            return Interface("vhostuser", mac=nic.mac, socket_kind="unix", socket=nic.path, mode="client", model=model)
    assert nic.address is not None
    address = read_address(nic.address)
    if nic.vnic_type in (VnicType.DIRECT_PHYSICAL, VnicType.ACCELERATOR_DIRECT_PHYSICAL):
        # Only of VFs can MAC and VLAN be set from outside; a PF keeps its own.
        return PciHostdev(managed=nic.managed, source=address)
    # A SmartNIC's own system sets the VLAN of remote-managed VFs.
    vlan = None if nic.vnic_type is VnicType.REMOTE_MANAGED else nic.vlan
    return Interface("hostdev", managed=nic.managed, mac=nic.mac, address=address, vlan=vlan)


def nic_xml(nic: GuestNic, model: str = "virtio") -> str:
    """The element alone, to attach."""
    element = element_of(nic, model)
    name = PCI_HOSTDEV if isinstance(element, PciHostdev) else "interface"
    return mapping.to_text(mapping.build(name, element))


def attached_xml(xml: str, mac: str, address: str | None) -> str | None:
    """The element of a NIC in a domain's XML as the hypervisor has it, to detach: the interface with this MAC address, or the
    ``<hostdev>`` of the function at ``address``. None: there is none."""
    devices = mapping.read(xml).find("devices")
    if devices is None:
        raise GuestXmlInvalid(path="domain/devices", reason="is missing")
    for element in devices.iterchildren("interface"):
        found = element.find("mac")
        if found is not None and (found.get("address") or "").lower() == mac.lower():
            return mapping.to_text(_alone(element))
    for element in devices.iterchildren("hostdev"):
        is_pci = (element.get("mode"), element.get("type")) == ("subsystem", "pci")
        if address and is_pci and str(mapping.parse(PciHostdev, element).source) == address:
            return mapping.to_text(_alone(element))
    return None


def _alone(element: etree._Element) -> etree._Element:
    """Without what the hypervisor added: in the definition the device may have another address in the guest than while it runs."""
    copied = copy.deepcopy(element)
    copied.tail = None
    for name in ("alias", "address", "target"):
        for added in copied.findall(name):
            copied.remove(added)
    return copied


def lent_paths(xml: str) -> tuple[str, ...]:
    """Host interfaces (macvtap) and vDPA character devices that a domain's XML takes: what is behind them belongs to the guest."""
    devices = mapping.read(xml).find("devices")
    found = []
    for element in devices.iterchildren("interface") if devices is not None else ():
        source = element.find("source")
        if source is not None and element.get("type") in ("direct", "vdpa") and source.get("dev"):
            found.append(str(source.get("dev")))
    return tuple(found)

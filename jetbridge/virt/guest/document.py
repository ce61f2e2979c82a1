"""Guest XML as text: whole domains, and the ``<hostdev>`` elements in them."""

from __future__ import annotations

from jetbridge.virt.guest import mapping
from jetbridge.virt.guest.address import read_address
from jetbridge.virt.guest.spec import PCI_HOSTDEV, GuestSpec, PciHostdev


def build_domain(guest: GuestSpec) -> str:
    """The domain XML that libvirt defines."""
    return mapping.to_text(mapping.build("domain", guest))


def parse_domain(xml: str) -> GuestSpec:
    """What the declarations find in a domain's XML. Raises ``GuestXmlInvalid``."""
    return mapping.parse(GuestSpec, mapping.read(xml))


def hostdevs_of(xml: str) -> tuple[str, ...]:
    """Canonical addresses (``0000:3b:00.0``) of the PCI functions that any domain's XML, ours or not, gives to the
    guest: as ``<hostdev>`` or as ``<interface type='hostdev'>``; in document order."""
    devices = mapping.read(xml).find("devices")
    found = []
    for element in devices if devices is not None else ():
        kind = (element.tag, element.get("mode"), element.get("type"))
        if kind == ("hostdev", "subsystem", "pci") or kind == ("interface", None, "hostdev"):
            found.append(str(mapping.parse(PciHostdev, element).source))
    return tuple(found)


def mdevs_of(xml: str) -> tuple[str, ...]:
    """UUIDs of the mediated devices that any domain's XML, ours or not, gives to the guest; in document order."""
    devices = mapping.read(xml).find("devices")
    found = devices.findall("hostdev[@type='mdev']/source/address") if devices is not None else ()
    return tuple(str(address.get("uuid", "")).lower() for address in found)


def hostdev_xml(address: str, *, managed: bool) -> str:
    """The ``<hostdev>`` of one function, to attach or detach. Raises ``PciDeviceWrongAddressFormat``."""
    hostdev = PciHostdev(managed=managed, source=read_address(address))
    return mapping.to_text(mapping.build(PCI_HOSTDEV, hostdev))


def uses_nvram(xml: str) -> bool:
    """True for UEFI guests: they, and only they, are undefined together with their NVRAM file."""
    root = mapping.read(xml)
    return root.find("os[@firmware='efi']") is not None or root.find("os/nvram") is not None

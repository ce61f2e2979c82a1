"""The guest's XML: declarations that build and parse it, and the translation from a server."""

from jetbridge.virt.guest.address import read_address
from jetbridge.virt.guest.document import build_domain, hostdev_xml, hostdevs_of, mdevs_of, parse_domain, uses_nvram
from jetbridge.virt.guest.nics import GuestNic, attached_xml, lent_paths, nic_xml
from jetbridge.virt.guest.spec import GuestSpec, HostAddress, PciHostdev
from jetbridge.virt.guest.translate import (
    GuestAccelerator,
    GuestFiles,
    GuestOptions,
    GuestVgpu,
    Translation,
    guest_spec,
)

__all__ = [
    "GuestAccelerator",
    "GuestFiles",
    "GuestNic",
    "GuestOptions",
    "GuestSpec",
    "GuestVgpu",
    "HostAddress",
    "PciHostdev",
    "Translation",
    "attached_xml",
    "build_domain",
    "guest_spec",
    "hostdev_xml",
    "hostdevs_of",
    "lent_paths",
    "mdevs_of",
    "nic_xml",
    "parse_domain",
    "read_address",
    "uses_nvram",
]

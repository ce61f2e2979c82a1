"""The guest's XML: declarations that build and parse it, and the translation from a server."""

from jetbridge.virt.guest.address import read_address
from jetbridge.virt.guest.document import build_domain, hostdev_xml, hostdevs_of, mdevs_of, parse_domain, uses_nvram
from jetbridge.virt.guest.spec import GuestSpec, HostAddress, PciHostdev
from jetbridge.virt.guest.translate import GuestFiles, GuestOptions, GuestVgpu, Translation, guest_spec

__all__ = [
    "GuestFiles",
    "GuestOptions",
    "GuestSpec",
    "GuestVgpu",
    "HostAddress",
    "PciHostdev",
    "Translation",
    "build_domain",
    "guest_spec",
    "hostdev_xml",
    "hostdevs_of",
    "mdevs_of",
    "parse_domain",
    "read_address",
    "uses_nvram",
]

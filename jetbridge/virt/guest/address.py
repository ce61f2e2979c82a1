"""The reader of PCI addresses for guest XML: stricter in form than that of the options."""

from __future__ import annotations

import re

from jetbridge.errors import PciDeviceWrongAddressFormat
from jetbridge.virt.guest.spec import HostAddress

_FORM = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2}).([0-7])")


def read_address(text: str) -> HostAddress:
    """Four hex digits, two, two, any one character, an octal digit: ``0000:3b:00.0``.

    The slot may exceed 1f (libvirt judges that). Raises ``PciDeviceWrongAddressFormat`` for anything else,
    shortened forms included.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise PciDeviceWrongAddressFormat(address=text)
    domain, bus, slot, function = (int(part, 16) for part in match.groups())
    return HostAddress(domain, bus, slot, function)

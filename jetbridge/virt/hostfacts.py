"""What device_spec needs to know of a host, read from sysfs."""

from __future__ import annotations

from jetbridge.virt.children import PCI_DEVICES
from jetbridge.virt.connection import HostFiles


class SysfsFacts:
    """``pci.device_spec.HostFacts`` over a host's files. None: the file does not exist or does not hold such a value."""

    def __init__(self, files: HostFiles) -> None:
        self._files = files

    def sriov_totalvfs(self, address: str) -> int | None:
        text = self._text(f"{PCI_DEVICES}/{address}/sriov_totalvfs")
        return int(text) if text and text.isascii() and text.isdecimal() else None

    def netdev_address(self, devname: str) -> str | None:
        """Address at which the kernel has the interface: the link's target without the dots and slashes around it."""
        link = self._files.read_link(f"/sys/class/net/{devname}/device")
        return link.strip("./").rpartition("/")[2] if link else None

    def pf_ids(self, address: str) -> tuple[str, str] | None:
        vendor = self._text(f"{PCI_DEVICES}/{address}/vendor")
        product = self._text(f"{PCI_DEVICES}/{address}/device")
        return (vendor.removeprefix("0x"), product.removeprefix("0x")) if vendor and product else None

    def vf_product_id(self, pf_address: str) -> str | None:
        return self._text(f"{PCI_DEVICES}/{pf_address}/sriov_vf_device")

    def _text(self, path: str) -> str | None:
        return (self._files.read_text(path) or "").strip() or None

"""What hangs on a function of the host: its network interface, its vDPA device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from jetbridge.virt.connection import HostFiles

if TYPE_CHECKING:
    from jetbridge.virt.nodedev import NodeDevice

PCI_DEVICES = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def netdev_of(files: HostFiles, address: str) -> tuple[str | None, str | None]:
    """Interface and MAC of a function as the kernel has them now; None where it has no network device for it (given to a guest, no
    NIC)."""
    names = sorted(files.list_dir(f"{PCI_DEVICES}/{address}/net"))
    if not names:
        return None, None
    mac = (files.read_text(f"{PCI_DEVICES}/{address}/net/{names[0]}/address") or "").strip()
    return names[0], mac or None


def vdpa_devices(devices: Sequence[NodeDevice], files: HostFiles) -> Mapping[str, str]:
    """The character device (empty: none, another driver has it) of each function that has a vDPA device, by address.

    libvirt gives the function as parent, or an auxiliary device between them shows on the path; kernels that put vDPA devices
    elsewhere are asked through sysfs, where the function's folder holds the device. One that nothing leads from to a function
    belongs to none.
    """
    by_name = {device.name: device for device in devices}
    found: dict[str, str] = {}
    lost: dict[str, str] = {}
    for device in devices:
        if device.vdpa is None:
            continue
        parent = by_name.get(device.parent or "")
        on_path = [part for part in (device.path or "").split("/") if _ADDRESS.fullmatch(part)]
        if parent and parent.pci:
            found[parent.pci.address] = device.vdpa
        elif on_path:
            found[on_path[-1]] = device.vdpa
        else:
            lost[(device.path or device.name).rpartition("/")[2].removeprefix("vdpa_")] = device.vdpa
    if lost:
        functions = [device.pci.address for device in devices if device.pci and device.pci.parent_addr]
        for address in functions:
            for name in files.list_dir(f"{PCI_DEVICES}/{address}"):
                if name in lost:
                    found.setdefault(address, lost[name])
    return found


def paths_of(devices: Sequence[NodeDevice], files: HostFiles) -> Mapping[str, str]:
    """Which function is behind each network interface and vDPA character device: name or path to address."""
    addresses = {device.name: device.pci.address for device in devices if device.pci}
    interfaces = {
        device.net.interface: addresses[device.parent]
        for device in devices
        if device.net and device.parent in addresses
    }
    return {**interfaces, **_turned(vdpa_devices(devices, files).items())}


def _turned(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {path: address for address, path in pairs if path}

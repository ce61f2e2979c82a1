"""A host's vGPUs, from its node devices and sysfs: what can carry some, and what exists.

Mediated devices: https://docs.kernel.org/driver-api/vfio-mediated-device.html. VFs with a vendor type, on kernels without mediated
devices: NVIDIA's vGPU documentation, "Creating an NVIDIA vGPU on a Linux with KVM Hypervisor", for the vendor-specific VFIO framework.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jetbridge.mdev.values import HostVgpus, Instance, Kind, Offer, Parent
from jetbridge.pci.device import DeviceType
from jetbridge.virt.children import PCI_DEVICES
from jetbridge.virt.connection import HostFiles
from jetbridge.virt.nodedev import NodeDevice, PciFunction, parse_node_device

MDEV_BUS = "/sys/class/mdev_bus"
NO_TYPE = "0"
"""What a VF without a type says of it."""

_VENDOR_PREFIX = "nvidia-"
_VENDOR_TYPE = re.compile(r"\s*([0-9]+)\s*:\s*(\S.*?)\s*")
_LIMIT = re.compile(r"\bmax_instance=([0-9]+)\b")
_MAY_CARRY = ("0x03", "0x12")  # display controllers and accelerators; sisters of NICs needn't be asked


class VgpuFacts:
    """``mdev.config.HostFacts`` over a host's files."""

    def __init__(self, files: HostFiles) -> None:
        self._files = files

    def is_virtual_parent(self, name: str) -> bool:
        """libvirt names a virtual parent by its path with every slash made an underscore, and names may have underscores of their own."""
        parts = name.split("_")
        paths = [("_".join(parts[:cut]), "_".join(parts[cut:])) for cut in range(1, len(parts))]
        return any(entry in self._files.list_dir(f"/sys/devices/virtual/{driver}") for driver, entry in paths)

    def card_of(self, address: str) -> str:
        link = self._files.read_link(f"{PCI_DEVICES}/{address}/physfn")
        return link.rpartition("/")[2] if link else address


def host_vgpus(documents: Sequence[str], files: HostFiles) -> HostVgpus:
    """``documents`` are all of the host's node devices (``virt.nodedev.check_complete``)."""
    devices = [parse_node_device(document) for document in documents]
    return _Reader(devices, files).read()


def type_file(address: str) -> str:
    """Where a VF's vendor type is read and set."""
    return f"{PCI_DEVICES}/{address}/nvidia/current_vgpu_type"


def vendor_number(type_id: str) -> str:
    """The number that the driver knows a type by."""
    return type_id.removeprefix(_VENDOR_PREFIX)


def current_type(address: str, files: HostFiles) -> str | None:
    """The vendor type of a VF; None: it has none."""
    text = (files.read_text(type_file(address)) or "").strip()
    return None if text in ("", NO_TYPE) else _VENDOR_PREFIX + text


class _Reader:
    def __init__(self, devices: Sequence[NodeDevice], files: HostFiles) -> None:
        self._files = files
        self._devices = devices
        self._names = {device.pci.address: device.name for device in devices if device.pci}
        self._limits: dict[tuple[str, str], int | None] = {}

    def read(self) -> HostVgpus:
        parents: list[Parent] = []
        instances: list[Instance] = []
        for device in self._devices:
            if device.mdev_types:
                parents.append(self._mdev_parent(device))
            elif device.pci and (carrier := self._vendor_parent(device, device.pci)):
                parents.append(carrier)
                if kind := current_type(device.pci.address, self._files):
                    instances.append(Instance(device.name, kind, node_name=device.name))
            if device.mdev:
                # libvirt leaves the path out of a device that is defined and not started.
                active = device.path is not None
                instances.append(
                    Instance(device.parent or "", device.mdev.type, device.mdev.uuid, active, node_name=device.name)
                )
        virtual = {device.name for device in self._devices if not device.pci}
        parents.sort(key=lambda parent: (parent.name in virtual, parent.address))
        return HostVgpus(tuple(parents), tuple(instances))

    def _mdev_parent(self, device: NodeDevice) -> Parent:
        address = device.pci.address if device.pci else device.name
        card, card_address = self._card(device.name, address, device.pci)
        offers = tuple(
            Offer(kind.id, kind.available, kind.name, self._limit(card, device, kind.id)) for kind in device.mdev_types
        )
        return Parent(device.name, address, card, card_address, Kind.MDEV, offers)

    def _vendor_parent(self, device: NodeDevice, pci: PciFunction) -> Parent | None:
        if pci.dev_type is not DeviceType.VF or not (pci.class_code or "").startswith(_MAY_CARRY):
            return None
        text = self._files.read_text(f"{PCI_DEVICES}/{pci.address}/nvidia/creatable_vgpu_types")
        if text is None:
            return None
        found = [match for line in text.splitlines() if (match := _VENDOR_TYPE.fullmatch(line))]
        current = current_type(pci.address, self._files)
        creatable = {_VENDOR_PREFIX + match[1]: match[2] for match in found}
        offers = [Offer(kind, 0 if current else 1, name) for kind, name in creatable.items()]
        if current and current not in creatable:
            offers.append(Offer(current, 0))
        return Parent(device.name, pci.address, *self._card(device.name, pci.address, pci), Kind.VFIO, tuple(offers))

    def _card(self, name: str, address: str, pci: PciFunction | None) -> tuple[str, str]:
        physical = pci.parent_addr if pci else None
        return (name, address) if physical is None else (self._names.get(physical, name), physical)

    def _limit(self, card: str, device: NodeDevice, kind: str) -> int | None:
        """How many a card carries is the same for all its VFs: one of them is asked."""
        if (card, kind) not in self._limits:
            entry = device.pci.address if device.pci else (device.path or device.name).rpartition("/")[2]
            text = self._files.read_text(f"{MDEV_BUS}/{entry}/mdev_supported_types/{kind}/description") or ""
            match = _LIMIT.search(text)
            self._limits[card, kind] = int(match[1]) if match else None
        return self._limits[card, kind]

"""libvirt's node devices: documents into values, and the values into the report that the tracker synchronises with.

The format is that of https://libvirt.org/formatnode.html. Domain, bus, slot and function of a PCI device are decimal
text, but hexadecimal in ``<address>`` attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jetbridge.errors import InvalidNodeDevice, PciDeviceNotFoundById, ProbeFailed
from jetbridge.pci.device import DeviceType
from jetbridge.reasons import some
from jetbridge.virt.children import PCI_DEVICES, netdev_of, vdpa_devices
from jetbridge.virt.connection import HostFiles
from jetbridge.virt.xml import Element, child_text, parse_xml

_MDEV_NAME = re.compile(r"mdev_([0-9a-fA-F]{8}_[0-9a-fA-F]{4}_[0-9a-fA-F]{4}_[0-9a-fA-F]{4}_[0-9a-fA-F]{12})(?:_.+)?")


@dataclass(frozen=True)
class MdevType:
    id: str
    name: str | None
    device_api: str | None
    available: int


@dataclass(frozen=True)
class PciFunction:
    """A PCI function. Addresses are canonical text (the domain of some controllers has more than four digits).

    ``virt_functions`` is None when the function isn't SR-IOV capable, empty when it has no VFs now; ``numa_node`` None:
    unknown; ``iommu_members`` are all addresses of its group, itself included."""

    address: str
    vendor_id: str
    product_id: str
    dev_type: DeviceType
    vendor: str | None = None
    product: str | None = None
    class_code: str | None = None  # 0x030200
    parent_addr: str | None = None
    virt_functions: tuple[str, ...] | None = None
    max_vfs: int | None = None
    numa_node: int | None = None
    iommu_group: int | None = None
    iommu_members: tuple[str, ...] = ()
    card_serial_number: str | None = None
    mdev_types: tuple[MdevType, ...] = ()
    is_bridge: bool = False


@dataclass(frozen=True)
class NetInterface:
    interface: str
    mac: str | None
    features: tuple[str, ...]


@dataclass(frozen=True)
class Mdev:
    uuid: str
    type: str
    parent_addr: str | None
    iommu_group: int | None


@dataclass(frozen=True)
class NodeDevice:
    """A node device; the one field of ``pci``, ``net``, ``mdev``, ``vdpa`` (the character device) that applies is set."""

    name: str
    path: str | None = None
    parent: str | None = None
    driver: str | None = None
    pci: PciFunction | None = None
    net: NetInterface | None = None
    mdev: Mdev | None = None
    vdpa: str | None = None
    mdev_types: tuple[MdevType, ...] = ()


@lru_cache(maxsize=8192)
def parse_node_device(xml: str) -> NodeDevice:
    """Reads one document. Raises InvalidNodeDevice naming the document and what is wrong with it.

    Cached by text: hosts of one kind have the same documents."""
    name = "?"
    try:
        root = parse_xml(xml)
        if root.tag != "device":
            raise ValueError(f"its root is <{root.tag}>, not <device>")
        name = _required(root, "name")
        return _node_device(root, name)
    except ValueError as error:
        raise InvalidNodeDevice(name=name, reason=str(error)) from error


def _node_device(root: Element, name: str) -> NodeDevice:
    pci: PciFunction | None = None
    net: NetInterface | None = None
    mdev: Mdev | None = None
    vdpa: str | None = None
    types: tuple[MdevType, ...] = ()
    for capability in root.findall("capability"):
        match capability.get("type"):
            case "pci":
                pci = _pci(capability)
            case "net":
                features = tuple(f.get("name", "") for f in capability.findall("feature") if f.get("name"))
                net = NetInterface(_required(capability, "interface"), child_text(capability, "address"), features)
            case "mdev":
                mdev = _mdev(capability, name)
            case "vdpa":
                vdpa = child_text(capability, "chardev") or ""
            case "mdev_types":
                types = _mdev_types(capability)
    parent, path, driver = child_text(root, "parent"), child_text(root, "path"), child_text(root, "driver/name")
    return NodeDevice(name, path, parent, driver, pci, net, mdev, vdpa, pci.mdev_types if pci else types)


def _pci(capability: Element) -> PciFunction:
    domain, bus, slot, function = (_number(capability, part) for part in ("domain", "bus", "slot", "function"))
    dev_type, parent_addr = DeviceType.PCI, None
    virt_functions: tuple[str, ...] | None = None
    max_vfs: int | None = None
    decided = False
    for nested in capability.findall("capability"):
        kind = nested.get("type")
        addresses = tuple(_address(address) for address in nested.findall("address"))
        if kind == "virt_functions":
            virt_functions = addresses
            max_vfs = _attribute(nested, "maxCount")
            if not decided:
                dev_type, decided = DeviceType.PF, True
        elif kind == "phys_function" and addresses and not decided:
            dev_type, parent_addr, decided = DeviceType.VF, addresses[0], True
    group = capability.find("iommuGroup")
    numa = capability.find("numa")
    return PciFunction(
        address=_canonical(domain, bus, slot, function),
        vendor_id=_id(capability, "vendor"),
        product_id=_id(capability, "product"),
        dev_type=dev_type,
        vendor=child_text(capability, "vendor"),
        product=child_text(capability, "product"),
        class_code=child_text(capability, "class"),
        parent_addr=parent_addr,
        virt_functions=virt_functions,
        max_vfs=max_vfs,
        numa_node=None if numa is None else _node(numa),
        iommu_group=None if group is None else _attribute(group, "number"),
        iommu_members=() if group is None else tuple(_address(member) for member in group.findall("address")),
        card_serial_number=child_text(capability, "capability[@type='vpd']/fields[@access='readonly']/serial_number"),
        mdev_types=_mdev_types(capability),
        is_bridge=any(
            nested.get("type") in {"pci-bridge", "cardbus-bridge"} for nested in capability.findall("capability")
        ),
    )


def _mdev(capability: Element, name: str) -> Mdev:
    group, kind = capability.find("iommuGroup"), capability.find("type")
    return Mdev(
        uuid=child_text(capability, "uuid") or _uuid_of_name(name),
        type="" if kind is None else kind.get("id", ""),
        parent_addr=child_text(capability, "parent_addr"),
        iommu_group=None if group is None else _attribute(group, "number"),
    )


def _uuid_of_name(name: str) -> str:
    """libvirt before 7.3 tells the UUID by the name alone; from 7.7 on the parent's address follows it there."""
    match = _MDEV_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"<capability> has no <uuid>, and {name} holds none")
    return match[1].replace("_", "-").lower()


def _mdev_types(capability: Element) -> tuple[MdevType, ...]:
    return tuple(
        MdevType(
            id=found.get("id", ""),
            name=child_text(found, "name"),
            device_api=child_text(found, "deviceAPI"),
            available=_number(found, "availableInstances"),
        )
        for nested in capability.findall("capability[@type='mdev_types']")
        for found in nested.findall("type")
    )


def _required(element: Element, tag: str) -> str:
    text = child_text(element, tag)
    if text is None:
        raise ValueError(f"<{element.tag}> has no <{tag}>")
    return text


def _number(element: Element, tag: str) -> int:
    text = _required(element, tag)
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise ValueError(f"<{tag}> is {text!r}, not a decimal number")
    return int(text)


def _attribute(element: Element, name: str) -> int | None:
    text = element.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise ValueError(f"{name} of <{element.tag}> is {text!r}, not a number")
    return int(text)


def _node(numa: Element) -> int | None:
    # The kernel's -1 (unknown) is left out by libvirt, but a document may have been written by hand.
    return None if numa.get("node", "-1").startswith("-") else _attribute(numa, "node")


def _id(capability: Element, tag: str) -> str:
    element = capability.find(tag)
    text = "" if element is None else element.get("id", "")
    match = re.fullmatch(r"0x([0-9a-fA-F]{1,4})", text)
    if match is None:
        raise ValueError(f"id of <{tag}> is {text!r}, not a hexadecimal number such as 0x10de")
    return match[1].lower().zfill(4)


def _address(element: Element) -> str:
    parts = []
    for name in ("domain", "bus", "slot", "function"):
        text = element.get(name, "")
        if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,8}", text):
            raise ValueError(f"{name} of <address> is {text!r}, not a hexadecimal number")
        parts.append(int(text, 16))
    return _canonical(*parts)


def _canonical(domain: int, bus: int, slot: int, function: int) -> str:
    if domain > 0xFFFFFFFF or bus > 0xFF or slot > 0x1F or function > 7:
        raise ValueError(f"the PCI address {domain:x}:{bus:x}:{slot:x}.{function:x} is out of range")
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"


def check_complete(documents: Sequence[str], files: HostFiles | None = None, *, host: str = "this host") -> None:
    """Raises ProbeFailed when ``documents`` can't be all there is: a partial probe must never look like devices that left.

    The kernel's own list of PCI functions is the measure where sysfs can be read. Without it the documents have to be
    closed: whatever one names (parent, members of its IOMMU group, VFs, its PF) must be there too.
    """
    if not documents:
        raise ProbeFailed(host=host, reason="libvirt returned no node device at all, not even the host's own")
    devices = [parse_node_device(document) for document in documents]
    described = {device.pci.address for device in devices if device.pci}
    in_sysfs = set(files.list_dir(PCI_DEVICES)) if files else set()
    if in_sysfs:
        if missing := in_sysfs - described:
            raise ProbeFailed(host=host, reason=f"sysfs has {some(missing)}, which libvirt did not return")
        if missing := described - in_sysfs:
            raise ProbeFailed(host=host, reason=f"libvirt returned {some(missing)}, which sysfs does not have")
        return
    names = {device.name for device in devices}
    for device in devices:
        if device.parent and device.parent not in names:
            raise ProbeFailed(host=host, reason=f"{device.name} has the parent {device.parent}, which was not returned")
        if device.pci:
            named = {*device.pci.iommu_members, *(device.pci.virt_functions or ()), device.pci.parent_addr} - {None}
            if missing := {address for address in named if address and address not in described}:
                raise ProbeFailed(host=host, reason=f"{device.name} names {some(missing)}, which was not returned")


def host_report(documents: Sequence[str], files: HostFiles, *, host: str = "this host") -> list[dict[str, Any]]:
    """The host's PCI functions as the tracker takes them: one mapping each (docs/models.md, Host report).

    Beyond the keys of the field each carries ``serial`` (text or None), ``driver`` and ``iommu_group`` (text, empty when
    there is none), ``iommu_members`` (addresses), ``class`` and, where known, ``pcie_path`` (the bridges above it, from
    the root down), ``switch`` (the nearest of them that has another card below it too) and ``fabric``. Raises ProbeFailed when the documents are partial or one is malformed, and
    PciDeviceNotFoundById when the kernel lists a VF that its PF doesn't know.
    """
    check_complete(documents, files, host=host)
    return _Report([parse_node_device(document) for document in documents], files).rows()


class _Report:
    def __init__(self, devices: Sequence[NodeDevice], files: HostFiles) -> None:
        self._files = files
        self._devices = devices
        self._by_name = {device.name: device for device in devices}
        self._pci = {device.pci.address: device.pci for device in devices if device.pci}
        self._net: dict[str, NetInterface] = {}
        self._vdpa = vdpa_devices(devices, files)
        for device in devices:
            if device.net and device.parent:
                self._net.setdefault(device.parent, device.net)
        self._cards_below = self._below()
        self._vf_numbers: dict[str, Mapping[str, int]] = {}
        self._pf_netdevs: dict[str, tuple[str | None, str | None]] = {}

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(device, device.pci) for device in self._devices if device.pci]

    def _row(self, device: NodeDevice, pci: PciFunction) -> dict[str, Any]:
        dev_type = pci.dev_type
        if dev_type is DeviceType.VF and pci.address in self._vdpa:
            dev_type = DeviceType.VDPA
        row: dict[str, Any] = {
            "dev_id": device.name,
            "address": pci.address,
            "vendor_id": pci.vendor_id,
            "product_id": pci.product_id,
            "numa_node": pci.numa_node,
            "label": f"label_{pci.vendor_id}_{pci.product_id}",
            "dev_type": str(dev_type),
        }
        net = self._net.get(device.name)
        if dev_type is DeviceType.PF:
            mac = self._netdev(pci.address)[1]
            if mac:
                row["mac_address"] = mac
        if pci.parent_addr:
            row["parent_addr"] = pci.parent_addr
            interface = self._netdev(pci.parent_addr)[0] if net else None
            if interface:
                row["parent_ifname"] = interface
        capabilities = self._capabilities(pci, dev_type, net)
        if capabilities:
            row["capabilities"] = capabilities
        row["serial"] = capabilities.get("vpd", {}).get("card_serial_number")
        row["driver"] = device.driver or ""
        row["iommu_group"] = "" if pci.iommu_group is None else str(pci.iommu_group)
        row["iommu_members"] = list(pci.iommu_members)
        row["class"] = pci.class_code or ""
        if path := self._pcie_path(device):
            row["pcie_path"] = "/".join(path)
        if switch := next((bridge for bridge in reversed(path) if len(self._cards_below[bridge]) > 1), None):
            row["switch"] = switch
        if fabric := (self._files.read_text(f"{PCI_DEVICES}/{pci.address}/fabric") or "").strip():
            row["fabric"] = fabric
        return row

    def _capabilities(self, pci: PciFunction, dev_type: DeviceType, net: NetInterface | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        serial = pci.card_serial_number
        if dev_type is DeviceType.VF and pci.parent_addr:
            if net and net.features:
                found["network"] = list(net.features)
            mac = self._netdev(pci.parent_addr)[1]
            if mac:
                found["sriov"] = {"pf_mac_address": mac, "vf_num": self._vf_number(pci)}
            parent = self._pci.get(pci.parent_addr)
            serial = serial or (parent.card_serial_number if parent else None)
        if serial:
            found["vpd"] = {"card_serial_number": serial}
        return found

    def _netdev(self, address: str) -> tuple[str | None, str | None]:
        """Interface and MAC of a function; None where the kernel has no network device for it (given to a guest, no NIC)."""
        if address not in self._pf_netdevs:
            self._pf_netdevs[address] = netdev_of(self._files, address)
        return self._pf_netdevs[address]

    def _vf_number(self, pci: PciFunction) -> int:
        assert pci.parent_addr is not None
        if pci.parent_addr not in self._vf_numbers:
            folder = f"{PCI_DEVICES}/{pci.parent_addr}"
            self._vf_numbers[pci.parent_addr] = {
                (self._files.read_link(f"{folder}/{entry}") or "").rpartition("/")[2]: int(entry.removeprefix("virtfn"))
                for entry in self._files.list_dir(folder)
                if re.fullmatch(r"virtfn[0-9]+", entry)
            }
        number = self._vf_numbers[pci.parent_addr].get(pci.address)
        if number is None:
            raise PciDeviceNotFoundById(id=pci.address)
        return number

    def _pcie_path(self, device: NodeDevice) -> list[str]:
        """The bridges above, from the root down."""
        bridges: list[str] = []
        seen = {device.name}
        above = self._by_name.get(device.parent or "")
        while above and above.pci and above.name not in seen:
            seen.add(above.name)
            bridges.append(above.pci.address)
            above = self._by_name.get(above.parent or "")
        return bridges[::-1]

    def _below(self) -> Mapping[str, set[str]]:
        """By bridge, the cards below it: functions of one slot are one card, and so are a PF and its VFs."""
        cards: dict[str, set[str]] = {}
        for device in self._devices:
            if device.pci and not device.pci.is_bridge:
                card = (device.pci.parent_addr or device.pci.address).rpartition(".")[0]
                for bridge in self._pcie_path(device):
                    cards.setdefault(bridge, set()).add(card)
        return cards

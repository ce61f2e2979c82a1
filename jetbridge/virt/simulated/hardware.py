"""The hardware of a fleet host: its PCI functions, each with the documents libvirt would print for it.

Values are shared between hosts that have the same hardware; what changes while a host runs (drivers, mdevs) is applied
when documents are asked for.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from jetbridge.errors import InvalidFleet, InvalidNodeDevice
from jetbridge.model.fleet import FleetDevice, FleetHost, MdevTypeSpec, VgpuTypeSpec, vf_address
from jetbridge.virt.node_xml import pci_node_name
from jetbridge.virt.nodedev import NodeDevice, PciFunction, parse_node_device
from jetbridge.virt.pci_names import BRIDGE, default_class
from jetbridge.virt.simulated.documents import (
    Function,
    computer_document,
    net_document,
    pci_document,
    vdpa_document,
    with_available,
    with_driver,
)

# "<device>" is the first element, after a declaration and comments at most.
_DEVICE_DOCUMENT = re.compile(r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<device[\s>]", re.DOTALL)
_VF_DRIVERS = {"i40e": "iavf", "ice": "iavf", "igb": "igbvf", "ixgbe": "ixgbevf", "nvidia": None}


@dataclass(frozen=True)
class Part:
    """A PCI function, its document with the driver it has at boot, and the documents of its children (network interface,
    vDPA), which exist only while that driver has it."""

    node: NodeDevice
    pci: PciFunction
    document: str
    children: tuple[str, ...] = ()
    interface: str | None = None
    mac: str | None = None
    vf_product_id: str | None = None
    bar_mb: int | None = None
    mdev_types: tuple[MdevTypeSpec, ...] = ()
    vgpu_types: tuple[VgpuTypeSpec, ...] = ()
    fabric: str | None = None


@dataclass(frozen=True)
class Hardware:
    """``parts`` by address; ``others`` are documents that belong to no PCI function. ``capabilities`` and
    ``domain_capabilities`` are documents of a real host, where the fleet gave them."""

    parts: Mapping[str, Part]
    others: tuple[str, ...]
    capabilities: str | None = None
    domain_capabilities: str | None = None

    def document_of(self, address: str, driver: str | None) -> str:
        part = self.parts[address]
        return part.document if driver == part.node.driver else with_driver(part.document, driver)

    def documents(
        self,
        drivers: Mapping[str, str | None],
        mdevs: Sequence[str] = (),
        available: Mapping[str, tuple[tuple[str, int], ...]] | None = None,
    ) -> list[str]:
        """Every document. ``drivers``: of functions whose driver isn't the one at boot; ``mdevs``: documents of those
        made since; ``available``: by node device name of parents whose numbers aren't those at boot, pairs of type and number."""
        left = available or {}
        found = [self._left(document, parse_node_device(document).name, left) for document in self.others]
        for address, part in self.parts.items():
            driver = drivers.get(address, part.node.driver)
            found.append(self._left(self.document_of(address, driver), part.node.name, left))
            if driver == part.node.driver:
                found += part.children
        return [*found, *mdevs]

    @staticmethod
    def _left(document: str, name: str, left: Mapping[str, tuple[tuple[str, int], ...]]) -> str:
        return with_available(document, left[name]) if name in left else document


@dataclass(frozen=True)
class _Dump:
    """What a folder of real documents holds."""

    documents: tuple[tuple[str, str], ...] = ()  # file name, text
    capabilities: str | None = None
    domain_capabilities: str | None = None


def hardware_of(host: FleetHost) -> Hardware:
    """The host's hardware. Raises InvalidFleet when the documents in ``nodedevs`` can't be used."""
    dump = _read_dump(host.nodedevs) if host.nodedevs else _Dump()
    # Addresses of interfaces that the fleet doesn't give one differ between hosts; then nothing can be shared.
    makes_macs = any((d.interface and not d.mac) or (d.pf and d.pf.vf_interface and d.pf.vfs) for d in host.devices)
    return _hardware(host.devices, dump, host.nodedevs or "", host.name, host.name if makes_macs else "")


def _hardware(devices: tuple[FleetDevice, ...], dump: _Dump, folder: str, host: str, seed: str) -> Hardware:
    shared = _parts(devices, dump, folder, seed)
    own = () if shared.has_computer else (computer_document(host, str(uuid.uuid5(uuid.NAMESPACE_DNS, host))),)
    return Hardware(shared.parts, (*own, *shared.others), dump.capabilities, dump.domain_capabilities)


@dataclass(frozen=True)
class _Shared:
    parts: Mapping[str, Part]
    others: tuple[str, ...]
    has_computer: bool


@lru_cache(maxsize=256)
def _parts(devices: tuple[FleetDevice, ...], dump: _Dump, folder: str, seed: str) -> _Shared:
    parts, others, has_computer = _real_parts(dump, folder)
    vdpas = sum(1 for text in others if parse_node_device(text).vdpa is not None)
    for part in _written_parts(devices, {p.pci.iommu_group for p in parts.values()}, seed, vdpas):
        if part.pci.address in parts:
            reason = f"{part.pci.address} is in devices and in the documents of nodedevs {folder}; take it out of one"
            raise InvalidFleet(path=folder, reason=reason)
        parts[part.pci.address] = part
    return _Shared({address: parts[address] for address in sorted(parts)}, tuple(others), has_computer)


def _read_dump(folder: str) -> _Dump:
    try:
        paths = sorted(path for path in Path(folder).iterdir() if path.suffix == ".xml" and path.is_file())
        return _read_files(tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFleet(path=folder, reason=f"nodedevs can't be read: {error}") from error


@lru_cache(maxsize=32)
def _read_files(files: tuple[tuple[Path, int, int], ...]) -> _Dump:
    """Cached by time and size of the files: many hosts may name one folder."""
    texts = {path.name: path.read_bytes().decode() for path, _, _ in files}
    documents = tuple((name, text) for name, text in texts.items() if _DEVICE_DOCUMENT.match(text))
    return _Dump(documents, texts.get("capabilities.xml"), texts.get("domcapabilities.xml"))


def _real_parts(dump: _Dump, folder: str) -> tuple[dict[str, Part], list[str], bool]:
    nodes: dict[str, tuple[NodeDevice, str]] = {}
    for file_name, text in dump.documents:
        try:
            node = parse_node_device(text)
        except InvalidNodeDevice as error:
            raise InvalidFleet(path=f"{folder}/{file_name}", reason=str(error)) from error
        if node.name in nodes:
            raise InvalidFleet(path=f"{folder}/{file_name}", reason=f"{node.name} is in two documents; remove one")
        nodes[node.name] = (node, text)
    parts: dict[str, Part] = {}
    others = []
    for node, text in nodes.values():
        if node.pci:
            parts[node.pci.address] = Part(node, node.pci, text)
    by_address = {part.node.name: address for address, part in parts.items()}
    for node, text in nodes.values():
        owner = by_address.get(node.parent or "")
        if owner and (node.net or node.vdpa is not None):
            part = parts[owner]
            net = node.net
            parts[owner] = replace(
                part,
                children=(*part.children, text),
                interface=net.interface if net and not part.interface else part.interface,
                mac=net.mac if net and not part.interface else part.mac,
            )
        elif not node.pci:
            others.append(text)
    return parts, others, "computer" in nodes


@dataclass(frozen=True)
class _Draft:
    """A function of the fleet file before groups and parents are known."""

    address: str
    device: FleetDevice
    class_code: str = ""
    bridge: bool = False
    parent: str | None = None  # address of the bridge above
    vf: int | None = None
    vfs: tuple[str, ...] | None = None
    vendor_id: str = field(default="")
    product_id: str = field(default="")


def _written_parts(
    devices: Sequence[FleetDevice], taken_groups: set[int | None], seed: str, first_vdpa: int
) -> list[Part]:
    drafts = {draft.address: draft for draft in _drafts(devices)}
    groups = _groups(drafts, taken_groups)
    members: dict[int, tuple[str, ...]] = {}
    for address in sorted(drafts):
        members[groups[address]] = (*members.get(groups[address], ()), address)
    parts = []
    vdpa = first_vdpa
    for address in sorted(drafts):
        draft = drafts[address]
        function = _function(draft, drafts, groups[address], members[groups[address]])
        document = pci_document(function)
        node = parse_node_device(document)
        assert node.pci is not None
        interface, mac = _interface(draft, seed)
        children = [net_document(function, interface, mac)] if interface and mac else []
        if _has_vdpa(draft):
            children.append(vdpa_document(function, vdpa))
            vdpa += 1
        parts.append(
            Part(
                node=node,
                pci=node.pci,
                document=document,
                children=tuple(children),
                interface=interface,
                mac=mac,
                vf_product_id=draft.device.pf.vf_product_id if draft.device.pf and draft.vf is None else None,
                bar_mb=None if draft.bridge else draft.device.bar_mb,
                mdev_types=draft.device.mdev_types if _carries_types(draft) else (),
                vgpu_types=draft.device.vgpu_types if _carries_types(draft) else (),
                fabric=None if draft.bridge else draft.device.fabric,
            )
        )
    return parts


def _drafts(devices: Sequence[FleetDevice]) -> list[_Draft]:
    taken = {device.address for device in devices}
    found: dict[str, _Draft] = {}
    for device in devices:
        pf = device.pf
        vfs = [vf_address(device.address, number, pf.vf_offset) for number in range(pf.vfs)] if pf else []
        known = tuple(address for address in vfs if address)
        network = bool(device.interface or (pf and pf.vf_interface))
        kind = device.class_code or default_class(device.vendor_id, device.product_id, network=network)
        found[device.address] = _Draft(
            device.address, device, kind, parent=device.switch, vfs=known if pf else None,
            vendor_id=device.vendor_id, product_id=device.product_id,
        )  # fmt: skip
        for number, address in enumerate(known):
            assert pf is not None
            found[address] = _Draft(
                address, device, kind, parent=device.switch, vf=number,
                vendor_id=device.vendor_id, product_id=pf.vf_product_id,
            )  # fmt: skip
        if device.switch and device.switch not in found:
            root = _root_port(device.switch, taken | found.keys())
            found[device.switch] = _Draft(
                device.switch, device, BRIDGE, bridge=True, parent=root, vendor_id="1000", product_id="c030"
            )
            if root:
                found[root] = _Draft(root, device, BRIDGE, bridge=True, vendor_id="8086", product_id="352a")
    return list(found.values())


def _root_port(switch: str, taken: set[str]) -> str | None:
    """A free address on the bus before the switch's, where a root port would be."""
    domain, bus, _ = switch.split(":")
    if bus == "00":
        return None
    candidates = (f"{domain}:{int(bus, 16) - 1:02x}:{slot:02x}.0" for slot in range(1, 32))
    return next((address for address in candidates if address not in taken), None)


def _groups(drafts: Mapping[str, _Draft], taken: set[int | None]) -> dict[str, int]:
    given = {
        address: draft.device.iommu_group for address, draft in drafts.items() if draft.vf is None and not draft.bridge
    }
    used = taken | set(given.values())
    groups: dict[str, int] = {}
    number = 0
    for address in sorted(drafts):
        wanted = given.get(address)
        if wanted is None:
            while number in used:
                number += 1
            used.add(number)
            wanted = number
        groups[address] = wanted
    return groups


def _function(draft: _Draft, drafts: Mapping[str, _Draft], group: int, members: tuple[str, ...]) -> Function:
    device = draft.device
    above: list[str] = []
    bridge = draft.parent
    while bridge and bridge in drafts and bridge not in above:
        above.insert(0, bridge)
        bridge = drafts[bridge].parent
    root_bus = (above[0] if above else draft.address).rsplit(":", 1)[0]
    driver = device.driver
    if draft.bridge:
        driver = "pcieport"
    elif draft.vf is not None and not device.vgpu_types:  # the driver of the card gives its VFs their types
        driver = _VF_DRIVERS.get(driver or "", driver)
    return Function(
        address=draft.address,
        vendor_id=draft.vendor_id,
        product_id=draft.product_id,
        class_code=draft.class_code,
        parent=pci_node_name(above[-1]) if above else "computer",
        path="/".join([f"/sys/devices/pci{root_bus}", *above, draft.address]),
        numa_node=device.numa_node,
        iommu_group=group,
        iommu_members=members,
        driver=driver,
        pf=device.address if draft.vf is not None else None,
        vfs=draft.vfs,
        max_vfs=device.pf.max_vfs if device.pf and draft.vf is None else 0,
        card_serial_number=device.card_serial_number if draft.vf is None and not draft.bridge else None,
        mdev_types=device.mdev_types if _carries_types(draft) else (),
        bridge=draft.bridge,
    )


def _carries_types(draft: _Draft) -> bool:
    """With SR-IOV the VFs offer the vGPU types, not the PF."""
    return not draft.bridge and (draft.vf is not None) == bool(draft.device.pf and draft.device.pf.vfs)


def _has_vdpa(draft: _Draft) -> bool:
    device = draft.device
    if draft.bridge:
        return False
    return (device.vdpa or device.pf.vdpa) if device.pf and draft.vf is not None else device.vdpa and not device.pf


def _interface(draft: _Draft, seed: str) -> tuple[str | None, str | None]:
    device = draft.device
    if draft.bridge:
        return None, None
    if draft.vf is None:
        return device.interface, device.mac or (_mac(seed, draft.address) if device.interface else None)
    if device.pf and device.pf.vf_interface:
        return f"{device.pf.vf_interface}{draft.vf}", _mac(seed, draft.address)
    return None, None


def _mac(seed: str, address: str) -> str:
    """A locally administered address that stays the same for a function of a host."""
    digest = hashlib.sha256(f"{seed} {address}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))

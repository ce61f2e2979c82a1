"""What libvirt, the kernel and QEMU refuse by themselves, in their words."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from jetbridge.errors import InvalidConfiguration
from jetbridge.virt.capabilities import HostResources, parse_cpu_set
from jetbridge.virt.nodedev import parse_node_device
from jetbridge.virt.simulated.hardware import Part
from jetbridge.virt.simulated.state import Domain
from jetbridge.virt.vfio import VFIO_DRIVERS, blocks_group
from jetbridge.virt.vgpus import NO_TYPE
from jetbridge.virt.xml import Element, child_text, parse_xml

DOMAIN_TYPES = ("qemu", "kvm")

LEAVES_VFS = frozenset({"nvme"})
"""Drivers that leave VFs when they let go of their physical function, which vfio-pci then refuses. Others remove them, unless
guests have them."""


class Refused(Exception):
    """The hypervisor says no; the text is its message."""


@dataclass(frozen=True)
class PciUse:
    """``lent``: not the function itself, but its network interface (macvtap) or its vDPA device, while its host driver keeps it."""

    address: str
    managed: bool
    lent: bool = False


@dataclass(frozen=True)
class DomainDocument:
    """What of a domain's XML matters to the rules. ``files`` and ``boot_files`` must exist when it starts; ``host_cpus`` and
    ``host_nodes`` are those it is tied to; ``lent`` are host interfaces and vDPA character devices."""

    name: str
    uuid: str
    memory_kib: int
    vcpus: int
    pci: tuple[PciUse, ...]
    mdevs: tuple[str, ...]
    networks: tuple[str, ...]
    bridges: tuple[str, ...]
    files: tuple[str, ...]
    boot_files: tuple[str, ...] = ()
    host_cpus: frozenset[int] = frozenset()
    host_nodes: frozenset[int] = frozenset()
    lent: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def read_domain(xml: str) -> DomainDocument:
    """Reads a domain as ``virDomainDefineXML`` would. Raises Refused."""
    try:
        root = parse_xml(xml)
    except ValueError as error:
        raise Refused(f"XML error: (domain_definition) {error}") from error
    if root.tag != "domain":
        raise Refused(f"XML error: unexpected root element <{root.tag}>, expecting <domain>")
    kind = root.get("type")
    if kind is None:
        raise Refused("XML error: Missing required attribute 'type' in element 'domain'")
    if kind not in DOMAIN_TYPES:
        raise Refused(f"unsupported configuration: could not find capabilities for domaintype={kind}")
    name = child_text(root, "name")
    if name is None:
        raise Refused("missing domain name information")
    if "/" in name or name in {".", ".."}:
        raise Refused(f"XML error: name {name} cannot contain '/'")
    if child_text(root, "os/type") is None:
        raise Refused("XML error: an os <type> must be specified")
    memory_text = child_text(root, "memory")
    if memory_text is None or not memory_text.isascii() or not memory_text.isdecimal() or int(memory_text) == 0:
        raise Refused("XML error: Memory size must be specified via <memory> or in the <numa> configuration")
    vcpus = child_text(root, "vcpu") or "1"
    if not vcpus.isascii() or not vcpus.isdecimal() or int(vcpus) == 0:
        raise Refused(f"XML error: Invalid value for element 'vcpu': '{vcpus}'.")
    pci = tuple(pci_use(device) for device in _devices(root) if is_pci(device))
    addresses = [use.address for use in pci]
    mdevs = tuple(
        str(address.get("uuid", "")).lower() for address in root.findall("devices/hostdev[@type='mdev']/source/address")
    )
    if len(set(addresses)) < len(addresses) or len(set(mdevs)) < len(mdevs):
        raise Refused("XML error: Hostdev already exists in the domain configuration")
    sources = root.findall("devices/interface/source")
    files = [source.get("file") for source in root.findall("devices/disk/source")]
    boot_files = [child_text(root, "os/kernel"), child_text(root, "os/initrd")]
    return DomainDocument(
        name=name,
        uuid=_uuid(child_text(root, "uuid")),
        memory_kib=int(memory_text),
        vcpus=int(vcpus),
        pci=pci,
        mdevs=mdevs,
        networks=tuple(str(source.get("network")) for source in sources if source.get("network")),
        bridges=tuple(str(source.get("bridge")) for source in sources if source.get("bridge")),
        files=tuple(str(file) for file in files if file),
        boot_files=tuple(file for file in boot_files if file),
        host_cpus=_sets(root, "cpuset", "vcpu", "cputune/vcpupin", "cputune/emulatorpin"),
        host_nodes=_sets(root, "nodeset", "numatune/memory", "numatune/memnode"),
        lent=tuple(path for device in root.findall("devices/interface") if (path := lent_path(device))),
    )


def _uuid(text: str | None) -> str:
    if text is None:
        return str(uuid.uuid4())
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise Refused("XML error: malformed uuid element") from error


def _sets(root: Element, attribute: str, *paths: str) -> frozenset[int]:
    found: set[int] = set()
    for element in (element for path in paths for element in root.findall(path)):
        try:
            found |= parse_cpu_set(element.get(attribute), attribute) or frozenset()
        except InvalidConfiguration as error:
            raise Refused(f"invalid argument: Failed to parse bitmap '{element.get(attribute)}'") from error
    return frozenset(found)


def _devices(root: Element) -> Iterable[Element]:
    return [*root.findall("devices/hostdev"), *root.findall("devices/interface")]


def is_pci(device: Element) -> bool:
    """Whether a ``<hostdev>`` or ``<interface>`` takes a PCI function of the host."""
    if device.tag == "interface":
        return device.get("type") == "hostdev"
    return device.get("type") == "pci"


def lent_path(device: Element) -> str | None:
    """The host interface or vDPA character device that an ``<interface>`` takes; None: neither."""
    source = device.find("source")
    if device.tag != "interface" or source is None or device.get("type") not in ("direct", "vdpa"):
        return None
    return source.get("dev")


def lent_use(path: str, machine: Machine) -> PciUse:
    """The function behind a path. Raises Refused where there is no such thing on the host."""
    for address, part in machine.parts().items():
        if machine.driver_of(address) == part.node.driver and path in lent_by(part):
            return PciUse(address, managed=False, lent=True)
    if path.startswith("/"):
        raise Refused(f"Unable to open '{path}' for vdpa device: No such file or directory")
    raise Refused(f"Cannot get interface flags on '{path}': No such device")


@lru_cache(maxsize=8192)
def lent_by(part: Part) -> tuple[str, ...]:
    """What of a function can be lent to a guest while its host driver keeps it."""
    nodes = [parse_node_device(document) for document in part.children]
    return tuple(path for node in nodes for path in (node.net.interface if node.net else None, node.vdpa) if path)


def pci_use(device: Element) -> PciUse:
    """Raises Refused when the source address is missing or wrong."""
    address = device.find("source/address")
    if address is None:
        raise Refused("XML error: Missing <address> element in hostdev source element")
    if device.tag == "hostdev" and device.get("mode", "subsystem") != "subsystem":
        raise Refused(f"XML error: unknown hostdev mode '{device.get('mode')}'")
    numbers = []
    for name, limit in (("domain", 0xFFFFFFFF), ("bus", 0xFF), ("slot", 0x1F), ("function", 7)):
        text = str(address.get(name, "0x0" if name in {"domain", "function"} else ""))
        if not re.fullmatch(r"(0x[0-9a-fA-F]{1,8}|[0-9]{1,10})", text):
            raise Refused(f"XML error: Invalid value for attribute '{name}' in element 'address': '{text}'.")
        number = int(text, 0 if "x" in text else 10)
        if number > limit:
            raise Refused(f"XML error: Invalid PCI address {name}='0x{number:x}', must be <= 0x{limit:X}")
        numbers.append(number)
    managed = device.get("managed", "no")
    if managed not in {"yes", "no"}:
        raise Refused(f"XML error: Invalid value for attribute 'managed' in element '{device.tag}': '{managed}'.")
    domain, bus, slot, function = numbers
    return PciUse(f"{domain:04x}:{bus:02x}:{slot:02x}.{function}", managed == "yes")


def device_use(xml: str, machine: Machine) -> PciUse | None:
    """The function that a device to attach or detach takes, itself or something of it. Raises Refused."""
    device = _device(xml)
    if device.tag in {"hostdev", "interface"} and is_pci(device):
        return pci_use(device)
    path = lent_path(device)
    return lent_use(path, machine) if path else None


def check_network(xml: str, networks: Iterable[str]) -> None:
    """Raises Refused when a device to attach is on a network that isn't there."""
    source = _device(xml).find("source")
    name = None if source is None else source.get("network")
    if name is not None and name not in networks:
        raise Refused(f"Network not found: no network with matching name '{name}'")


def _device(xml: str) -> Element:
    try:
        return parse_xml(xml)
    except ValueError as error:
        raise Refused(f"XML error: (device_definition) {error}") from error


def check_define(document: DomainDocument, domains: Mapping[str, Domain]) -> None:
    for other in domains.values():
        if other.name == document.name and other.uuid != document.uuid:
            raise Refused(f"operation failed: domain '{other.name}' already exists with uuid {other.uuid}")
        if other.uuid == document.uuid and other.name != document.name:
            raise Refused(f"operation failed: domain '{other.name}' is already defined with uuid {other.uuid}")


class Machine(Protocol):
    """The host as the rules see it."""

    def parts(self) -> Mapping[str, Part]: ...

    def driver_of(self, address: str) -> str | None: ...

    def vendor_type(self, address: str) -> str:
        """Number of the vGPU type that a VF carries."""
        ...


def check_resources(document: DomainDocument, networks: Iterable[str], host: HostResources) -> None:
    """CPUs, nodes, networks and files that a domain needs to start."""
    cells = host.topology.cells if host.topology else ()
    nodes = {cell.id for cell in cells} or {0}
    cpus = frozenset().union(*(cell.cpus for cell in cells)) or frozenset(range(host.vcpus))
    if absent := document.host_nodes - nodes:
        raise Refused(f"unsupported configuration: NUMA node {min(absent)} is unavailable")
    if document.host_cpus - cpus:
        path = f"/sys/fs/cgroup/machine/qemu-1-{document.name}.libvirt-qemu/vcpu0/cpuset.cpus"
        raise Refused(f"Unable to write to '{path}': Numerical result out of range")
    known = set(networks)
    for network in document.networks:
        if network not in known:
            raise Refused(f"Network not found: no network with matching name '{network}'")
    for bridge in document.bridges:
        if bridge not in known:
            raise Refused(f"Cannot get interface MTU on '{bridge}': No such device")
    for file in document.files:
        if not Path(file).exists():
            raise Refused(f"Cannot access storage file '{file}': No such file or directory")
    for file in document.boot_files:
        if not Path(file).exists():
            raise Refused(f"unable to stat: {file}: No such file or directory")


def check_devices(uses: Iterable[PciUse], name: str, domains: Mapping[str, Domain], machine: Machine) -> None:
    """Refuses PCI functions that can't be given to domain ``name`` now, in the order in which libvirt and QEMU would."""
    wanted = {use.address: use for use in uses}
    holders = {address: d.name for d in domains.values() if d.running and d.name != name for address in d.held}
    parts = machine.parts()
    for use in wanted.values():
        part = parts.get(use.address)
        if part is None:
            raise _absent(use.address)
        if part.pci.is_bridge:
            raise Refused("internal error: Non-endpoint PCI devices cannot be assigned to guests")
        _check_free(use.address, part, holders)
        if not use.managed and not use.lent and machine.driver_of(use.address) not in VFIO_DRIVERS:
            if not part.vgpu_types:
                raise Refused(
                    f"Requested operation is not valid: Unmanaged PCI device {use.address} must be manually detached from the host"
                )
            if machine.vendor_type(use.address) == NO_TYPE:
                raise Refused(
                    f"internal error: qemu unexpectedly closed the monitor: vfio {use.address}: error getting device from group"
                    f" {part.pci.iommu_group}: No such device"
                )
    for use in wanted.values():
        if use.lent:
            continue
        _check_without_vfs(parts[use.address], holders, machine)
        _check_group(parts[use.address], wanted.keys(), machine)


def _check_free(address: str, part: Part, holders: Mapping[str, str]) -> None:
    def in_use(other: str) -> Refused:
        holder = holders[other]
        return Refused(
            f"Requested operation is not valid: PCI device {other} is in use by driver QEMU, domain {holder}"
        )

    if address in holders:
        raise in_use(address)
    for member in part.pci.iommu_members:
        if member in holders:
            raise in_use(member)
    if part.pci.parent_addr in holders:  # whose driver, when it let go, removed its VFs
        raise _absent(address)


def _absent(address: str) -> Refused:
    path = f"/sys/bus/pci/devices/{address}/config"
    return Refused(f"Device {address} not found: could not access {path}: No such file or directory")


def _check_without_vfs(part: Part, holders: Mapping[str, str], machine: Machine) -> None:
    """libvirt doesn't see that vfio-pci refused a physical function: it misses the group's file in /dev/vfio."""
    vfs = part.pci.virt_functions or ()
    stay = machine.driver_of(part.pci.address) in LEAVES_VFS or any(vf in holders for vf in vfs)
    if vfs and stay:
        raise Refused(f"Path '/dev/vfio/{part.pci.iommu_group}' is not accessible: No such file or directory")


def _check_group(part: Part, wanted: Iterable[str], machine: Machine) -> None:
    """VFIO gives a group as a whole: every other function in it must be on VFIO, on a harmless driver, or on none."""
    present = machine.parts()
    for member in part.pci.iommu_members:
        if member in wanted or member not in present:
            continue
        if blocks_group(machine.driver_of(member), is_bridge=present[member].pci.is_bridge):
            raise Refused(
                "internal error: qemu unexpectedly closed the monitor: qemu-system-x86_64: -device "
                f'{{"driver":"vfio-pci","host":"{part.pci.address}","id":"hostdev0","bus":"pci.1","addr":"0x0"}}: vfio {part.pci.address}: '
                f"group {part.pci.iommu_group} is not viable\n"
                "Please ensure all devices within the iommu_group are bound to their vfio bus driver."
            )


def check_mdevs(uuids: Iterable[str], name: str, domains: Mapping[str, Domain], present: Iterable[str]) -> None:
    known = set(present)
    for wanted in uuids:
        if wanted not in known:
            raise Refused(f"device not found: mediated device '{wanted}' not found")
        holder = next((d.name for d in domains.values() if d.running and d.name != name and wanted in d.mdevs), None)
        if holder:
            raise Refused(
                f"Requested operation is not valid: mediated device /sys/bus/mdev/devices/{wanted} is in use by driver QEMU,"
                f" domain {holder}"
            )

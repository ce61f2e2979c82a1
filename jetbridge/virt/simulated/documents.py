"""Documents as libvirt prints them, written from hardware values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from jetbridge.model.fleet import MdevTypeSpec
from jetbridge.virt.node_xml import pci_node_name
from jetbridge.virt.pci_names import PRODUCTS, VENDORS
from jetbridge.virt.xml import parse_xml

_FEATURES = ("rx", "tx", "sg", "tso", "gso", "gro", "rxvlan", "txvlan")


@dataclass(frozen=True)
class Function:
    """A PCI function to write a document for. ``path`` is its folder in sysfs, ``parent`` a node device's name."""

    address: str
    vendor_id: str
    product_id: str
    class_code: str
    parent: str
    path: str
    numa_node: int | None
    iommu_group: int
    iommu_members: tuple[str, ...]
    driver: str | None = None
    pf: str | None = None
    vfs: tuple[str, ...] | None = None
    max_vfs: int = 0
    card_serial_number: str | None = None
    mdev_types: tuple[MdevTypeSpec, ...] = ()
    bridge: bool = False


def computer_document(host: str, uuid: str) -> str:
    return f"""<device>
  <name>computer</name>
  <capability type='system'>
    <product>Simulated host</product>
    <hardware>
      <vendor>Jetbridge</vendor>
      <serial>{escape(host)}</serial>
      <uuid>{uuid}</uuid>
    </hardware>
    <firmware/>
  </capability>
</device>
"""


@lru_cache(maxsize=8192)
def pci_document(function: Function) -> str:
    """Cached by value, so that hosts with the same card share its document."""
    domain, bus, rest = function.address.split(":")
    slot, number = rest.split(".")
    names = PRODUCTS.get((function.vendor_id, function.product_id))
    lines = [
        "<device>",
        f"  <name>{pci_node_name(function.address)}</name>",
        f"  <path>{function.path}</path>",
        f"  <parent>{function.parent}</parent>",
        *_driver(function.driver),
        "  <capability type='pci'>",
        f"    <class>{function.class_code}</class>",
        f"    <domain>{int(domain, 16)}</domain>",
        f"    <bus>{int(bus, 16)}</bus>",
        f"    <slot>{int(slot, 16)}</slot>",
        f"    <function>{number}</function>",
        _named("product", function.product_id, names[0] if names else None),
        _named("vendor", function.vendor_id, VENDORS.get(function.vendor_id)),
    ]
    if function.pf:
        lines += ["    <capability type='phys_function'>", _address(function.pf), "    </capability>"]
    if function.vfs is not None:
        opening = f"    <capability type='virt_functions' maxCount='{function.max_vfs}'"
        inside = [_address(vf) for vf in function.vfs]
        lines += [f"{opening}>", *inside, "    </capability>"] if inside else [f"{opening}/>"]
    if function.bridge:
        lines.append("    <capability type='pci-bridge'/>")
    if function.mdev_types:
        lines += _mdev_types(function.mdev_types)
    if function.card_serial_number:
        lines += _vpd(function)
    lines.append(f"    <iommuGroup number='{function.iommu_group}'>")
    lines += [_address(member) for member in function.iommu_members]
    lines.append("    </iommuGroup>")
    if function.numa_node is not None:
        lines.append(f"    <numa node='{function.numa_node}'/>")
    lines += [
        "    <pci-express>",
        "      <link validity='cap' port='0' speed='16' width='16'/>",
        "      <link validity='sta' speed='16' width='16'/>",
        "    </pci-express>",
        "  </capability>",
        "</device>",
        "",
    ]
    return "\n".join(lines)


def _driver(driver: str | None) -> list[str]:
    return [] if driver is None else ["  <driver>", f"    <name>{escape(driver)}</name>", "  </driver>"]


def _named(tag: str, number: str, name: str | None) -> str:
    return f"    <{tag} id='0x{number}'>{escape(name)}</{tag}>" if name else f"    <{tag} id='0x{number}'/>"


def _address(address: str) -> str:
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    return f"      <address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/>"


def _mdev_types(types: Iterable[MdevTypeSpec]) -> list[str]:
    lines = ["    <capability type='mdev_types'>"]
    for kind in types:
        lines += [
            f"      <type id={quoteattr(kind.id)}>",
            f"        <name>{escape(kind.name)}</name>",
            f"        <deviceAPI>{escape(kind.device_api)}</deviceAPI>",
            f"        <availableInstances>{kind.available}</availableInstances>",
            "      </type>",
        ]
    return [*lines, "    </capability>"]


def _vpd(function: Function) -> list[str]:
    names = PRODUCTS.get((function.vendor_id, function.product_id))
    return [
        "    <capability type='vpd'>",
        f"      <name>{escape(names[0] if names else f'{function.vendor_id}:{function.product_id}')}</name>",
        "      <fields access='readonly'>",
        f"        <serial_number>{escape(function.card_serial_number or '')}</serial_number>",
        "      </fields>",
        "    </capability>",
    ]


def net_document(function: Function, interface: str, mac: str) -> str:
    features = "".join(f"    <feature name='{feature}'/>\n" for feature in _FEATURES)
    return f"""<device>
  <name>net_{interface}_{mac.replace(":", "_")}</name>
  <path>{function.path}/net/{interface}</path>
  <parent>{pci_node_name(function.address)}</parent>
  <capability type='net'>
    <interface>{interface}</interface>
    <address>{mac}</address>
    <link speed='25000' state='up'/>
{features}    <capability type='80203'/>
  </capability>
</device>
"""


def vdpa_document(function: Function, number: int) -> str:
    return f"""<device>
  <name>vdpa_vdpa{number}</name>
  <path>{function.path}/vdpa{number}</path>
  <parent>{pci_node_name(function.address)}</parent>
  <driver>
    <name>vhost_vdpa</name>
  </driver>
  <capability type='vdpa'>
    <chardev>/dev/vhost-vdpa-{number}</chardev>
  </capability>
</device>
"""


def mdev_document(uuid: str, kind: str, parent: str, parent_path: str, parent_addr: str, group: int) -> str:
    return f"""<device>
  <name>{mdev_name(uuid, parent_addr)}</name>
  <path>{escape(parent_path)}/{uuid}</path>
  <parent>{escape(parent)}</parent>
  <driver>
    <name>vfio_mdev</name>
  </driver>
  <capability type='mdev'>
    <type id={quoteattr(kind)}/>
    <uuid>{uuid}</uuid>
    <parent_addr>{escape(parent_addr)}</parent_addr>
    <iommuGroup number='{group}'/>
  </capability>
</device>
"""


@lru_cache(maxsize=1024)
def not_started(document: str) -> str:
    """The document of an mdev that is defined and not there: it has no place in sysfs."""
    root = parse_xml(document)
    for path in ("path", "driver", "capability/iommuGroup"):
        element = root.find(path)
        above = element.getparent() if element is not None else None
        if element is not None and above is not None:
            above.remove(element)
    return etree.tostring(root, encoding="unicode") + "\n"


def mdev_name(uuid: str, parent_addr: str) -> str:
    return f"mdev_{uuid.replace('-', '_')}_{parent_addr.replace(':', '_').replace('.', '_')}"


@lru_cache(maxsize=4096)
def with_driver(document: str, driver: str | None) -> str:
    """The document of a device whose driver is now another, or none."""
    root = parse_xml(document)
    old = root.find("driver")
    if old is not None:
        root.remove(old)
    if driver is not None:
        new = etree.fromstring(f"<driver>\n    <name>{escape(driver)}</name>\n  </driver>")
        new.tail = "\n  "
        before = root.find("parent")
        root.insert(1 if before is None else root.index(before) + 1, new)
    return etree.tostring(root, encoding="unicode") + "\n"


@lru_cache(maxsize=1024)
def with_available(document: str, left: tuple[tuple[str, int], ...]) -> str:
    """The document of an mdev parent with that many instances of each type available."""
    root = parse_xml(document)
    for kind, count in left:
        for element in root.iter("type"):
            available = element.find("availableInstances")
            if element.get("id") == kind and available is not None:
                available.text = str(count)
    return etree.tostring(root, encoding="unicode") + "\n"

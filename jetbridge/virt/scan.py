"""What a host has to give: every PCI function with what decides whether it can be passed through, and the lines to paste."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jetbridge.errors import PciConfigInvalidSpec
from jetbridge.pci.address import PciAddress
from jetbridge.pci.device import DeviceType
from jetbridge.virt.connection import HostFiles
from jetbridge.virt.nodedev import host_report, parse_node_device
from jetbridge.virt.pci_names import PRODUCTS, VENDORS, class_name
from jetbridge.virt.vfio import VFIO_DRIVERS, blocking_members

# Classes of what people pass through: displays and GPUs, accelerators and co-processors, network, NVMe.
_PASSED_CLASSES = ("0x03", "0x12", "0x0b40", "0x02", "0x0108")


@dataclass(frozen=True)
class GroupMember:
    address: str
    ids: str  # 10de:22ba
    class_name: str
    driver: str | None


@dataclass(frozen=True)
class Suggestion:
    """Lines to paste: ``device_spec`` and ``alias`` into ``[pci]`` of the configuration, ``flavor`` as a property of a
    flavor. The device_spec line selects this function, the alias any of its kind. ``caution``: why somebody has to decide first, so that
    the line is not one to paste as it stands; None: nothing speaks against it."""

    alias_name: str
    device_spec: str
    alias: str
    flavor: str
    caution: str | None = None


@dataclass(frozen=True)
class ScannedFunction:
    """``driver`` and ``iommu_group`` None: none; ``numa_node`` None: unknown; ``group_members`` are the others of its
    IOMMU group. ``suggestion`` None: not something one passes through. ``warnings`` are whole sentences."""

    address: str
    vendor_id: str
    product_id: str
    name: str
    class_name: str
    class_code: str
    dev_type: DeviceType
    numa_node: int | None
    driver: str | None
    iommu_group: str | None
    group_members: tuple[GroupMember, ...] = ()
    warnings: tuple[str, ...] = ()
    suggestion: Suggestion | None = None

    @property
    def ids(self) -> str:
        return f"{self.vendor_id}:{self.product_id}"

    def to_json(self) -> dict[str, Any]:
        """As it crosses the bus and the API: mappings, lists and text only."""
        return {
            **asdict(self),
            "dev_type": self.dev_type.value,
            "group_members": [asdict(member) for member in self.group_members],
            "warnings": list(self.warnings),
        }


def scan(documents: Sequence[str], files: HostFiles, *, host: str = "this host") -> tuple[ScannedFunction, ...]:
    """Every PCI function of a host, in order of address. Changes nothing. Raises ProbeFailed as ``host_report`` does."""
    rows = {row["address"]: row for row in host_report(documents, files, host=host)}
    names = {}
    for document in documents:
        pci = parse_node_device(document).pci
        if pci:
            names[pci.address] = _name(pci.vendor_id, pci.product_id, pci.vendor, pci.product)
    vfs: dict[str, int] = {}
    for row in rows.values():
        if parent := row.get("parent_addr"):
            vfs[parent] = vfs.get(parent, 0) + 1
    return tuple(
        _scanned(rows[address], names[address], rows, vfs.get(address, 0), files)
        for address in sorted(rows, key=_order)
    )


def _order(address: str) -> tuple[int, str]:
    return (len(address), address)


def _scanned(
    row: Mapping[str, Any], name: str, rows: Mapping[str, Mapping[str, Any]], vfs: int, files: HostFiles
) -> ScannedFunction:
    members = tuple(
        _member(rows[address]) for address in row["iommu_members"] if address != row["address"] and address in rows
    )
    passed = row["class"].startswith(_PASSED_CLASSES)
    interface = _interface_of_host(row, files) if passed else None
    suggestion = _suggestion(row, name, _caution(row, vfs, interface)) if passed else None
    return ScannedFunction(
        address=row["address"],
        vendor_id=row["vendor_id"],
        product_id=row["product_id"],
        name=name,
        class_name=class_name(row["class"]),
        class_code=row["class"],
        dev_type=DeviceType(row["dev_type"]),
        numa_node=row["numa_node"],
        driver=row["driver"] or None,
        iommu_group=row["iommu_group"] or None,
        group_members=members,
        warnings=tuple(_warnings(row, rows, vfs, interface)) if passed else (),
        suggestion=suggestion,
    )


def _member(row: Mapping[str, Any]) -> GroupMember:
    ids = f"{row['vendor_id']}:{row['product_id']}"
    return GroupMember(row["address"], ids, class_name(row["class"]), row["driver"] or None)


def _warnings(
    row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], vfs: int, interface: str | None
) -> list[str]:
    address, found = row["address"], []
    if not _assignable(address):
        found.append(f"{address} lies in a PCI domain of more than four digits: it can't be given to guests.")
    if not row["iommu_group"]:
        found.append(
            f"{address} has no IOMMU group: VFIO needs one. Switch the IOMMU on in the firmware and boot with "
            "intel_iommu=on (Intel) or without amd_iommu=off (AMD)."
        )
    for member, driver in blocking_members(address, rows).items():
        other = rows[member]
        found.append(
            f"{member} ({class_name(other['class'])}, {other['vendor_id']}:{other['product_id']}) in the same IOMMU group "
            f"{row['iommu_group']} is on the host driver {driver}: the group is not viable and a guest would not start. "
            f"Bind {member} to vfio-pci too (driverctl set-override {member} vfio-pci)."
        )
    if vfs:
        found.append(
            f"{address} has {vfs} VFs: it can be given whole only while none of them is in use, and not at all when its driver "
            f"leaves them when it lets go (echo 0 > /sys/bus/pci/devices/{address}/sriov_numvfs removes them)."
        )
    if interface:
        found.append(f"{address} is the host's network interface {interface}, which goes away while a guest has it.")
    if row["dev_type"] == DeviceType.VDPA:
        found.append(f"{address} carries a vDPA device: those are given through network ports, not through aliases.")
    return found


def _caution(row: Mapping[str, Any], vfs: int, interface: str | None) -> str | None:
    if vfs:
        return f"instead of its {vfs} VFs, not beside them"
    if interface:
        return f"only if the host can do without {interface}"
    return None if row["iommu_group"] else "once it has an IOMMU group"


def _interface_of_host(row: Mapping[str, Any], files: HostFiles) -> str | None:
    if row["driver"] in VFIO_DRIVERS or row["dev_type"] == DeviceType.VF:
        return None
    return next(iter(_interfaces(row["address"], files)), None)


def _interfaces(address: str, files: HostFiles) -> list[str]:
    """The host's network interfaces on a function; those of virtio cards belong to a device of their own below it."""
    folder = f"/sys/bus/pci/devices/{address}"
    virtio = [name for name in files.list_dir(folder) if name.startswith("virtio")]
    return [
        name for below in ("net", *(f"{name}/net" for name in virtio)) for name in files.list_dir(f"{folder}/{below}")
    ]


def _assignable(address: str) -> bool:
    try:
        PciAddress.parse(address)
    except PciConfigInvalidSpec:
        return False
    return True


def _suggestion(row: Mapping[str, Any], name: str, caution: str | None) -> Suggestion | None:
    if row["dev_type"] == DeviceType.VDPA or not _assignable(row["address"]):
        return None
    ids = {"vendor_id": row["vendor_id"], "product_id": row["product_id"]}
    alias_name = _alias_name(row, name)
    alias = {**ids, "device_type": row["dev_type"], "name": alias_name}
    return Suggestion(
        alias_name=alias_name,
        device_spec=f"device_spec = {json.dumps({**ids, 'address': row['address']})}",
        alias=f"alias = {json.dumps(alias)}",
        flavor=f"pci_passthrough:alias={alias_name}:1",
        caution=caution,
    )


def _alias_name(row: Mapping[str, Any], name: str) -> str:
    """From what people call the card: the name in brackets, as in ``TU104GL [Tesla T4]``."""
    called = re.search(r"\[([^\]]+)\]\s*$", name)
    words = re.sub(r"[^a-z0-9]+", "-", called[1].lower()).strip("-") if called else ""
    base = words or f"{row['vendor_id']}-{row['product_id']}"
    # One name can stand for one device type only, and a card may be met both with and without SR-IOV.
    return base + {DeviceType.VF: "-vf", DeviceType.PF: "-pf"}.get(row["dev_type"], "")


def _name(vendor_id: str, product_id: str, vendor: str | None, product: str | None) -> str:
    known = PRODUCTS.get((vendor_id, product_id))
    product = product or (known[0] if known else None) or f"device {product_id}"
    return f"{vendor or VENDORS.get(vendor_id) or f'vendor {vendor_id}'} {product}"

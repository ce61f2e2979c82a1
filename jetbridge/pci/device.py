"""One assignable function of one host: the record, and its state machine.

The machine is the table ``LIFE``: who may go from which status to which, and what that does to the relatives. A PF and
its VFs (vDPA devices count as VFs) exclude each other: while one of them is owned the other is blocked. The functions
take a host's devices by address (at least the family of the one that moves) and return those that changed.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jetbridge.errors import (
    PciDeviceInvalidOwner,
    PciDeviceInvalidStatus,
    PciDeviceNotFound,
    PciDevicePFInvalidStatus,
    PciDeviceVFInvalidStatus,
)

logger = logging.getLogger(__name__)


class DeviceType(enum.StrEnum):
    PCI = "type-PCI"
    PF = "type-PF"
    VF = "type-VF"
    VDPA = "vdpa"


class Status(enum.StrEnum):
    """The seven words of the field (docs/models.md, Life of a device)."""

    AVAILABLE = "available"
    CLAIMED = "claimed"
    ALLOCATED = "allocated"
    UNCLAIMABLE = "unclaimable"
    UNAVAILABLE = "unavailable"
    REMOVED = "removed"
    DELETED = "deleted"


class Condition(enum.StrEnum):
    """What Jetbridge knows beyond the status. Only devices in condition OK are offered."""

    OK = "ok"
    CLEANING = "cleaning"
    HELD = "held"  # a guest runs with it that isn't its owner's
    ACCELERATOR = "accelerator"  # a guest has it, or another function of its card, from the accelerator service
    UNKNOWN = "unknown"  # the last probe of the host failed: neither free nor gone
    LOST = "lost"  # gone from the host or from device_spec while in use: removed when freed


@dataclass(frozen=True)
class PciDevice:
    """A row of ``pci_devices``.

    ``pool_tags`` are what splits pools, as text or None: every tag of the first device_spec line that matches, except
    ``resource_class``, ``traits``, ``rp_uuid`` and ``rp_uuids``; and for PFs, VFs and vDPA devices ``remote_managed``
    = ``"false"`` when the line doesn't set it.
    ``extra_info`` holds what the field keeps there: ``capabilities`` (JSON text), ``mac_address``,
    ``parent_ifname``, ``managed``, ``live_migratable``, and ours: ``driver`` (host driver before the
    claim), ``iommu_group``, ``last_server`` (who had it, while it waits for its cleaning); and ``rp_uuid``, the Placement provider that stands for it. ``stale_update`` is a host report that applies once the device is free.
    """

    compute_node_id: int
    address: str
    vendor_id: str
    product_id: str
    dev_type: DeviceType
    status: Status = Status.AVAILABLE
    id: int | None = None
    uuid: str = ""
    dev_id: str | None = None
    label: str | None = None
    numa_node: int | None = None
    parent_addr: str | None = None
    instance_uuid: str | None = None
    request_id: str | None = None
    extra_info: Mapping[str, str] = field(default_factory=dict)
    pool_tags: Mapping[str, str | None] = field(default_factory=dict)
    resource_class: str | None = None
    traits: str | None = None
    one_time_use: bool = False
    managed: bool = True
    serial: str | None = None
    condition: Condition = Condition.OK
    stale_update: Mapping[str, Any] | None = None

    @property
    def identity(self) -> str:
        """What the device is, beyond where it is: ids and serial (F28)."""
        serial = f" serial {self.serial}" if self.serial else ""
        return f"{self.address} [{self.vendor_id}:{self.product_id}{serial}]"

    @property
    def owned(self) -> bool:
        return self.status in OWNED

    @property
    def blocked(self) -> bool:
        """Kept from everybody because a relative (its PF, or one of its VFs) is owned."""
        return self.status in BLOCKED


OWNED = frozenset({Status.CLAIMED, Status.ALLOCATED})
BLOCKED = frozenset({Status.UNCLAIMABLE, Status.UNAVAILABLE})
VIRTUAL = frozenset({DeviceType.VF, DeviceType.VDPA})
"""Types that hang on a PF: they and their PF exclude each other."""

Devices = Mapping[str, PciDevice]
"""Devices of one host by address."""

GONE = frozenset({Status.REMOVED, Status.DELETED})


@dataclass(frozen=True)
class Transition:
    """A device goes from one of ``sources`` to ``target``; its relatives have to be in the given statuses.

    ``children_become`` and ``parent_becomes`` map a relative's status to its next; statuses not named stay. None for
    ``children`` or ``parent``: their status doesn't matter.
    """

    sources: frozenset[Status]
    target: Status
    children: frozenset[Status] | None = None
    children_become: Mapping[Status, Status] | None = None
    parent: frozenset[Status] | None = None
    parent_becomes: Mapping[Status, Status] | None = None


def _all_to(target: Status, sources: Iterable[Status]) -> dict[Status, Status]:
    return dict.fromkeys(sources, target)


_A, _U, _N = Status.AVAILABLE, Status.UNCLAIMABLE, Status.UNAVAILABLE

LIFE: Mapping[str, Transition] = {
    "claim": Transition(
        sources=frozenset({_A}),
        target=Status.CLAIMED,
        # A blocked child of an available PF is an inconsistency left by somebody's edit; the next free of the PF heals it.
        children=frozenset({_A, _U, _N}),
        children_become=_all_to(_U, (_A, _N)),
        parent=frozenset({_A, _U, _N}),
        parent_becomes=_all_to(_U, (_A,)),
    ),
    "allocate": Transition(
        sources=frozenset({_A, Status.CLAIMED}),
        target=Status.ALLOCATED,
        children=frozenset({_A, _U}),
        children_become=_all_to(_N, (_A, _U)),
        parent=frozenset({_A, _U, _N}),
        parent_becomes=_all_to(_N, (_A, _U)),
    ),
    "free": Transition(
        sources=OWNED,
        target=_A,
        children_become=_all_to(_A, BLOCKED),
        parent_becomes=_all_to(_A, BLOCKED),  # only once every other child is available, see free()
    ),
    "remove": Transition(sources=frozenset({_A, _U, _N}), target=Status.REMOVED),
}


def claim(devices: Devices, address: str, instance_uuid: str, request_id: str | None = None) -> dict[str, PciDevice]:
    """Reserve a device for a server: available -> claimed.

    Raises ``PciDeviceNotFound``, ``PciDeviceInvalidStatus``, ``PciDeviceVFInvalidStatus`` (one of the PF's VFs is owned)
    or ``PciDevicePFInvalidStatus`` (the VF's PF is owned).
    """
    device = _get(devices, address)
    moved = _move("claim", devices, device)
    moved[address] = replace(moved[address], instance_uuid=instance_uuid, request_id=request_id)
    return moved


def allocate(devices: Devices, address: str, instance_uuid: str) -> dict[str, PciDevice]:
    """The server runs with the device: claimed (by this server) or available -> allocated.

    Raises as ``claim`` does, and ``PciDeviceInvalidOwner`` when another server claimed it.
    """
    device = _get(devices, address)
    if device.status is Status.CLAIMED:
        _check_owner(device, instance_uuid)
    moved = _move("allocate", devices, device)
    moved[address] = replace(moved[address], instance_uuid=instance_uuid)
    return moved


def free(devices: Devices, address: str, instance_uuid: str | None = None) -> dict[str, PciDevice]:
    """Give a device back: claimed or allocated -> available. The relatives that this frees come first in the answer.

    With ``instance_uuid`` only that server's. A PF stays blocked until all its VFs are available, even where those left are
    only claimed. Raises ``PciDeviceNotFound``, ``PciDeviceInvalidStatus`` or ``PciDeviceInvalidOwner``. Call
    ``sync.after_free`` next: what the host reported meanwhile applies then.
    """
    device = _get(devices, address)
    if instance_uuid is not None and device.owned:
        _check_owner(device, instance_uuid)
    moved = _move("free", devices, device)
    parent = _parent(devices, device)
    if parent is not None and any(
        child.status is not Status.AVAILABLE for child in children_of(devices, parent) if child.address != address
    ):
        moved.pop(parent.address, None)
    moved[address] = replace(moved[address], instance_uuid=None, request_id=None)
    return moved


def remove(devices: Devices, address: str) -> dict[str, PciDevice]:
    """Forget a device that nobody owns. Raises ``PciDeviceNotFound``, ``PciDeviceInvalidStatus`` or ``PciDeviceInvalidOwner``."""
    device = _get(devices, address)
    _check_status("remove", device)
    _check_owner(device, None)
    moved = _move("remove", devices, device)
    moved[address] = replace(moved[address], instance_uuid=None, request_id=None)
    return moved


def children_of(devices: Devices, parent: PciDevice) -> list[PciDevice]:
    """The PF's VFs and vDPA devices that are still there."""
    if parent.dev_type in VIRTUAL:
        return []
    return [
        device
        for device in devices.values()
        if device.dev_type in VIRTUAL and device.parent_addr == parent.address and device.status not in GONE
    ]


def settled(devices: Devices) -> dict[str, PciDevice]:
    """The devices whose blocking doesn't agree with their relatives, put right: a free one with an owned relative is
    blocked, a blocked one without is available. Needed when reports add, move or remove relatives."""
    owned_children: dict[str, list[Status]] = {}
    for device in devices.values():
        if device.dev_type in VIRTUAL and device.parent_addr and device.owned:
            owned_children.setdefault(device.parent_addr, []).append(device.status)
    changed = {}
    for address, device in devices.items():
        if device.status in GONE or device.owned:
            continue
        parent = _parent(devices, device)
        owners = [parent.status] if parent is not None and parent.owned else []
        owners += owned_children.get(address, [])
        status = _settled_status(device, owners)
        if status is not device.status:
            changed[address] = replace(device, status=status)
    return changed


def _settled_status(device: PciDevice, owners: list[Status]) -> Status:
    if not owners:
        return Status.AVAILABLE
    if device.blocked:
        return device.status  # which of the two words tells no more than that a relative is owned
    return Status.UNAVAILABLE if Status.ALLOCATED in owners else Status.UNCLAIMABLE


def _get(devices: Devices, address: str) -> PciDevice:
    if address not in devices:
        node = next((device.compute_node_id for device in devices.values()), "unknown host")
        raise PciDeviceNotFound(node_id=node, address=address)
    return devices[address]


def _parent(devices: Devices, device: PciDevice) -> PciDevice | None:
    if device.parent_addr is None:
        return None
    parent = devices.get(device.parent_addr)
    return None if parent is None or parent.status in GONE else parent


def _check_status(action: str, device: PciDevice) -> None:
    sources = LIFE[action].sources
    if device.status not in sources:
        raise PciDeviceInvalidStatus(
            node_id=device.compute_node_id, address=device.address, status=device.status, wanted=_words(sources)
        )


def _check_owner(device: PciDevice, wanted: str | None) -> None:
    if device.instance_uuid != wanted:
        raise PciDeviceInvalidOwner(
            node_id=device.compute_node_id,
            address=device.address,
            owner=device.instance_uuid or "nobody",
            wanted=wanted or "nobody",
        )


def _move(action: str, devices: Devices, device: PciDevice) -> dict[str, PciDevice]:
    """The device and its relatives after ``action``, those that change only, the device last."""
    transition = LIFE[action]
    _check_status(action, device)
    children, parent = children_of(devices, device), _parent(devices, device)
    if transition.children is not None:
        wrong = [child for child in children if child.status not in transition.children]
        if wrong:
            raise PciDeviceVFInvalidStatus(node_id=device.compute_node_id, address=device.address)
        blocked = [child.address for child in children if child.blocked]
        if action == "claim" and blocked:
            logger.warning(
                "PF %s of host %s is claimed while its VFs %s are blocked without an owner",
                device.address,
                device.compute_node_id,
                ", ".join(blocked),
            )
    if parent is not None and transition.parent is not None and parent.status not in transition.parent:
        raise PciDevicePFInvalidStatus(
            pf=parent.address,
            node_id=device.compute_node_id,
            address=device.address,
            status=parent.status,
            wanted=_words(transition.parent),
        )
    moved = {child.address: _becomes(child, transition.children_become) for child in children}
    if parent is not None:
        moved[parent.address] = _becomes(parent, transition.parent_becomes)
    moved = {address: new for address, new in moved.items() if new != devices[address]}
    moved[device.address] = replace(device, status=transition.target)
    return moved


def _becomes(relative: PciDevice, becomes: Mapping[Status, Status] | None) -> PciDevice:
    return replace(relative, status=(becomes or {}).get(relative.status, relative.status))


def _words(statuses: Iterable[Status]) -> str:
    return "[" + ", ".join(sorted(statuses)) + "]"

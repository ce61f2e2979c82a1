"""One assignable function of one host: the record, and its state machine."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    UNKNOWN = "unknown"  # the last probe of the host failed: neither free nor gone
    LOST = "lost"  # gone from the host or from device_spec while in use: removed when freed


@dataclass(frozen=True)
class PciDevice:
    """A row of ``pci_devices``.

    ``pool_tags`` are the tags of the matching device_spec line that split pools, as text.
    ``extra_info`` holds what the field keeps there: ``capabilities`` (JSON text), ``mac_address``,
    ``parent_ifname``, ``managed``, ``live_migratable``, and ours: ``driver`` (host driver before the
    claim), ``iommu_group``. ``stale_update`` is a host report that applies once the device is free.
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

"""Pools: equal free devices of one host, generated on demand and never stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jetbridge.pci.device import DeviceType


@dataclass(frozen=True)
class Pool:
    """``count`` free devices that no request can tell apart.

    ``address`` is the parent's address for VFs and vDPA devices, the device's own otherwise: so a
    PF's pool and the pools of its VFs carry the same address, by which their exclusion is known.
    ``tags`` come from the device_spec line (values are text or None).
    """

    vendor_id: str
    product_id: str
    numa_node: int | None
    dev_type: DeviceType
    address: str
    count: int
    tags: Mapping[str, str | None] = field(default_factory=dict)
    parent_ifname: str | None = None
    rp_uuid: str | None = None

"""Network ports as a source of device requests: what a port asks for, and what its binding profile says of the device it got.

The kinds are the ``binding:vnic_type`` words of the Network API (docs/models.md, Ports).
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jetbridge.pci.device import DeviceType, PciDevice
from jetbridge.pci.request import NumaPolicy, PciRequest
from jetbridge.pci.words import lenient_bool


class VnicType(enum.StrEnum):
    NORMAL = "normal"
    DIRECT = "direct"
    MACVTAP = "macvtap"
    VIRTIO_FORWARDER = "virtio-forwarder"
    DIRECT_PHYSICAL = "direct-physical"
    VDPA = "vdpa"
    REMOTE_MANAGED = "remote-managed"
    ACCELERATOR_DIRECT = "accelerator-direct"
    ACCELERATOR_DIRECT_PHYSICAL = "accelerator-direct-physical"


ACCELERATOR_VNICS = frozenset({VnicType.ACCELERATOR_DIRECT, VnicType.ACCELERATOR_DIRECT_PHYSICAL})
"""Their devices are those of a device profile."""

DEVICE_VNICS = frozenset(VnicType) - ACCELERATOR_VNICS - {VnicType.NORMAL}
"""Each takes one device of a pool."""

PASSED_THROUGH = frozenset({VnicType.DIRECT, VnicType.DIRECT_PHYSICAL, VnicType.REMOTE_MANAGED})
"""The guest drives the function itself, by VFIO."""

UNBOUND_KEYS = (
    "pci_vendor_info",
    "pci_slot",
    "allocation",
    "arq_uuid",
    "physical_network",
    "card_serial_number",
    "vf_num",
    "pf_mac_address",
    "device_mac_address",
)
"""Keys of a binding profile that go when the port is unbound. Others, ``capabilities`` among them, are also written by people, and stay."""

_DEV_TYPES = {VnicType.DIRECT_PHYSICAL: DeviceType.PF, VnicType.VDPA: DeviceType.VDPA}


@dataclass(frozen=True)
class PortWish:
    """What of a port decides about its device. ``physical_network`` is its network's; None: an overlay. ``profile`` is the port's
    ``binding:profile`` as its owner left it."""

    port_id: str
    vnic_type: VnicType
    physical_network: str | None = None
    profile: Mapping[str, Any] = field(default_factory=dict)
    numa_policy: NumaPolicy | None = None


def request_of_port(wish: PortWish, policy: NumaPolicy | None, new_id: Callable[[], str]) -> PciRequest | None:
    """The request for the port's one device; None for ports that take none from a pool.

    ``policy`` is that of flavor or image, which counts where the port has none of its own. What a null ``physical_network``
    means is for the fit to know: only devices that carry the key, with null.
    """
    if wish.vnic_type not in DEVICE_VNICS:
        return None
    properties: dict[str, str | None] = {
        "physical_network": wish.physical_network,
        "remote_managed": str(wish.vnic_type is VnicType.REMOTE_MANAGED),
    }
    if wish.profile.get("trusted") is not None:
        properties["trusted"] = str(lenient_bool(wish.profile["trusted"]))
    dev_type = _DEV_TYPES.get(wish.vnic_type)
    if dev_type is not None:
        properties["dev_type"] = dev_type.value
    return PciRequest(
        request_id=new_id(),
        count=1,
        spec=(properties,),
        requester_id=wish.port_id,
        numa_policy=wish.numa_policy or policy,
    )


def binding_profile(device: PciDevice) -> dict[str, Any]:
    """What the binding profile of a port says of the device it got. ``physical_network`` is the tag of the device's line, which may
    be null; what is only known of some devices is left out where it isn't known."""
    profile: dict[str, Any] = {
        "pci_vendor_info": f"{device.vendor_id}:{device.product_id}",
        "pci_slot": device.address,
        "physical_network": device.pool_tags.get("physical_network"),
    }
    if device.dev_type is DeviceType.VF:
        known = json.loads(device.extra_info.get("capabilities", "{}"))
        sriov = known.get("sriov", {})
        profile |= {name: sriov[name] for name in ("pf_mac_address", "vf_num") if sriov.get(name) is not None}
        if serial := known.get("vpd", {}).get("card_serial_number"):
            profile["card_serial_number"] = serial
        if known.get("network"):
            profile["capabilities"] = known["network"]
    elif device.dev_type is DeviceType.PF and device.extra_info.get("mac_address"):
        profile["device_mac_address"] = device.extra_info["mac_address"]
    return profile


def without_binding(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The profile of a port that is bound to no device any more."""
    return {name: value for name, value in profile.items() if name not in UNBOUND_KEYS}

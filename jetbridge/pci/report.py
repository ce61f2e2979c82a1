"""How a host's report of a device becomes a record, and how to tell that it is another device."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from jetbridge.pci.address import PciAddress
from jetbridge.pci.device import DeviceType, PciDevice
from jetbridge.pci.device_spec import DeviceSpec, card_serial

_RECORD_FIELDS = frozenset(field.name for field in fields(PciDevice)) - {"managed"}
_KEPT_FROM_REPORTS = frozenset({"id", "uuid", "compute_node_id", "status", "instance_uuid", "request_id", "extra_info"})
_FROM_SPEC = frozenset({"pool_tags", "resource_class", "traits", "one_time_use", "serial", "condition", "stale_update"})
_REPORTED_EXTRAS = frozenset(
    {
        "capabilities",
        "parent_ifname",
        "mac_address",
        "managed",
        "live_migratable",
        "driver",
        "iommu_group",
        "pcie_path",
        "switch",
        "fabric",
    }
)


def create_device(
    report: Mapping[str, Any], spec: DeviceSpec, compute_node_id: int, new_uuid: Callable[[], str]
) -> PciDevice:
    """A new available device as the host reports it, with what the matching line says of it."""
    device = PciDevice(
        compute_node_id=compute_node_id,
        address=str(PciAddress.parse(report["address"])),
        vendor_id=report["vendor_id"],
        product_id=report["product_id"],
        dev_type=DeviceType(report["dev_type"]),
        uuid=new_uuid(),
    )
    return update_device(device, report, spec)


def update_device(device: PciDevice, report: Mapping[str, Any], spec: DeviceSpec) -> PciDevice:
    """The device with a newer report and line applied. Status, owner, request, condition and ids of the row stay.

    Entries of a report that are no fields of the record go to ``extra_info`` (text as it is, other values as JSON
    text, null left out). A missing ``parent_addr`` is none; entries of earlier reports that are missing now go away.
    """
    merged = {**report}
    for name in ("managed", "live_migratable"):
        merged.pop(name, None)
        if spec.tags.get(name) is not None:
            merged[name] = spec.tags[name]
    extra_info = {name: value for name, value in device.extra_info.items() if name not in _REPORTED_EXTRAS}
    own: dict[str, Any] = {"parent_addr": None}
    for name, value in merged.items():
        if name in _KEPT_FROM_REPORTS or name in _FROM_SPEC:
            continue
        if name in _RECORD_FIELDS:
            own[name] = value
        elif value is not None:
            extra_info[name] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    own["address"] = device.address
    own["dev_type"] = DeviceType(own.get("dev_type", device.dev_type))
    return replace(
        device,
        **own,
        extra_info=extra_info,
        managed=spec.tags.get("managed") != "false",
        pool_tags=spec.pool_tags(own["dev_type"]),
        resource_class=spec.tags.get("resource_class"),
        traits=spec.tags.get("traits"),
        one_time_use=spec.tags.get("one_time_use") == "true",
        serial=card_serial(report.get("capabilities")),
    )


def identity_mismatch(device: PciDevice, report: Mapping[str, Any]) -> str | None:
    """What the host reports at the device's address, when that is another device than the record's; None: the same.

    Serials are compared only when both are known: vital product data can't always be read while a guest has the card.
    """
    serial = card_serial(report.get("capabilities"))
    found = replace(device, vendor_id=report["vendor_id"], product_id=report["product_id"], serial=serial)
    same_ids = (found.vendor_id, found.product_id) == (device.vendor_id, device.product_id)
    same_serial = serial is None or device.serial is None or serial == device.serial
    return None if same_ids and same_serial else found.identity

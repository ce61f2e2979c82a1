"""What a complete report of a host changes in its devices, and what waits until they are free.

A probe that failed or was partial is never synchronised: nothing can be concluded from it. ``mark_unknown`` says so on
the devices until a complete report arrives.
"""

from __future__ import annotations

import enum
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jetbridge.errors import PciConfigInvalidSpec
from jetbridge.pci import device as life
from jetbridge.pci.address import PciAddress
from jetbridge.pci.device import Condition, PciDevice, Status
from jetbridge.pci.device_spec import DeviceSpec, first_match
from jetbridge.pci.report import create_device, identity_mismatch, update_device

logger = logging.getLogger(__name__)

Report = Mapping[str, Any]


class WarningKind(enum.StrEnum):
    GONE = "gone"  # in use, and the host doesn't report it any more
    UNCOVERED = "uncovered"  # in use, and no device_spec line matches it any more
    REPLACED = "replaced"  # in use, and another device answers at its address


@dataclass(frozen=True)
class SyncWarning:
    """Something about a device in use that a person has to look at. ``new``: this pass found it; otherwise it was so before."""

    kind: WarningKind
    address: str
    server: str | None
    text: str
    new: bool


@dataclass(frozen=True)
class SyncResult:
    """The rows to write, and what to tell.

    ``created``: new devices. ``updated``: existing ones that changed, relatives and held ones included. ``removed``: with status
    removed. ``held``: all devices in use that are to go once they are free, changed or not. ``skipped``: addresses that can't
    be assigned by anybody (32-bit PCI domains).
    """

    created: tuple[PciDevice, ...] = ()
    updated: tuple[PciDevice, ...] = ()
    removed: tuple[PciDevice, ...] = ()
    held: tuple[PciDevice, ...] = ()
    warnings: tuple[SyncWarning, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def changed(self) -> tuple[PciDevice, ...]:
        """All rows to write."""
        return self.created + self.updated + self.removed


def synchronise(
    existing: Iterable[PciDevice],
    reports: Iterable[Report],
    specs: Sequence[DeviceSpec],
    compute_node_id: int,
    new_uuid: Callable[[], str],
) -> SyncResult:
    """Compare a host's devices with a complete report of it.

    Free devices follow the report at once, in use they keep what they are and note the report as a stale update. A device
    that is gone, or that no line matches any more, is removed when free and held (condition lost) while in use.
    Raises ``PciDeviceWrongAddressFormat`` when the report holds text that is no PCI address.
    """
    before = {device.address: device for device in existing if device.status not in life.GONE}
    reported, matched, skipped = _matched(reports, specs)
    after: dict[str, PciDevice] = {}
    warnings: list[SyncWarning] = []
    for address, device in before.items():
        if address in matched:
            after[address] = _follow(device, *matched[address])
            warning = _replaced_warning(device, matched[address][0])
        elif device.owned or device.instance_uuid is not None:
            after[address] = replace(device, condition=Condition.LOST)
            warning = _lost_warning(device, reported.get(address))
        else:
            after[address] = life.remove(before, address)[address]
            warning = None
        if warning:
            warnings.append(warning)
    for address in sorted(matched.keys() - before.keys()):
        after[address] = create_device(*matched[address], compute_node_id, new_uuid)
    after.update(life.settled(after))
    return SyncResult(
        created=tuple(device for address, device in after.items() if address not in before),
        updated=tuple(
            device
            for address, device in after.items()
            if address in before and device != before[address] and device.status is not Status.REMOVED
        ),
        removed=tuple(device for device in after.values() if device.status is Status.REMOVED),
        held=tuple(device for device in after.values() if device.condition is Condition.LOST),
        warnings=tuple(warnings),
        skipped=skipped,
    )


def after_free(
    devices: Mapping[str, PciDevice], addresses: Iterable[str], specs: Sequence[DeviceSpec]
) -> dict[str, PciDevice]:
    """What was waiting until these devices were free, to be applied right after ``free`` in the same transaction.

    ``devices`` are the host's (at least their families) as ``free`` left them. Held devices are removed; noted reports
    apply. Answers the changed devices by address, relatives included.
    """
    current = dict(devices)
    changed: dict[str, PciDevice] = {}
    for address in addresses:
        device = current[address]
        if device.owned or device.status in life.GONE:
            continue
        stale = device.stale_update
        if device.condition is Condition.LOST:
            changed.update(life.remove(current, address))
        elif stale is not None:
            spec = first_match(specs, stale)
            if spec is None:
                changed.update(life.remove(current, address))
            else:
                changed[address] = replace(update_device(device, stale, spec), stale_update=None)
        current.update(changed)
    settled = life.settled(current)
    return {**changed, **settled}


def mark_unknown(devices: Iterable[PciDevice]) -> tuple[PciDevice, ...]:
    """The host's probe failed: the devices that change, to be offered to nobody until the host is known again."""
    return tuple(replace(device, condition=Condition.UNKNOWN) for device in devices if device.condition is Condition.OK)


def mark_known(devices: Iterable[PciDevice]) -> tuple[PciDevice, ...]:
    """The reverse of ``mark_unknown``, for devices that a probe has just confirmed."""
    return tuple(replace(device, condition=Condition.OK) for device in devices if device.condition is Condition.UNKNOWN)


def _matched(
    reports: Iterable[Report], specs: Sequence[DeviceSpec]
) -> tuple[dict[str, Report], dict[str, tuple[Report, DeviceSpec]], tuple[str, ...]]:
    """All reports by address, those that a line matches with that line, and the addresses that can't be read."""
    reported: dict[str, Report] = {}
    matched: dict[str, tuple[Report, DeviceSpec]] = {}
    skipped: list[str] = []
    for report in reports:
        try:
            address = str(PciAddress.parse(report["address"]))
            spec = first_match(specs, report)
        except PciConfigInvalidSpec as error:
            logger.debug("Device %s can't be assigned: %s", report["address"], error)
            skipped.append(report["address"])
            continue
        reported[address] = report
        if spec is not None:
            matched[address] = report, spec
    return reported, matched, tuple(skipped)


def _follow(device: PciDevice, report: Report, spec: DeviceSpec) -> PciDevice:
    # A report of the host doesn't say whether it is clean, or who runs with it.
    kept = device.condition in (Condition.CLEANING, Condition.HELD, Condition.ACCELERATOR)
    known = replace(device, condition=device.condition if kept else Condition.OK)
    if not device.owned:
        return replace(update_device(known, report, spec), stale_update=None)
    noted = _as_before_use(device, report)
    would_be = update_device(known, noted, spec)
    return replace(known, stale_update=None if would_be == known else noted)


def _as_before_use(device: PciDevice, report: Report) -> Report:
    """The report of a device in use with what it has only under its own driver: while VFIO drives it for a guest its network
    interface, and what is read through that, are gone, which is no change of the device."""
    noted = {name: value for name, value in report.items() if name != "driver"}
    for name in ("driver", "mac_address", "parent_ifname"):
        if name in device.extra_info and noted.get(name) is None:
            noted[name] = device.extra_info[name]
    recorded = json.loads(device.extra_info.get("capabilities", "{}"))
    if recorded:
        noted["capabilities"] = {**recorded, **(report.get("capabilities") or {})}
    return noted


def _replaced_warning(device: PciDevice, report: Report) -> SyncWarning | None:
    found = identity_mismatch(device, report) if device.owned else None
    if found is None:
        return None
    return SyncWarning(
        kind=WarningKind.REPLACED,
        address=device.address,
        server=device.instance_uuid,
        text=f"server {device.instance_uuid} owns {device.identity}, but the host now has {found}: the record stays "
        "until the server gives it back; stop the server before it uses the wrong device",
        new=device.stale_update is None or identity_mismatch(device, device.stale_update) != found,
    )


def _lost_warning(device: PciDevice, report: Report | None) -> SyncWarning:
    found = None if report is None else identity_mismatch(device, report)
    if found is not None:
        kind, why = WarningKind.REPLACED, f"the host now has {found} in its place: put it back"
    elif report is not None:
        kind, why = WarningKind.UNCOVERED, "no [pci]device_spec line matches it any more: restore the line"
    else:
        kind, why = WarningKind.GONE, "the host doesn't report it any more: put it back"
    return SyncWarning(
        kind=kind,
        address=device.address,
        server=device.instance_uuid,
        text=f"device {device.identity} is {device.status}{' by' if device.owned else ', but its row names'} server "
        f"{device.instance_uuid}, and {why}, or move the server; the device is removed when the server gives it back",
        new=device.condition is not Condition.LOST,
    )

"""One-time-use devices, and others that are cleaned between two servers: what a claim, a release, a report and a cleaning change on
their rows. Pure.

The mark in ``extra_info``: ``used`` from the claim on, ``reserved`` once Placement has set the device apart, ``cleaned`` when it may be
given again and Placement doesn't know yet.
"""

from __future__ import annotations

from dataclasses import replace

from jetbridge.pci.device import GONE, Condition, PciDevice
from jetbridge.placement.pci_tree import CLEANED, MARK, RESERVED, USED

LAST_SERVER = "last_server"
"""In ``extra_info`` of a device that waits for its cleaning: who had it."""


def after_claim(device: PciDevice) -> PciDevice:
    return _marked(device, USED) if device.one_time_use else device


def after_release(device: PciDevice, *, cleaner: bool, in_placement: bool, server: str | None = None) -> PciDevice:
    """``server`` had it, which the record of the cleaning names. ``cleaner``: the host has one; ``in_placement``: devices are chosen by their providers.

    Without a cleaner, a device that Placement has set apart is Placement's to give again, at once when an operator lowers what is
    reserved. One that Placement doesn't keep from others is kept by its condition.
    """
    if device.owned or device.status in GONE or device.condition is not Condition.OK:
        return device
    kept_by_placement = in_placement and device.extra_info.get(MARK) == RESERVED
    if cleaner or (device.one_time_use and MARK in device.extra_info and not kept_by_placement):
        had = {} if server is None else {LAST_SERVER: server}
        return replace(device, condition=Condition.CLEANING, extra_info={**device.extra_info, **had})
    return device


def after_report(
    device: PciDevice, reserved: int, *, one_time_use: bool, cleaner: bool, in_placement: bool
) -> PciDevice:
    """``reserved``: of its provider, as Placement has it now. ``one_time_use``: as its line says now, the row of a device in use may be
    older."""
    mark = device.extra_info.get(MARK)
    if reserved > 0 and (mark == USED or (one_time_use and device.owned and mark != RESERVED)):
        waits = not device.owned and device.condition is Condition.CLEANING and in_placement and not cleaner
        return replace(_marked(device, RESERVED), condition=Condition.OK if waits else device.condition)
    if mark == RESERVED and reserved == 0 and not device.owned and not cleaner:  # an operator says that it is clean
        return cleaned(device, reported=True)
    return _marked(device, None) if mark == CLEANED and reserved == 0 else device


def returned(device: PciDevice, before: PciDevice, *, cleaner: bool) -> PciDevice:
    """A device that was gone for a while, or that no line matched. ``before``: its row then. Being away made it no cleaner."""
    if (device.vendor_id, device.product_id, device.serial) != (before.vendor_id, before.product_id, before.serial):
        return device  # another card in its place
    if device.one_time_use and before.extra_info.get(MARK) in (USED, RESERVED):
        return replace(_marked(device, USED), condition=Condition.CLEANING)
    waited = before.condition is Condition.CLEANING and MARK not in before.extra_info
    if waited or (cleaner and before.condition is Condition.LOST):  # lost is what a server had
        return replace(device, condition=Condition.CLEANING)
    return device


def cleaned(device: PciDevice, *, reported: bool = False) -> PciDevice:
    """It may be given again. ``reported``: Placement knows."""
    has_mark = MARK in device.extra_info and not reported
    condition = Condition.OK if device.condition is Condition.CLEANING else device.condition
    marked = _marked(device, CLEANED if has_mark else None)
    extra = {name: value for name, value in marked.extra_info.items() if name != LAST_SERVER}
    return replace(marked, condition=condition, extra_info=extra)


def waits(device: PciDevice) -> bool:
    """Whether a free device has to be cleaned before it is given again: by its condition, or kept by Placement."""
    return device.condition is Condition.CLEANING or device.extra_info.get(MARK) in (USED, RESERVED)


def _marked(device: PciDevice, mark: str | None) -> PciDevice:
    extra = {name: value for name, value in device.extra_info.items() if name != MARK}
    return replace(device, extra_info=extra if mark is None else {**extra, MARK: mark})

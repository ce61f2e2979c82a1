"""A host's PCI devices as resource providers. Pure.

One provider per device, named after the host and the address; virtual functions are inventory of their physical function's provider,
and no provider lies below another one (docs/models.md, PCI devices in Placement).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetbridge.errors import (
    PlacementPciDependentDeviceException,
    PlacementPciException,
    PlacementPciMixedResourceClassException,
    PlacementPciMixedTraitsException,
)
from jetbridge.model.provider import Inventory, Provider, Seen
from jetbridge.pci.device import GONE, VIRTUAL, PciDevice
from jetbridge.pci.device_spec import DeviceSpec, first_match
from jetbridge.placement.groups import OWNER_TRAIT
from jetbridge.placement.names import resource_class_name, trait_names

MANAGED = "COMPUTE_MANAGED_PCI_DEVICE"
LIVE_MIGRATABLE = "HW_PCI_LIVE_MIGRATABLE"
ONE_TIME_USE = "HW_PCI_ONE_TIME_USE"

MARK = "one_time_use"
"""Entry of a device's ``extra_info``: where a one-time-use device is on its way from one server to the next."""
USED, RESERVED, CLEANED = "used", "reserved", "cleaned"


@dataclass(frozen=True)
class PciTree:
    """``devices``: the provider's name by address, of the devices that it stands for. ``heal``: what the owners of devices must have
    allocated and haven't (consumer, provider's name, class, amount). ``warnings`` name device, server and what to do."""

    providers: tuple[Provider, ...] = ()
    devices: Mapping[str, str] = field(default_factory=dict)
    heal: tuple[tuple[str, str, str, int], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass
class _Draft:
    """A provider while its devices are gathered. ``held``: in use, and no line of device_spec covers them any more."""

    name: str
    resource_class: str | None = None
    traits: frozenset[str] = frozenset()
    devices: list[PciDevice] = field(default_factory=list)
    held: list[PciDevice] = field(default_factory=list)
    reserved: int | None = None  # None: as it is in Placement


def provider_name(node: str, address: str) -> str:
    """``node`` is the hypervisor's host name."""
    return f"{node}_{address.upper()}"


def check_specs(specs: Iterable[DeviceSpec]) -> None:
    """Raises ``PlacementPciException`` when a line selects its device by an interface's name: names move, providers stay."""
    for spec in specs:
        if spec.devname is not None:
            raise PlacementPciException(
                error=f"[pci]device_spec line {spec.position} {spec.text} uses devname, which can't be reported to Placement:"
                " write the device's address instead, or switch [pci]report_in_placement off before it was ever on"
            )


def pci_tree(
    node: str, devices: Iterable[PciDevice], specs: Sequence[DeviceSpec], seen: Mapping[str, Seen] | None = None
) -> PciTree:
    """The providers of a host's devices. ``seen``: those that the host has in Placement now, by name.

    Devices with a ``physical_network`` are left out. A provider's total is what its lines offer and what is held, or what is used of
    it in Placement when that is more; a provider that is used stays, though nothing stands behind it. Raises ``PlacementPciException``
    or one of its kinds, naming the devices and both values.
    """
    check_specs(specs)
    seen = seen or {}
    drafts: dict[str, _Draft] = {}
    warnings: list[str] = []
    for device in sorted(devices, key=lambda device: device.address):
        if device.status in GONE:
            continue
        spec = first_match(specs, _as_report(device))
        if (device.pool_tags if spec is None else spec.tags).get("physical_network"):
            continue
        if spec is None and device.instance_uuid is None:
            warnings.append(
                f"device {device.identity} is free, and no [pci]device_spec line matches it: it is not reported"
            )
            continue
        address = _provider_address(device)
        draft = drafts.setdefault(address, _Draft(provider_name(node, address)))
        if spec is None:
            warnings.append(
                f"device {device.identity} is used by server {device.instance_uuid}, and no [pci]device_spec line matches it: restore"
                f" the line, or delete the server; until then provider {draft.name} stays, and offers the device to nobody"
            )
            draft.held.append(device)
        else:
            _add(draft, device, spec)
    for name, provider in seen.items():
        if provider.usage and all(draft.name != name for draft in drafts.values()):
            warnings.append(f"provider {name} stays although its device is gone: {_users(provider)} still uses it")
            drafts[name] = _Draft(name)
    providers = tuple(_provider(draft, seen.get(draft.name, Seen())) for draft in drafts.values())
    return PciTree(
        providers=providers,
        devices={device.address: draft.name for draft in drafts.values() for device in (*draft.devices, *draft.held)},
        heal=tuple(
            missing
            for draft, provider in zip(drafts.values(), providers, strict=True)
            for missing in _missing(draft, provider, seen.get(draft.name, Seen()))
        ),
        warnings=tuple(warnings),
    )


def _as_report(device: PciDevice) -> dict[str, Any]:
    return {
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "parent_addr": device.parent_addr,
        "capabilities": device.extra_info.get("capabilities"),
    }


def _provider_address(device: PciDevice) -> str:
    if device.dev_type not in VIRTUAL:
        return device.address
    if device.parent_addr is None:
        raise PlacementPciException(
            error=f"device {device.address} is of type {device.dev_type}, but the host doesn't tell its physical function: without it"
            " the device has no provider; take it out of [pci]device_spec"
        )
    return device.parent_addr


def _add(draft: _Draft, device: PciDevice, spec: DeviceSpec) -> None:
    name = resource_class_name(spec.tags.get("resource_class"), device.vendor_id, device.product_id)
    one_time_use = spec.tags.get("one_time_use") == "true"
    traits = trait_names(spec.tags.get("traits")) | {MANAGED}
    if spec.tags.get("live_migratable") == "true":
        traits |= {LIVE_MIGRATABLE}
    if one_time_use:
        traits |= {ONE_TIME_USE}
    if draft.devices:
        _check_sibling(draft, device, name, traits)
    if device.dev_type in VIRTUAL and "one_time_use" in spec.tags:
        raise PlacementPciException(
            error=f"[pci]device_spec line {spec.position} {spec.text} has one_time_use, which only devices of type type-PCI and type-PF can"
            f" have, and it matches {device.address} ({device.dev_type}) of provider {draft.name}: take one_time_use out of the line"
        )
    draft.resource_class, draft.traits = name, traits
    draft.devices.append(device)
    draft.reserved = _reserved(device) if one_time_use else None


def _check_sibling(draft: _Draft, device: PciDevice, resource_class: str, traits: frozenset[str]) -> None:
    current = ",".join(each.address for each in draft.devices)
    if device.dev_type not in VIRTUAL or draft.devices[0].dev_type not in VIRTUAL:
        raise PlacementPciDependentDeviceException(device=device.address, current=current)
    if resource_class != draft.resource_class:
        raise PlacementPciMixedResourceClassException(
            new_class=resource_class, device=device.address, current_class=draft.resource_class, current=current
        )
    if traits != draft.traits:
        raise PlacementPciMixedTraitsException(
            new_traits=",".join(sorted(traits)),
            device=device.address,
            current_traits=",".join(sorted(draft.traits)),
            current=current,
        )


def _check_held(draft: _Draft) -> None:
    for device in draft.held:
        if draft.devices and (device.dev_type in VIRTUAL) != (draft.devices[0].dev_type in VIRTUAL):
            raise PlacementPciDependentDeviceException(
                device=f"{device.address} (used by server {device.instance_uuid})",
                current=",".join(each.address for each in draft.devices),
            )


def _reserved(device: PciDevice) -> int | None:
    mark = device.extra_info.get(MARK)
    if device.owned or mark == USED:
        return 1
    # Set apart once, it is lowered by nobody but who cleans: that may be an operator, whose word stays.
    return 0 if mark == CLEANED else None


def _provider(draft: _Draft, seen: Seen) -> Provider:
    usage = seen.usage
    _check_held(draft)
    if draft.resource_class is None:
        draft.resource_class, draft.traits = _kept_facts(draft, seen)
    elif usage.keys() - {draft.resource_class}:
        others = ", ".join(sorted(usage.keys() - {draft.resource_class}))
        raise PlacementPciException(
            error=f"provider {draft.name} is to offer {draft.resource_class} for {','.join(each.address for each in draft.devices)}, but"
            f" {_users(seen)} still uses {others} of it (inventory in use): restore the [pci]device_spec line, or delete the server first"
        )
    total = max(len(draft.devices) + len(draft.held), usage.get(draft.resource_class, 0))
    return Provider(
        name=draft.name,
        inventories={draft.resource_class: Inventory(total=total, max_unit=total, reserved=draft.reserved)},
        traits=draft.traits | {OWNER_TRAIT},
    )


def _kept_facts(draft: _Draft, seen: Seen) -> tuple[str, frozenset[str]]:
    """Class and traits of a provider that no line describes any more: as Placement has them, else as the record of its device."""
    record = draft.held[0] if draft.held else None
    if record is not None and record.one_time_use:
        draft.reserved = _reserved(record)
    if seen.usage:
        return min(seen.usage), seen.traits
    assert record is not None
    traits = trait_names(record.traits) | {MANAGED}
    if record.pool_tags.get("live_migratable") == "true":
        traits |= {LIVE_MIGRATABLE}
    if record.one_time_use:
        traits |= {ONE_TIME_USE}
    return resource_class_name(record.resource_class, record.vendor_id, record.product_id), traits


def _missing(draft: _Draft, provider: Provider, seen: Seen) -> list[tuple[str, str, str, int]]:
    (name,) = provider.inventories
    owners: dict[str, int] = {}
    for device in (*draft.devices, *draft.held):
        if device.owned and device.instance_uuid is not None:
            owners[device.instance_uuid] = owners.get(device.instance_uuid, 0) + 1
    return [
        (owner, draft.name, name, count)
        for owner, count in owners.items()
        if seen.allocations.get(owner, {}).get(name, 0) != count
    ]


def _users(seen: Seen) -> str:
    users = sorted(consumer for consumer, amounts in seen.allocations.items() if any(amounts.values()))
    return f"server {users[0]}" if len(users) == 1 else f"servers {', '.join(users)}"

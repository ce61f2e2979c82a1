"""How many devices of a request's ids there are on all hosts, free or not: whether waiting helps, or the request names ids nobody has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jetbridge.pci.device import DeviceType
from jetbridge.pci.request import PciRequest, Properties
from jetbridge.reasons import counted


@dataclass(frozen=True)
class Existing:
    """Devices of one kind on all hosts, and how many of them can be given out."""

    vendor_id: str
    product_id: str
    dev_type: DeviceType
    devices: int
    free: int


def in_all(requests: Sequence[PciRequest], existing: Callable[[], Sequence[Existing]]) -> Mapping[str, str]:
    """By alias of which there are devices: ``8 devices of GPU in all, 2 of them free``. Ports are left out: they name no ids. ``existing``:
    the devices that there are; not asked when no request has an alias."""
    told: dict[str, str] = {}
    aliased = [(request.alias_name, request.spec) for request in requests if request.alias_name]
    kinds = existing() if aliased else ()
    for alias, alternatives in aliased:
        of_it = [kind for kind in kinds if any(_is_of(kind, alternative) for alternative in alternatives)]
        if of_it:
            devices, free = sum(kind.devices for kind in of_it), sum(kind.free for kind in of_it)
            of_alias = f"{counted(devices, 'device')} of {alias} in all"
            told[alias] = f"{of_alias}, {free or 'none'} of them free"
    return told


def _is_of(kind: Existing, alternative: Properties) -> bool:
    have = {"vendor_id": kind.vendor_id, "product_id": kind.product_id, "dev_type": kind.dev_type.value}
    named = {name: wanted for name, wanted in alternative.items() if wanted and name in have}
    return bool(named) and all(wanted.lower() == have[name].lower() for name, wanted in named.items())

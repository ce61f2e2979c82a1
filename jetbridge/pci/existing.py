"""How many devices of a request's ids there are on all hosts, free or not: whether waiting helps, or the request names ids nobody has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jetbridge.pci.device import DeviceType
from jetbridge.pci.request import PciRequest, Properties
from jetbridge.reasons import counted


@dataclass(frozen=True)
class Existing:
    """Devices of one kind on all hosts, and how many of them can be given out. ``cleaning`` wait for it, or it failed; ``reserved`` were used
    and are kept back in Placement until they are cleaned. ``resource_class`` as Placement names it."""

    vendor_id: str
    product_id: str
    dev_type: DeviceType
    devices: int
    free: int
    cleaning: int = 0
    reserved: int = 0
    resource_class: str | None = None


def in_all(
    requests: Sequence[PciRequest],
    existing: Callable[[], Sequence[Existing]],
    classes: Mapping[str, str] | None = None,
) -> Mapping[str, str]:
    """By alias of which there are devices: ``8 devices of GPU in all, 2 of them free``. Ports are left out: they name no ids. ``existing``:
    the devices that there are; not asked when no request has an alias. ``classes``: by request id, the resource class that Placement is
    asked for: devices of others are not of the alias, whatever their ids."""
    told: dict[str, str] = {}
    aliased = [(request.alias_name, request) for request in requests if request.alias_name]
    kinds = existing() if aliased else ()
    for alias, request in aliased:
        wanted = (classes or {}).get(request.request_id)
        of_it = [kind for kind in kinds if any(_is_of(kind, alternative, wanted) for alternative in request.spec)]
        if of_it:
            told[alias] = _counted(alias, of_it)
    return told


def _counted(alias: str, kinds: Sequence[Existing]) -> str:
    free, cleaning, reserved = (sum(getattr(kind, name) for kind in kinds) for name in ("free", "cleaning", "reserved"))
    parts = [
        f"{counted(sum(kind.devices for kind in kinds), 'device')} of {alias} in all",
        f"{free or 'none'} of them free",
    ]
    if cleaning:
        verb = "waits for its cleaning" if cleaning == 1 else "wait for their cleaning"
        parts.append(f"{cleaning} {verb} (jetbridge devices tells how it goes)")
    if reserved:
        verb = "is" if reserved == 1 else "are"
        parts.append(
            f"{reserved} {verb} reserved in Placement (used one-time-use: jetbridge devices clean HOST ADDRESS)"
        )
    return ", ".join(parts)


def _is_of(kind: Existing, alternative: Properties, resource_class: str | None) -> bool:
    if resource_class is not None and kind.resource_class != resource_class:
        return False
    have = {"vendor_id": kind.vendor_id, "product_id": kind.product_id, "dev_type": kind.dev_type.value}
    named = {name: wanted for name, wanted in alternative.items() if wanted and name in have}
    return bool(named or resource_class) and all(wanted.lower() == have[name].lower() for name, wanted in named.items())

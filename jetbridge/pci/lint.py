"""Lines of ``[pci]device_spec`` that are legal but surely meant otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jetbridge.pci.address import ANY, FIELDS, GlobPattern
from jetbridge.pci.device_spec import KNOWN_TAGS, SELECTORS, DeviceSpec, Report, first_match
from jetbridge.pci.words import nearest

ALIAS_FIELDS = ("name", "device_type", "dev_type", "numa_policy", "numa_node")
"""Keys that say something in ``[pci]alias``, or are the device's own: as tags of a line they do nothing."""


@dataclass(frozen=True)
class ShadowedSpec:
    """A line that an earlier, broader one keeps from (some of) its devices: the first match wins, alone.

    ``certain``: it can't match anything, or matches none of the host's devices. ``addresses``: devices that the earlier line took.
    """

    spec: DeviceSpec
    by: DeviceSpec
    certain: bool
    addresses: tuple[str, ...]
    text: str


def shadowed_specs(specs: Sequence[DeviceSpec], reports: Sequence[Report] | None = None) -> list[ShadowedSpec]:
    """Lines that an earlier line shadows, in order, each with the first that does.

    Judged by the host's devices where ``reports`` are given, otherwise by what the lines could match. A narrow line before
    a broad one is how exceptions are written and is no shadow.
    """
    found = []
    for position, spec in enumerate(specs):
        for earlier in specs[:position]:
            shadow = _shadow(spec, earlier, specs, reports)
            if shadow:
                found.append(shadow)
                break
    return found


@dataclass(frozen=True)
class SuspiciousKey:
    """A key that is legal (as a private tag) but surely meant otherwise. ``nearest``: the key that was probably meant."""

    spec: DeviceSpec
    key: str
    nearest: str | None
    text: str


def suspicious_keys(specs: Sequence[DeviceSpec]) -> list[SuspiciousKey]:
    """Keys like ``vendorid`` or ``physical_networks``, in order. Private tags that look like nothing known pass."""
    found = []
    for spec in specs:
        for key in spec.tags:
            if key in ALIAS_FIELDS:
                text = f"{key} belongs in [pci]alias, in [pci]device_spec it selects nothing"
                found.append(_suspicious(spec, key, None, text))
            elif key not in KNOWN_TAGS and (near := nearest(key, (*SELECTORS, *KNOWN_TAGS), cutoff=0.8)):
                found.append(_suspicious(spec, key, near, f"{key} is not a known key, {near} is"))
        for key in spec.ignored_keys:
            near = nearest(key, FIELDS)
            text = f"key {key} of address is ignored, known are domain, bus, slot and function"
            found.append(_suspicious(spec, key, near, text))
    return found


def _suspicious(spec: DeviceSpec, key: str, near: str | None, text: str) -> SuspiciousKey:
    return SuspiciousKey(spec=spec, key=key, nearest=near, text=f"device_spec line {spec.position} {spec.text}: {text}")


def _shadow(
    spec: DeviceSpec, earlier: DeviceSpec, specs: Sequence[DeviceSpec], reports: Sequence[Report] | None
) -> ShadowedSpec | None:
    if spec.address is None or earlier.address is None:
        return None
    if _covers(earlier, spec):
        text = "matches nothing that isn't matched already by"
        return _shadowed(spec, earlier, text, certain=True)
    is_exception = _covers(spec, earlier) or not earlier.address.covers(spec.address)
    if is_exception:
        return None
    if reports is None:
        return _shadowed(spec, earlier, "comes after the broader", certain=False) if _ids_meet(spec, earlier) else None
    own = [report for report in reports if spec.gives(report)]
    lost = tuple(report["address"] for report in own if first_match(specs, report) is earlier)
    if not lost:
        return None
    text = f"doesn't get {', '.join(lost)}, matched already by"
    return _shadowed(spec, earlier, text, certain=len(lost) == len(own), addresses=lost)


def _shadowed(
    spec: DeviceSpec, by: DeviceSpec, what: str, *, certain: bool, addresses: tuple[str, ...] = ()
) -> ShadowedSpec:
    text = (
        f"device_spec line {spec.position} {spec.text} {what} line {by.position} {by.text}: "
        "only the first matching line's tags count; put the more specific line first"
    )
    return ShadowedSpec(spec=spec, by=by, certain=certain, addresses=addresses, text=text)


def _covers(broad: DeviceSpec, narrow: DeviceSpec) -> bool:
    """Whether everything that ``narrow`` can match, ``broad`` matches too, as far as the lines tell."""
    return (
        broad.address is not None
        and narrow.address is not None
        and broad.address.covers(narrow.address)
        and broad.vendor_id in (ANY, narrow.vendor_id)
        and broad.product_id in (ANY, narrow.product_id)
        and (narrow.remote_managed or not broad.remote_managed)
        and (broad.pf_aware or not narrow.pf_aware or broad.address == GlobPattern())
    )


def _ids_meet(one: DeviceSpec, other: DeviceSpec) -> bool:
    vendors, products = (one.vendor_id, other.vendor_id), (one.product_id, other.product_id)
    return all(ANY in pair or pair[0] == pair[1] for pair in (vendors, products))

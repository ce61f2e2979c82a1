"""``[accelerator]device_spec``: which functions of a host the accelerator service owns, and how guests are given them. Pure.

The grammar is that of ``[pci]device_spec``; instead of its tags a line says what kind of accelerator the functions are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jetbridge.errors import InvalidConfiguration, JetbridgeError
from jetbridge.pci.device_spec import DeviceSpec, HostFacts, Report, parse_device_specs
from jetbridge.placement.groups import ACCELERATOR_TRAIT
from jetbridge.placement.names import is_resource_class, is_trait, trait_names

OPTION = "[accelerator]device_spec"
CLASS_OF_TYPE: Mapping[str, str] = {
    "GPU": "PGPU",
    "FPGA": "FPGA",
    "AICHIP": "CUSTOM_AICHIP",
    "QAT": "CUSTOM_QAT",
    "NIC": "CUSTOM_NIC",
    "SSD": "CUSTOM_SSD",
}
"""The types of the Accelerator API, and the class that a device of one is counted as unless its line says otherwise."""

MDEV_CLASS = "VGPU"
_KEYS = ("type", "resource_class", "traits", "mdev_type", "mdev_count", "physical_network")
_MDEV_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST_MDEVS = 256


@dataclass(frozen=True)
class AcceleratorSpec:
    """One line. ``mdev_type`` None: guests get the functions themselves; else each function is the parent of ``mdev_count`` mediated
    devices of that type. ``physical_network``: what the functions are wired to, which ports need to know."""

    selector: DeviceSpec
    device_type: str
    resource_class: str
    traits: frozenset[str]
    mdev_type: str | None = None
    mdev_count: int = 0
    physical_network: str | None = None

    @property
    def text(self) -> str:
        """For messages."""
        return f"{OPTION} line {self.selector.position} {self.selector.text}"

    def traits_of(self, product_id: str) -> frozenset[str]:
        """What a device's provider has: the line's, whose it is, and what model it is."""
        return self.traits | {ACCELERATOR_TRAIT, f"CUSTOM_{self.device_type}_PRODUCT_ID_{product_id.upper()}"}


def parse_accelerator_specs(values: Sequence[str], facts: HostFacts) -> tuple[AcceleratorSpec, ...]:
    """All lines in order. Raises ``InvalidConfiguration`` naming line, key, value and what to write."""
    try:
        selectors = parse_device_specs(values, facts, report_in_placement=True)
    except JetbridgeError as error:
        raise InvalidConfiguration(error.message.replace("[pci]device_spec", OPTION)) from None
    return tuple(_spec(selector) for selector in selectors)


def first_match(specs: Sequence[AcceleratorSpec], report: Report) -> AcceleratorSpec | None:
    """The first line that matches counts alone."""
    return next((spec for spec in specs if spec.selector.gives(report)), None)


def _spec(selector: DeviceSpec) -> AcceleratorSpec:
    tags = selector.tags

    def wrong(key: str, fix: str) -> InvalidConfiguration:
        return InvalidConfiguration(
            f"Invalid {OPTION} config: line {selector.position} {selector.text}: {key}={tags.get(key)!r}: {fix}"
        )

    for key in tags:
        if key not in _KEYS:
            raise wrong(key, f"there is no such key: use {', '.join(_KEYS)}, or one that selects functions")
    device_type = (tags.get("type") or "").upper()
    if device_type not in CLASS_OF_TYPE:
        raise wrong("type", f"write one of {', '.join(CLASS_OF_TYPE)}")
    mdev_type, count = tags.get("mdev_type") or None, tags.get("mdev_count")
    if mdev_type is not None and not _MDEV_TYPE.fullmatch(mdev_type):
        raise wrong("mdev_type", "write a type's name as in mdev_supported_types, such as nvidia-55")
    if (mdev_type is None) != (count is None):
        raise wrong(
            "mdev_count", "mdev_type and mdev_count belong together: the type, and how many each function offers"
        )
    if count is not None and not (count.isascii() and count.isdecimal() and 1 <= int(count[:5]) <= _MOST_MDEVS):
        raise wrong("mdev_count", f"write a whole number from 1 to {_MOST_MDEVS}")
    resource_class = tags.get("resource_class") or (MDEV_CLASS if mdev_type else CLASS_OF_TYPE[device_type])
    if not is_resource_class(resource_class):
        raise wrong(
            "resource_class", "write a standard class such as PGPU, or CUSTOM_ followed by A to Z, 0 to 9 and _"
        )
    traits = trait_names(tags.get("traits"))
    for trait in sorted(traits):
        if not is_trait(trait):
            raise wrong("traits", f"{trait} is no trait: write standard ones or CUSTOM_ ones, separated by commas")
    physical_network = tags.get("physical_network") or None
    if mdev_type is not None and physical_network is not None:
        raise wrong("physical_network", "a mediated device is no NIC: take out this key, or mdev_type")
    return AcceleratorSpec(
        selector,
        device_type,
        resource_class,
        traits,
        mdev_type,
        int(count) if count is not None else 0,
        physical_network,
    )

"""Checks of flavor extra specs at the door.

``pci_passthrough:alias`` is checked whatever the microversion: a value that breaks its grammar would otherwise be
found only when somebody boots. The others are checked from 2.86 on, as the Compute API does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from jetbridge.accelerator.profile import PROFILE
from jetbridge.api.fields import _storable
from jetbridge.api.microversions import Version
from jetbridge.errors import Invalid
from jetbridge.pci.flavor import parse_alias_term
from jetbridge.pci.words import nearest
from jetbridge.placement.groups import GROUP_KINDS, GROUP_POLICY, check_group_key, is_group_key

logger = logging.getLogger(__name__)

ALIAS = "pci_passthrough:alias"
CHECKED_SINCE = 86


def _text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


SpecKey = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9\-_:. ]+$")]
SpecValue = Annotated[str, BeforeValidator(_text), StringConstraints(max_length=255), AfterValidator(_storable)]


@dataclass(frozen=True)
class Rule:
    """``fits`` tells whether a value is right; ``wanted`` is the rest of "write ..."."""

    fits: Callable[[str], bool]
    wanted: str


def _words(*words: str) -> Rule:
    return Rule(lambda value: value in words, " or ".join(words) if len(words) < 3 else f"one of {', '.join(words)}")


def _pattern(pattern: str, wanted: str) -> Rule:
    compiled = re.compile(pattern, re.ASCII | re.IGNORECASE)
    return Rule(lambda value: compiled.fullmatch(value) is not None, wanted)


_BOOLEAN = _pattern("true|false|yes|no|on|off|1|0|t|f|y|n", "a boolean such as true or false")
_NUMBER = _pattern(r"[1-9]\d{0,8}", "a whole number from 1 on")
_COUNT = _pattern(r"\d{1,9}", "a whole number from 0 on")
_CPUS = _pattern(r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*", "a list of CPUs such as 0-3,^1")
_ANY = _pattern(r"(?s).*", "any text")

KNOWN: Mapping[str, Rule] = {
    "hw:boot_menu": _BOOLEAN,
    "hw:cpu_cores": _NUMBER,
    "hw:cpu_dedicated_mask": _CPUS,
    "hw:cpu_max_cores": _NUMBER,
    "hw:cpu_max_sockets": _NUMBER,
    "hw:cpu_max_threads": _NUMBER,
    "hw:cpu_policy": _words("dedicated", "shared", "mixed"),
    "hw:cpu_realtime": _BOOLEAN,
    "hw:cpu_realtime_mask": _CPUS,
    "hw:cpu_sockets": _NUMBER,
    "hw:cpu_thread_policy": _words("prefer", "isolate", "require"),
    "hw:cpu_threads": _NUMBER,
    "hw:emulator_threads_policy": _words("isolate", "share"),
    "hw:hide_hypervisor_id": _BOOLEAN,
    "hw:locked_memory": _BOOLEAN,
    "hw:maxphysaddr_bits": _NUMBER,
    "hw:maxphysaddr_mode": _words("passthrough", "emulate"),
    "hw:mem_encryption": _BOOLEAN,
    "hw:mem_page_size": _pattern(
        r"large|small|any|\d+([KMGT]i?(b|bit|B)?)?", "large, small, any or a size such as 2MB"
    ),
    "hw:numa_nodes": _NUMBER,
    "hw:pci_numa_affinity_policy": _words("required", "preferred", "legacy", "socket"),
    "hw:serial_port_count": _COUNT,
    "hw:vif_multiqueue_enabled": _BOOLEAN,
    "hw:virtio_packed_ring": _BOOLEAN,
    "hw:watchdog_action": _words("none", "pause", "poweroff", "reset", "disabled"),
    "hw:machine_type": _ANY,
    "hw:viommu_model": _words("intel", "smmuv3", "virtio", "auto"),
    "os:secure_boot": _words("required", "disabled", "optional"),
}
_NAMES = (*KNOWN, ALIAS, PROFILE, GROUP_POLICY)
NUMBERED: Mapping[str, Rule] = {"hw:numa_cpus.": _CPUS, "hw:numa_mem.": _NUMBER}
CLOSED_NAMESPACES = ("hw:", "os:", "pci_passthrough:")
"""Namespaces of which every name is known: another one is surely a typo. Others are the operator's own."""


def check_extra_specs(specs: Mapping[str, str], version: Version) -> None:
    """Raises ``PciInvalidRequest`` or ``Invalid``."""
    if ALIAS in specs:
        parse_alias_term(specs[ALIAS])
    if version.minor < CHECKED_SINCE:
        return
    for key, value in specs.items():
        if key != ALIAS:
            check_group_key(key, value)
            _check(key, value)


def misspelt(specs: Iterable[str]) -> list[str]:
    """A sentence for each key that nobody reads and that looks like one that is read. Keys may be anything, so these are kept all the same."""
    return [
        f"extra spec {key} is not known and has no effect: did you mean {near}?"
        for key in specs
        if (near := _meant(key)) is not None
    ]


def warn_of_misspelt(flavor: str, specs: Iterable[str], request_id: str, server: str | None = None) -> None:
    for text in misspelt(specs):
        logger.warning("Flavor %s: %s", flavor, text, extra={"request_id": request_id, "server": server})


def _meant(key: str) -> str | None:
    """None: the key is known, or like none that is."""
    if key in _NAMES or _rule(key) is not None or is_group_key(key):
        return None
    near = nearest(key, _NAMES, cutoff=0.85)
    if near is not None:
        return near
    kind, colon, name = key.partition(":")
    near = nearest(kind, GROUP_KINDS, cutoff=0.85) if colon else None
    return f"{near}:{name}" if near else None


def _rule(key: str) -> Rule | None:
    for prefix, numbered in NUMBERED.items():
        if key.startswith(prefix) and re.fullmatch(r"\d+", key.removeprefix(prefix), re.ASCII):
            return numbered
    return KNOWN.get(key)


def _check(key: str, value: str) -> None:
    rule = _rule(key)
    if rule is None:
        if key.startswith(CLOSED_NAMESPACES):
            near = _meant(key)
            fix = "correct the name" + (f": did you mean {near}?" if near else ".")
            raise Invalid(f"Validation failed; extra spec {key!r} does not appear to be a valid extra spec: {fix}")
        return
    if not rule.fits(value):
        raise Invalid(f"Validation failed; invalid value {value!r} for extra spec {key!r}: write {rule.wanted}.")

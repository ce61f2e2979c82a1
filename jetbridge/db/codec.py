"""Values to JSON columns and back. JSON is canonical, so that equal values are equal text and can be grouped by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jetbridge.model.flavor import Flavor
from jetbridge.numa.serial import guest_topology_from_json, host_topology_from_json, topology_to_json
from jetbridge.numa.topology import GuestTopology, HostTopology
from jetbridge.pci.request import PciRequest, requests_from_json, requests_to_json


def canonical(value: object) -> str:
    """Sorted keys, no blanks, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def decoded(text: str | None) -> Any:
    """None stays None."""
    return None if text is None else json.loads(text)


def flavor_to_json(flavor: Flavor) -> dict[str, Any]:
    return {
        "id": flavor.id,
        "flavorid": flavor.flavorid,
        "name": flavor.name,
        "vcpus": flavor.vcpus,
        "memory_mb": flavor.memory_mb,
        "root_gb": flavor.root_gb,
        "ephemeral_gb": flavor.ephemeral_gb,
        "swap_mb": flavor.swap_mb,
        "rxtx_factor": flavor.rxtx_factor,
        "is_public": flavor.is_public,
        "disabled": flavor.disabled,
        "description": flavor.description,
        "extra_specs": dict(flavor.extra_specs),
    }


def flavor_from_json(value: Mapping[str, Any]) -> Flavor:
    return Flavor(**value)


def topology_to_text(topology: HostTopology | GuestTopology | None) -> str | None:
    return None if topology is None else canonical(topology_to_json(topology))


@lru_cache(maxsize=256)
def host_topology_from_text(text: str | None) -> HostTopology | None:
    """Remembered by its text: a fleet has few kinds of hosts, and every look at a host reads its own."""
    return None if text is None else host_topology_from_json(json.loads(text))


def guest_topology_from_text(text: str | None) -> GuestTopology | None:
    return None if text is None else guest_topology_from_json(json.loads(text))


def requests_to_text(requests: Iterable[PciRequest]) -> str:
    return canonical(requests_to_json(requests))


def requests_from_text(text: str | None) -> tuple[PciRequest, ...]:
    return () if text is None else requests_from_json(json.loads(text))

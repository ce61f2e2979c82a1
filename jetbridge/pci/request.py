"""What a server asks for: the device requests that cross every seam."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


class NumaPolicy(enum.StrEnum):
    """How near to the guest's cells a device has to be (docs/models.md, NUMA policies)."""

    REQUIRED = "required"
    LEGACY = "legacy"
    PREFERRED = "preferred"
    SOCKET = "socket"


Properties = Mapping[str, str | None]
"""Property name to wanted value; all must hold. An empty mapping matches every pool."""


@dataclass(frozen=True)
class PciRequest:
    """``count`` devices, each matching any of ``spec``.

    ``alias_name`` is set when the request comes from a flavor and None when it comes from a network
    port (then ``requester_id`` is the port's id). ``request_id`` is made once, when the API accepts
    the server, and is the same in the request spec, on the instance and on the devices.
    """

    request_id: str
    count: int
    spec: tuple[Properties, ...]
    alias_name: str | None = None
    requester_id: str | None = None
    numa_policy: NumaPolicy | None = None

    @property
    def policy(self) -> NumaPolicy:
        return self.numa_policy or NumaPolicy.LEGACY

    @property
    def from_port(self) -> bool:
        return self.alias_name is None


@dataclass(frozen=True)
class Alias:
    """A named device requirement: ``properties`` are alternatives (OR)."""

    name: str
    numa_policy: NumaPolicy
    properties: tuple[Properties, ...]


AliasTable = Mapping[str, Alias]


@dataclass(frozen=True)
class ProviderChoice:
    """What Placement has to say about a server's devices.

    ``by_request``: the providers chosen per request id, one entry per device, repeated when one provider gives several; a request
    without entries isn't bound. ``allowed``: per request id the providers among which may be chosen; a request that isn't named
    may have any. ``apart``: no provider gives two devices.
    """

    by_request: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    apart: bool = False

    def allows(self, request: PciRequest, provider: str | None) -> bool:
        """Whether a device of that provider may be chosen for the request."""
        return request.request_id not in self.allowed or provider in self.allowed[request.request_id]


def requests_to_json(requests: Iterable[PciRequest]) -> dict[str, Any]:
    """The form kept in ``request_specs`` and ``instance_extra``, whose keys operators query."""
    return {
        "requests": [
            {
                "count": request.count,
                "spec": [dict(properties) for properties in request.spec],
                "alias_name": request.alias_name,
                "request_id": request.request_id,
                "requester_id": request.requester_id,
                "numa_policy": request.numa_policy.value if request.numa_policy else None,
            }
            for request in requests
        ]
    }


def requests_from_json(document: Mapping[str, Any]) -> tuple[PciRequest, ...]:
    """The reverse of ``requests_to_json``."""
    return tuple(
        PciRequest(
            request_id=entry["request_id"],
            count=entry["count"],
            spec=tuple(entry["spec"]),
            alias_name=entry.get("alias_name"),
            requester_id=entry.get("requester_id"),
            numa_policy=NumaPolicy(entry["numa_policy"]) if entry.get("numa_policy") else None,
        )
        for entry in document["requests"]
    )

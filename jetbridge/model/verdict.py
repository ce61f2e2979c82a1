"""What was decided about a host, and why: reasons are data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jetbridge.reasons import Reason

MOST_HOSTS_NAMED = 100


@dataclass(frozen=True)
class VerdictGroup:
    """Hosts with the same answer: pass (``filter`` and ``reason`` None), or the filter and the reason that refused them. ``hosts``
    names the first hundred, ``host_count`` counts all."""

    filter: str | None
    reason: Reason | None
    host_count: int
    hosts: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.filter is None


@dataclass(frozen=True)
class Selection:
    """A host that was chosen. ``generation`` is that of the state the choice was made on. ``providers``: UUIDs by the
    ``requester_id`` of the request group they serve."""

    host: str
    compute_node_id: int
    generation: int
    providers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_message(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "compute_node_id": self.compute_node_id,
            "generation": self.generation,
            "providers": {key: list(value) for key, value in self.providers.items()},
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Selection:
        return cls(
            host=message["host"],
            compute_node_id=message["compute_node_id"],
            generation=message["generation"],
            providers={key: tuple(value) for key, value in message["providers"].items()},
        )

"""What a server asks of Placement: one group of resources each, as its API names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RequestGroup:
    """``resources`` are amounts by resource class, all from one provider unless ``requester_id`` is empty.

    ``requester_id`` names who asks, and keys the providers of a ``Selection``: ``<pci request id>-<index>`` for a device of an
    alias, ``device_profile_<index>`` for a group of a device profile (followed by the port's id when a port asks), the suffix of
    ``resourcesSUFFIX`` and ``traitSUFFIX`` keys for a flavor's own group, and the empty text for its unsuffixed keys, whose
    resources may come from several providers of the host's tree. ``member_of`` are UUIDs of aggregates: the provider, or its host, is in
    all of them, and neither is in one of ``outside_of``. ``providers`` are the UUIDs of those that serve it, once they are chosen.
    """

    requester_id: str
    resources: Mapping[str, int] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    member_of: frozenset[str] = frozenset()
    outside_of: frozenset[str] = frozenset()
    providers: tuple[str, ...] = ()

    @property
    def suffixed(self) -> bool:
        return self.requester_id != ""


def groups_to_json(groups: Iterable[RequestGroup]) -> list[dict[str, Any]]:
    """The form kept in ``request_specs``, by the names that operators know from Nova's ``requested_resources``."""
    return [
        {
            "requester_id": group.requester_id or None,
            "use_same_provider": group.suffixed,
            "resources": dict(group.resources),
            "required_traits": sorted(group.required),
            "forbidden_traits": sorted(group.forbidden),
            "aggregates": [[uuid] for uuid in sorted(group.member_of)],
            "forbidden_aggregates": sorted(group.outside_of),
            "provider_uuids": list(group.providers),
        }
        for group in groups
    ]


def groups_from_json(entries: Iterable[Mapping[str, Any]]) -> tuple[RequestGroup, ...]:
    """The reverse of ``groups_to_json``."""
    return tuple(
        RequestGroup(
            requester_id=entry["requester_id"] or "",
            resources=entry["resources"],
            required=frozenset(entry["required_traits"]),
            forbidden=frozenset(entry["forbidden_traits"]),
            member_of=frozenset(uuid for each in entry.get("aggregates", ()) for uuid in each),
            outside_of=frozenset(entry.get("forbidden_aggregates", ())),
            providers=tuple(entry.get("provider_uuids", ())),
        )
        for entry in entries
    )

"""What Placement tells, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Resources = Mapping[str, int]
"""Amounts by resource class."""


@dataclass(frozen=True)
class ProviderRecord:
    """A resource provider. ``generation`` moves with each change of it."""

    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str


@dataclass(frozen=True)
class ConsumerAllocations:
    """All that a consumer has, by provider. ``generation`` None: it has nothing, and Placement doesn't know it."""

    generation: int | None = None
    project: str | None = None
    user: str | None = None
    by_provider: Mapping[str, Resources] = field(default_factory=dict)

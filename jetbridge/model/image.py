"""Disk images as their owners and guests see them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


class ImageStatus(enum.StrEnum):
    QUEUED = "queued"  # described, no data yet
    SAVING = "saving"  # data is being uploaded
    ACTIVE = "active"


class Visibility(enum.StrEnum):
    PUBLIC = "public"
    COMMUNITY = "community"  # everyone can use it, only its owner sees it in lists
    SHARED = "shared"
    PRIVATE = "private"


@dataclass(frozen=True)
class Image:
    """A row of ``images``. ``size`` and ``virtual_size`` in bytes, ``min_disk`` in GiB, ``min_ram`` in MiB.
    ``checksum`` is the data's MD5; ``os_hash_algo`` and ``os_hash_value`` the stronger one. ``properties`` are
    the image's own, as text."""

    id: str
    owner: str
    status: ImageStatus
    created_at: datetime
    name: str | None = None
    visibility: Visibility = Visibility.SHARED
    container_format: str | None = None
    disk_format: str | None = None
    size: int | None = None
    virtual_size: int | None = None
    checksum: str | None = None
    os_hash_algo: str | None = None
    os_hash_value: str | None = None
    min_disk: int = 0
    min_ram: int = 0
    protected: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    updated_at: datetime | None = None

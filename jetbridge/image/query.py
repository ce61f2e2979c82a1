"""Which images a caller gets to see in a list, in what order. Pure."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetbridge.errors import Invalid
from jetbridge.image.access import may_use
from jetbridge.model.context import RequestContext
from jetbridge.model.image import Image, Visibility

SORT_KEYS: Mapping[str, Callable[[Image], Any]] = {
    "name": lambda image: image.name or "",
    "status": lambda image: image.status.value,
    "container_format": lambda image: image.container_format or "",
    "disk_format": lambda image: image.disk_format or "",
    "size": lambda image: image.size or 0,
    "id": lambda image: image.id,
    "created_at": lambda image: image.created_at,
    "updated_at": lambda image: image.updated_at or image.created_at,
}
_TEXTS = ("id", "name", "owner", "status", "container_format", "disk_format", "checksum", "os_hash_value")
_LISTS = ("id", "name", "status", "container_format", "disk_format")  # take in:a,b,c
_NUMBERS = ("min_disk", "min_ram")
_BOUNDS = ("size_min", "size_max")
_IGNORED = ("member_status", "os_hidden")


@dataclass(frozen=True)
class ImageQuery:
    """``filters`` are the query's other parameters, as (name, value) pairs. ``sort``: (key, ascending)."""

    filters: tuple[tuple[str, str], ...] = ()
    sort: tuple[tuple[str, bool], ...] = (("created_at", False), ("id", False))
    marker: str | None = None
    limit: int = 100


@dataclass(frozen=True)
class Listing:
    images: tuple[Image, ...]
    more: bool = False


@dataclass(frozen=True)
class _Test:
    """One filter, understood."""

    passes: Callable[[Image], bool] = field(repr=False)


def select(images: Iterable[Image], context: RequestContext, query: ImageQuery) -> Listing:
    """The page of images that ``query`` asks for, among those ``context`` may see. Raises ``Invalid``."""
    tests = [_test(name, value) for name, value in query.filters if name not in _IGNORED]
    visible = [image for image in images if may_use(context, image) and _belongs(context, image, query.filters)]
    found = [image for image in visible if all(test.passes(image) for test in tests)]
    for key, ascending in reversed(query.sort):
        found.sort(key=SORT_KEYS[key], reverse=not ascending)
    return _page(found, query.marker, query.limit)


def _page(found: Sequence[Image], marker: str | None, limit: int) -> Listing:
    start = 0
    if marker is not None:
        try:
            start = 1 + [image.id for image in found].index(marker)
        except ValueError:
            raise Invalid(reason=f"marker={marker!r} is no image of this list") from None
    page = found[start : start + limit]
    return Listing(tuple(page), more=start + limit < len(found))


def _belongs(context: RequestContext, image: Image, filters: Sequence[tuple[str, str]]) -> bool:
    """Community images of others are found only by asking for them: by id, or by their visibility."""
    if image.visibility is not Visibility.COMMUNITY or context.project == image.owner:
        return True
    return any(name == "id" or (name == "visibility" and value in ("community", "all")) for name, value in filters)


def _test(name: str, value: str) -> _Test:
    if name in _TEXTS:
        wanted = _values(name, value)
        return _Test(lambda image: str(getattr(image, name) or "") in wanted)
    if name == "visibility":
        if value == "all":
            return _Test(lambda image: True)
        if value not in set(Visibility):
            raise Invalid(reason=f"visibility={value!r}: use {', '.join(Visibility)} or all")
        return _Test(lambda image: image.visibility == value)
    if name == "protected":
        if value.lower() not in ("true", "false"):
            raise Invalid(reason=f"protected={value!r}: use true or false")
        return _Test(lambda image: image.protected is (value.lower() == "true"))
    if name == "tag":
        return _Test(lambda image: value in image.tags)
    if name in _NUMBERS:
        number = _number(name, value)
        return _Test(lambda image: bool(getattr(image, name) == number))
    if name in _BOUNDS:
        number = _number(name, value)
        at_least = name == "size_min"
        return _Test(lambda image: (image.size or 0) >= number if at_least else (image.size or 0) <= number)
    if name in ("created_at", "updated_at"):
        raise Invalid(reason=f"images can't be filtered by {name}: sort by it instead")
    return _Test(lambda image: image.properties.get(name) == value)


def _values(name: str, value: str) -> frozenset[str]:
    if name in _LISTS and value.startswith("in:"):
        rows = list(csv.reader([value.removeprefix("in:")]))
        return frozenset(rows[0] if rows else ())
    return frozenset([value])


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise Invalid(reason=f"{name}={value!r} is not a number") from None

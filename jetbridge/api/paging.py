"""Lists in pages: the query parameters every list shares, the link to the next page, unknown parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from jetbridge.api.call import Call
from jetbridge.api.fields import MAX_INT, _no_boolean
from jetbridge.db.paging import Direction, Page
from jetbridge.errors import Invalid

MAX_LIMIT = 1000
STRICT_SINCE = 75
"""Older microversions ignore query parameters they don't know."""

Limit = Annotated[int, BeforeValidator(_no_boolean), Field(ge=0, le=MAX_INT)]


class Listing(BaseModel):
    """Query parameters of a list; subclasses add filters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    limit: Annotated[Limit | None, Query()] = None
    marker: str | None = None
    sort_key: list[str] = []
    sort_dir: list[str] = []


def page_of(listing: Listing, sort_keys: Mapping[str, str], default_direction: Direction = "desc") -> Page:
    """``sort_keys`` maps names users may write to those of the table. One row more than the page holds is asked, to
    know whether there is a next page. Raises ``Invalid``."""
    limit = MAX_LIMIT if listing.limit is None else min(listing.limit, MAX_LIMIT)
    sort: list[tuple[str, Direction]] = []
    for position, key in enumerate(listing.sort_key):
        if key not in sort_keys:
            raise Invalid(f"Invalid sort_key={key!r}: use one of {', '.join(sorted(sort_keys))}.")
        direction = (
            listing.sort_dir[min(position, len(listing.sort_dir) - 1)] if listing.sort_dir else default_direction
        )
        if direction not in ("asc", "desc"):
            raise Invalid(f"Invalid sort_dir={direction!r}: use asc or desc.")
        sort.append((sort_keys[key], direction))  # type: ignore[arg-type]
    return Page(limit=limit + 1, marker=listing.marker, sort=tuple(sort))


def cut(rows: Sequence[Any], page: Page) -> tuple[Sequence[Any], bool]:
    """The page, and whether there is more."""
    assert page.limit is not None
    size = page.limit - 1
    return rows[:size], len(rows) > size and size > 0


def next_link(request: Request, call: Call, path: str, marker: str) -> list[dict[str, str]]:
    pairs = [(key, value) for key, value in request.query_params.multi_items() if key != "marker"]
    return [{"rel": "next", "href": f"{call.url}{path}?{urlencode([*pairs, ('marker', marker)])}"}]


def refuse_unknown(call: Call, given: Collection[str], known: Collection[str]) -> None:
    """Raises ``Invalid`` naming the first unknown query parameter, from 2.75 on."""
    unknown = sorted(set(given) - set(known))
    if unknown and call.at_least(STRICT_SINCE):
        raise Invalid(
            f"Additional properties are not allowed ({unknown[0]!r} was unexpected): leave the query parameter out."
        )

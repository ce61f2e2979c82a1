"""Flavors: sizes of servers, their extra specs and who may use them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from jetbridge.api.call import Call, ComputeCall, at_version
from jetbridge.api.fields import Body, LongDescription, Name, Positive, Whole
from jetbridge.api.flavor_views import brief, detailed
from jetbridge.api.microversions import check_request
from jetbridge.api.paging import Limit, Listing, cut, next_link, page_of, refuse_unknown
from jetbridge.db import flavors as db
from jetbridge.errors import Invalid
from jetbridge.model.flavor import Flavor

router = APIRouter(tags=["flavors"])

_RULE = "os_compute_api:os-flavor-manage"
SORT_KEYS = {
    "flavorid": "flavorid",
    "id": "id",
    "name": "name",
    "memory_mb": "memory_mb",
    "vcpus": "vcpus",
    "root_gb": "root_gb",
    "ephemeral_gb": "ephemeral_gb",
    "swap": "swap",
    "rxtx_factor": "rxtx_factor",
    "is_public": "is_public",
    "disabled": "disabled",
    "created_at": "created_at",
    "updated_at": "updated_at",
}


def _flavor_id(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _untrimmed(value: str) -> str:
    if value != value.strip():
        raise ValueError("An id must not begin or end with blanks: trim it")
    return value


FlavorId = Annotated[
    str,
    BeforeValidator(_flavor_id),
    StringConstraints(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9. _\-]+$"),
    AfterValidator(_untrimmed),
]


class NewFlavor(Body):
    """``ram`` and ``swap`` in MiB, disks in GiB. Without ``id``, or with ``auto``, a UUID is made."""

    name: Name
    ram: Positive
    vcpus: Positive
    disk: Whole
    id: FlavorId | None = None
    swap: Whole = 0
    ephemeral: Whole = Field(0, alias="OS-FLV-EXT-DATA:ephemeral")
    rxtx_factor: Annotated[float, Field(gt=0, le=3.40282e38, allow_inf_nan=False)] = 1.0
    is_public: bool = Field(True, alias="os-flavor-access:is_public")
    description: LongDescription | None = None


class CreateFlavor(Body):
    flavor: NewFlavor


class FlavorChange(Body):
    description: LongDescription | None


class UpdateFlavor(Body):
    flavor: FlavorChange


class FlavorListing(Listing):
    is_public: str | None = None
    min_ram: Annotated[Limit | None, Query(alias="minRam")] = Field(None, alias="minRam")
    min_disk: Annotated[Limit | None, Query(alias="minDisk")] = Field(None, alias="minDisk")


_LIST_PARAMETERS = frozenset({"is_public", "minRam", "minDisk", "limit", "marker", "sort_key", "sort_dir"})


def visible(call: Call, flavorid: str) -> Flavor:
    """Raises ``NotFound``, also where the flavor is for other projects only."""
    with call.services.database.read() as conn:
        return db.get(conn, flavorid, project_id=_project(call))


def _project(call: Call) -> str | None:
    return None if call.context.is_admin else call.context.project


@router.post("/flavors")
def create(body: CreateFlavor, call: ComputeCall) -> dict[str, Any]:
    call.require(f"{_RULE}:create")
    new = body.flavor
    check_request("flavor", new.model_fields_set, call.version)
    flavor = Flavor(
        id=0,
        flavorid=call.services.new_id() if new.id in (None, "auto") else str(new.id),
        name=new.name,
        vcpus=new.vcpus,
        memory_mb=new.ram,
        root_gb=new.disk,
        ephemeral_gb=new.ephemeral,
        swap_mb=new.swap,
        rxtx_factor=new.rxtx_factor,
        is_public=new.is_public,
        description=new.description,
    )
    made = call.services.database.write(lambda conn: db.create(conn, flavor))
    return {"flavor": detailed(call, made)}


@router.get("/flavors")
def index(listing: Annotated[FlavorListing, Query()], request: Request, call: ComputeCall) -> dict[str, Any]:
    return _list(listing, request, call, "/flavors", brief)


@router.get("/flavors/detail")
def detail(listing: Annotated[FlavorListing, Query()], request: Request, call: ComputeCall) -> dict[str, Any]:
    return _list(listing, request, call, "/flavors/detail", detailed)


def _list(listing: FlavorListing, request: Request, call: Call, path: str, view: Any) -> dict[str, Any]:
    refuse_unknown(call, request.query_params, _LIST_PARAMETERS)
    page = page_of(listing, SORT_KEYS, default_direction="asc")
    with call.services.database.read() as conn:
        rows = db.find(
            conn,
            is_public=_wanted_public(listing.is_public) if call.context.is_admin else None,
            project_id=_project(call),
            min_memory_mb=listing.min_ram,
            min_root_gb=listing.min_disk,
            page=page,
        )
    shown, more = cut(rows, page)
    answer: dict[str, Any] = {"flavors": [view(call, flavor) for flavor in shown]}
    if more:
        answer["flavors_links"] = next_link(request, call, path, shown[-1].flavorid)
    return answer


def _wanted_public(text: str | None) -> bool | None:
    """None: public ones and others."""
    if text is None:
        return True
    word = text.strip().lower()
    if word == "none":
        return None
    if word in ("true", "1", "t", "yes", "y", "on"):
        return True
    if word in ("false", "0", "f", "no", "n", "off"):
        return False
    raise Invalid(f"Invalid is_public filter [{text}]: use True, False or None.")


@router.get("/flavors/{flavor_id}")
def show(flavor_id: str, call: ComputeCall) -> dict[str, Any]:
    return {"flavor": detailed(call, visible(call, flavor_id))}


@router.put("/flavors/{flavor_id}", dependencies=[at_version("flavor-update")])
def update(flavor_id: str, body: UpdateFlavor, call: ComputeCall) -> dict[str, Any]:
    call.require(f"{_RULE}:update")
    description = body.flavor.description
    changed = call.services.database.write(lambda conn: db.set_description(conn, flavor_id, description))
    return {"flavor": detailed(call, changed)}


@router.delete("/flavors/{flavor_id}", status_code=202)
def delete(flavor_id: str, call: ComputeCall) -> Response:
    call.require(f"{_RULE}:delete")
    call.services.database.write(lambda conn: db.delete(conn, flavor_id))
    return Response(status_code=202)

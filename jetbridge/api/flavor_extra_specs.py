"""``os-extra_specs`` of flavors, and ``os-flavor-access``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from jetbridge.api.call import Call, ComputeCall
from jetbridge.api.extra_specs import SpecKey, SpecValue, check_extra_specs, warn_of_misspelt
from jetbridge.api.fields import Body, Line
from jetbridge.api.flavors import visible
from jetbridge.db import flavors as db
from jetbridge.errors import Conflict, Invalid, NotFound

router = APIRouter(tags=["flavors"])

_SPECS = "os_compute_api:os-flavor-extra-specs"
_ACCESS = "os_compute_api:os-flavor-access"
CONFLICT_SINCE = 7


class ExtraSpecs(Body):
    extra_specs: dict[SpecKey, SpecValue]


@router.get("/flavors/{flavor_id}/os-extra_specs")
def index(flavor_id: str, call: ComputeCall) -> dict[str, Any]:
    return {"extra_specs": dict(visible(call, flavor_id).extra_specs)}


@router.post("/flavors/{flavor_id}/os-extra_specs")
def create(flavor_id: str, body: ExtraSpecs, call: ComputeCall) -> dict[str, Any]:
    call.require(f"{_SPECS}:create")
    _set(call, flavor_id, body.extra_specs)
    return {"extra_specs": body.extra_specs}


@router.get("/flavors/{flavor_id}/os-extra_specs/{key}")
def show(flavor_id: str, key: str, call: ComputeCall) -> dict[str, str]:
    specs = visible(call, flavor_id).extra_specs
    if key not in specs:
        raise NotFound(f"Flavor {flavor_id} has no extra specs with key {key}.")
    return {key: specs[key]}


@router.put("/flavors/{flavor_id}/os-extra_specs/{key}")
def update(flavor_id: str, key: str, body: dict[SpecKey, SpecValue], call: ComputeCall) -> dict[str, str]:
    call.require(f"{_SPECS}:update")
    if list(body) != [key]:
        raise Invalid(f"The body has the keys {sorted(body)}, the URL {key!r}: send exactly that one key.")
    _set(call, flavor_id, body)
    return body


@router.delete("/flavors/{flavor_id}/os-extra_specs/{key}")
def delete(flavor_id: str, key: str, call: ComputeCall) -> Response:
    call.require(f"{_SPECS}:delete")
    call.services.database.write(lambda conn: db.delete_extra_spec(conn, flavor_id, key))
    return Response(status_code=200)


def _set(call: Call, flavor_id: str, specs: dict[str, str]) -> None:
    check_extra_specs(specs, call.version)
    call.services.database.write(lambda conn: db.set_extra_specs(conn, flavor_id, specs))
    warn_of_misspelt(flavor_id, specs, call.context.request_id)


# --- access: which projects may use a flavor that isn't public ------------------------------------


class Tenant(Body):
    tenant: Line


class AccessAction(Body):
    addTenantAccess: Tenant | None = None
    removeTenantAccess: Tenant | None = None


@router.get("/flavors/{flavor_id}/os-flavor-access")
def access(flavor_id: str, call: ComputeCall) -> dict[str, Any]:
    call.require(_ACCESS)
    if visible(call, flavor_id).is_public:
        raise NotFound(f"Access list not available for public flavors: flavor {flavor_id} is public.")
    return _access_list(call, flavor_id)


@router.post("/flavors/{flavor_id}/action")
def change_access(flavor_id: str, body: AccessAction, call: ComputeCall) -> dict[str, Any]:
    call.require(_ACCESS)
    database = call.services.database
    add, remove = body.addTenantAccess, body.removeTenantAccess
    if (add is None) == (remove is None):
        raise Invalid("Send exactly one action: addTenantAccess or removeTenantAccess.")
    if add is not None:
        if visible(call, flavor_id).is_public and call.at_least(CONFLICT_SINCE):
            raise Conflict(f"Can not add access to a public flavor: {flavor_id} is public.")
        database.write(lambda conn: db.add_project(conn, flavor_id, add.tenant))
    if remove is not None:
        database.write(lambda conn: db.remove_project(conn, flavor_id, remove.tenant))
    return _access_list(call, flavor_id)


def _access_list(call: Call, flavor_id: str) -> dict[str, Any]:
    with call.services.database.read() as conn:
        projects = db.projects(conn, flavor_id)
    return {"flavor_access": [{"flavor_id": flavor_id, "tenant_id": project} for project in projects]}

"""Lists that clients ask for and of which there is little to tell: zones, aggregates, server groups, extensions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from jetbridge.api.call import ComputeCall
from jetbridge.api.hypervisors import state_of
from jetbridge.api.server_views import ZONE, microseconds
from jetbridge.db import services
from jetbridge.errors import NotFound

router = APIRouter(tags=["lists"])


@router.get("/os-availability-zone")
def zones(call: ComputeCall) -> dict[str, Any]:
    return {"availabilityZoneInfo": [{"zoneName": ZONE, "zoneState": {"available": True}, "hosts": None}]}


@router.get("/os-availability-zone/detail")
def zones_in_detail(call: ComputeCall) -> dict[str, Any]:
    call.require("os_compute_api:os-availability-zone:detail")
    hosts: dict[str, dict[str, Any]] = {ZONE: {}, "internal": {}}
    with call.services.database.read() as conn:
        for service in services.listing(conn):
            zone = hosts[ZONE if service.binary == "nova-compute" else "internal"]
            zone.setdefault(service.host, {})[service.binary] = {
                "active": not service.disabled,
                "available": state_of(call, service)[0] == "up",
                "updated_at": microseconds(service.last_seen_up),
            }
    return {
        "availabilityZoneInfo": [
            {"zoneName": zone, "zoneState": {"available": True}, "hosts": hosts[zone]}
            for zone in ("internal", ZONE)
            if hosts[zone] or zone == ZONE
        ]
    }


@router.get("/os-aggregates")
def aggregates(call: ComputeCall) -> dict[str, Any]:
    call.require("os_compute_api:os-aggregates")
    return {"aggregates": []}


@router.get("/os-aggregates/{aggregate_id}")
def aggregate(aggregate_id: str, call: ComputeCall) -> dict[str, Any]:
    call.require("os_compute_api:os-aggregates")
    raise NotFound(f"Aggregate {aggregate_id} could not be found.")


@router.get("/os-server-groups")
def server_groups(call: ComputeCall) -> dict[str, Any]:
    return {"server_groups": []}


@router.get("/os-server-groups/{group_id}")
def server_group(group_id: str, call: ComputeCall) -> dict[str, Any]:
    raise NotFound(f"Instance group {group_id} could not be found.")


@router.get("/os-migrations")
def migrations(call: ComputeCall) -> dict[str, Any]:
    return {"migrations": []}


@router.get("/extensions")
def extensions(call: ComputeCall) -> dict[str, Any]:
    return {"extensions": []}


@router.get("/extensions/{alias}")
def extension(alias: str, call: ComputeCall) -> dict[str, Any]:
    raise NotFound(f"Extension {alias} could not be found: what exists follows from the microversion.")

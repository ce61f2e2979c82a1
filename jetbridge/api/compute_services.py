"""``os-services``: the processes' services; switching hosts off and on."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import StringConstraints

from jetbridge.api.call import Call, ComputeCall, at_version
from jetbridge.api.fields import Body, HostName, Line
from jetbridge.api.hypervisors import state_of
from jetbridge.api.paging import Listing, refuse_unknown
from jetbridge.api.server_views import ZONE, microseconds
from jetbridge.db import hosts
from jetbridge.db import services as db
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.services import COMPUTE, Service
from jetbridge.errors import Conflict, Invalid, JetbridgeError, NotFound

logger = logging.getLogger(__name__)
router = APIRouter(tags=["hosts"])

RULE = "os_compute_api:os-services"
BY_UUID = [at_version("service-by-uuid")]
BY_HOST = [at_version("service-by-host")]

DisabledReason = Annotated[Line, StringConstraints(min_length=1)]
Binary = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class ServiceListing(Listing):
    host: str | None = None
    binary: str | None = None


class ServiceOfHost(Body):
    host: HostName
    binary: Binary
    disabled_reason: DisabledReason | None = None
    forced_down: bool | None = None


class ServiceChange(Body):
    status: Literal["enabled", "disabled"] | None = None
    disabled_reason: DisabledReason | None = None
    forced_down: bool | None = None


@router.get("/os-services")
def index(listing: Annotated[ServiceListing, Query()], request: Request, call: ComputeCall) -> dict[str, Any]:
    call.require(RULE)
    refuse_unknown(call, request.query_params, {"host", "binary"})
    with call.services.database.read() as conn:
        rows = db.listing(conn, host=listing.host, binary=listing.binary)
    return {"services": [_view(call, service) for service in rows]}


@router.put("/os-services/enable", dependencies=BY_HOST)
def enable(body: ServiceOfHost, call: ComputeCall) -> dict[str, Any]:
    return _switch(call, body, disabled=False)


@router.put("/os-services/disable", dependencies=BY_HOST)
def disable(body: ServiceOfHost, call: ComputeCall) -> dict[str, Any]:
    return _switch(call, body, disabled=True)


@router.put("/os-services/disable-log-reason", dependencies=BY_HOST)
def disable_log_reason(body: ServiceOfHost, call: ComputeCall) -> dict[str, Any]:
    if body.disabled_reason is None:
        raise Invalid("Missing disabled reason field: give disabled_reason.")
    answer = _switch(call, body, disabled=True)
    answer["service"]["disabled_reason"] = body.disabled_reason
    return answer


def _switch(call: Call, body: ServiceOfHost, *, disabled: bool) -> dict[str, Any]:
    call.require(RULE)

    def write(conn: Connection) -> Service:
        service = db.find(conn, body.host, body.binary)
        return db.set_disabled(conn, service.id, disabled, body.disabled_reason)

    service = call.services.database.write(write)
    _log(call, service)
    return {"service": {"host": body.host, "binary": body.binary, "status": _status(service)}}


@router.put("/os-services/force-down", dependencies=[at_version("service-force-down")])
def force_down(body: ServiceOfHost, call: ComputeCall) -> dict[str, Any]:
    call.require(RULE)
    forced = body.forced_down
    if forced is None:
        raise Invalid("Missing forced_down field: give forced_down true or false.")

    def write(conn: Connection) -> None:
        db.set_forced_down(conn, db.find(conn, body.host, body.binary).id, forced)

    call.services.database.write(write)
    return {"service": {"host": body.host, "binary": body.binary, "forced_down": forced}}


@router.put("/os-services/{service_id}", dependencies=BY_UUID)
def update(service_id: str, body: ServiceChange, call: ComputeCall) -> dict[str, Any]:
    call.require(RULE)
    if not body.model_fields_set & {"status", "forced_down"}:
        raise Invalid("No updates were requested. Fields 'status' or 'forced_down' should be specified.")
    if body.disabled_reason is not None and body.status != "disabled":
        raise Invalid("Specifying disabled_reason requires that status is disabled.")

    def write(conn: Connection) -> Service:
        service = db.get(conn, service_id)
        if service.binary != COMPUTE:
            raise Invalid(f"Updating a {service.binary} service is not supported. Only {COMPUTE} services can be.")
        if body.status is not None:
            service = db.set_disabled(conn, service_id, body.status == "disabled", body.disabled_reason)
        if body.forced_down is not None:
            service = db.set_forced_down(conn, service_id, body.forced_down)
        return service

    service = call.services.database.write(write)
    _log(call, service)
    return {"service": _view(call, service)}


@router.delete("/os-services/{service_id}", status_code=204)
def delete(service_id: str, call: ComputeCall) -> Response:
    call.require(RULE)

    def write(conn: Connection) -> Service:
        service = db.get(conn, _key(call, service_id))
        # By its own signs of life: one that is only declared down would go on with a host that nobody knows any more.
        if replace(service, forced_down=False).is_alive(utcnow(), call.services.settings.service_down_time):
            raise Conflict(f"Service {service_id} on host {service.host} is up: stop it before deleting it.")
        if service.binary == COMPUTE:
            hosts.forget(conn, service.host, now=utcnow())
        else:
            db.delete(conn, service.id)
        return service

    service = call.services.database.write(write)
    if service.binary == COMPUTE:
        logger.info("[%s] host %s is removed, with its devices", call.context.request_id, service.host)
        try:
            call.services.bus.cast(call.context, "conductor", "retire_hosts", {}, source="api")
        except JetbridgeError as error:
            logger.warning("Providers of %s are left to a conductor's next periodic pass: %s", service.host, error)
    return Response(status_code=204)


def _key(call: Call, service_id: str) -> str | int:
    if call.at_least(53):
        return service_id
    if not service_id.isascii() or not service_id.isdigit() or len(service_id) > 18:
        raise NotFound(f"Service {service_id} could not be found.")
    return int(service_id)


def _log(call: Call, service: Service) -> None:
    logger.info(
        "[%s] service %s on host %s: %s, forced_down=%s",
        call.context.request_id,
        service.binary,
        service.host,
        _status(service),
        service.forced_down,
    )


def _status(service: Service) -> str:
    return "disabled" if service.disabled else "enabled"


def _view(call: Call, service: Service) -> dict[str, Any]:
    seen = service.last_seen_up or service.updated_at or service.created_at
    return call.shape(
        "service",
        {
            "id@number": service.id,
            "id@uuid": service.uuid,
            "binary": service.binary,
            "host": service.host,
            "zone": ZONE if service.binary == COMPUTE else "internal",
            "status": _status(service),
            "state": state_of(call, service)[0],
            "updated_at": microseconds(seen),
            "disabled_reason": service.disabled_reason,
            "forced_down": service.forced_down,
        },
    )

"""NICs of a server: list, show, put in, take out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from jetbridge.api.call import Call, ComputeCall
from jetbridge.api.fields import Body, IpAddress, Line, Tag
from jetbridge.api.microversions import check_request
from jetbridge.api.server_actions import refuse_locked
from jetbridge.api.servers import SOURCE, find
from jetbridge.db import actions
from jetbridge.db.connection import Connection
from jetbridge.errors import (
    ForbiddenPortsWithAccelerator,
    Invalid,
    JetbridgeError,
    NotFound,
    ServerInvalidState,
    ServiceUnavailable,
)
from jetbridge.model.server import NetworkRequest, Server, VmState
from jetbridge.pci.port import ACCELERATOR_VNICS

router = APIRouter(tags=["servers"])

ATTACH_SECONDS = 120.0
"""How long a caller waits until a NIC is in: a guest that is busy answers late."""


class FixedIp(Body):
    ip_address: IpAddress


class InterfaceAttachment(Body):
    port_id: Line | None = None
    net_id: Line | None = None
    fixed_ips: Annotated[tuple[FixedIp, ...], Field(max_length=1)] = ()
    tag: Tag | None = None


class AttachInterface(Body):
    interfaceAttachment: InterfaceAttachment = InterfaceAttachment()


def interface_view(call: Call, nic: NetworkRequest) -> dict[str, Any]:
    return call.shape(
        "interface",
        {
            "net_id": nic.network_id,
            "port_id": nic.port_id,
            "mac_addr": nic.mac,
            "port_state": "ACTIVE" if nic.host else "DOWN",
            "fixed_ips": [{"ip_address": address, "subnet_id": None} for address in nic.fixed_ips],
            "tag": nic.tag,
        },
    )


@router.get("/servers/{server_id}/os-interface")
def index(server_id: str, call: ComputeCall) -> dict[str, Any]:
    return {"interfaceAttachments": [interface_view(call, nic) for nic in find(call, server_id).networks]}


@router.get("/servers/{server_id}/os-interface/{port_id}")
def show(server_id: str, port_id: str, call: ComputeCall) -> dict[str, Any]:
    return {"interfaceAttachment": interface_view(call, _nic(find(call, server_id), port_id))}


@router.post("/servers/{server_id}/os-interface")
def attach(server_id: str, body: AttachInterface, call: ComputeCall) -> dict[str, Any]:
    """Answers when the NIC is in the guest."""
    wanted = body.interfaceAttachment
    check_request("interface", wanted.model_fields_set, call.version)
    if wanted.port_id and wanted.net_id:
        raise Invalid(
            "Invalid input for field/attribute interfaceAttachment: it has port_id and net_id. Give one of them."
        )
    if wanted.fixed_ips and not wanted.net_id:
        raise Invalid("Invalid input for field/attribute fixed_ips: they belong to a net_id. Give the network, too.")
    server = _begin(call, server_id, "attach_interface")
    payload = {
        "server_uuid": server.uuid,
        "port_id": wanted.port_id,
        "network_id": wanted.net_id,
        "fixed_ips": [fixed.ip_address for fixed in wanted.fixed_ips],
        "tag": wanted.tag,
    }
    try:
        answer = call.services.bus.call(
            call.context,
            "compute",
            "attach_interface",
            payload,
            source=SOURCE,
            server=server.host,
            timeout=ATTACH_SECONDS,
        )
    except ServiceUnavailable as error:
        _give_up(call, server, error)
        raise
    port_id = answer["port_id"]
    return {"interfaceAttachment": interface_view(call, _nic(find(call, server_id), port_id))}


@router.delete("/servers/{server_id}/os-interface/{port_id}", status_code=202)
def detach(server_id: str, port_id: str, call: ComputeCall) -> Response:
    nic = _nic(find(call, server_id), port_id)
    if nic.vnic_type in ACCELERATOR_VNICS:
        raise ForbiddenPortsWithAccelerator(
            action="detach_interface", server=server_id, port=port_id, fix="the port goes with the server"
        )
    server = _begin(call, server_id, "detach_interface")
    payload = {"server_uuid": server.uuid, "port_id": port_id}
    try:
        call.services.bus.cast(call.context, "compute", "detach_interface", payload, source=SOURCE, server=server.host)
    except ServiceUnavailable as error:
        _give_up(call, server, error)
        raise
    return Response(status_code=202)


def _nic(server: Server, port_id: str) -> NetworkRequest:
    for nic in server.networks:
        if nic.port_id == port_id:
            return nic
    raise NotFound(f"Port {port_id} is not a port of server {server.uuid}: its ports are those of os-interface.")


def _begin(call: Call, server_id: str, action: str) -> Server:
    def write(conn: Connection) -> Server:
        server = find(call, server_id, conn)
        refuse_locked(call, server)
        if server.vm_state not in (VmState.ACTIVE, VmState.STOPPED) or server.host is None:
            raise ServerInvalidState(action=action, server=server.uuid, attr="vm_state", state=str(server.vm_state))
        if server.task_state is not None:
            raise ServerInvalidState(action=action, server=server.uuid, attr="task_state", state=str(server.task_state))
        context = call.context
        actions.start(conn, server.uuid, action, context.request_id, user_id=context.user, project_id=context.project)
        return server

    return call.services.database.write(write)


def _give_up(call: Call, server: Server, error: JetbridgeError) -> None:
    message = error.message

    def write(conn: Connection) -> None:
        actions.finish(conn, server.uuid, call.context.request_id, error=message)

    call.services.database.write(write)

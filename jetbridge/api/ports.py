"""Ports of the embedded Network API."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, Field

from jetbridge.api import policy
from jetbridge.api.call import ContextOf
from jetbridge.api.fields import Body, Description, IpAddress, Json, Line, Text
from jetbridge.api.network_views import filtered, port_view
from jetbridge.errors import Invalid
from jetbridge.model.context import RequestContext
from jetbridge.model.network import Port
from jetbridge.network.embedded import EmbeddedPorts
from jetbridge.network.ports import seen_network, seen_port
from jetbridge.pci.port import UNBOUND_KEYS, VnicType
from jetbridge.pci.request import NumaPolicy

MOST_PROFILE = 4095
"""Characters of a binding profile as JSON, as in every Network service."""


def _mac(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        raise ValueError("This is not a MAC address: write six pairs of hexadecimal digits, such as fa:16:3e:00:00:01")
    if int(text[:2], 16) & 1 or text == "00:00:00:00:00:00":
        raise ValueError("This is not the MAC address of one NIC: its first octet must be even, and not all may be 0")
    return text.lower()


def _profile(value: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(value)) > MOST_PROFILE:
        raise ValueError(f"A binding profile has at most {MOST_PROFILE} characters")
    for name in UNBOUND_KEYS:
        if name in value:
            raise ValueError(f"The key {name!r} is written when a server takes the port: leave it out")
    return value


class FixedIp(Body):
    ip_address: IpAddress


Mac = Annotated[str, AfterValidator(_mac)]
Profile = Annotated[dict[Text, Json], AfterValidator(_profile)]
Vnic = Annotated[VnicType, Field(alias="binding:vnic_type")]


class PortFields(Body):
    """``None`` is what clients send to take a value back."""

    name: Line = ""
    description: Description = ""
    admin_state_up: bool = True
    mac_address: Mac | None = None
    fixed_ips: tuple[FixedIp, ...] = ()
    vnic_type: Vnic = VnicType.NORMAL
    profile: Annotated[Profile | None, Field(alias="binding:profile")] = None
    numa_affinity_policy: NumaPolicy | None = None
    device_profile: Line | None = None
    # There are none of these here: what says so is taken.
    port_security_enabled: Literal[False] = False
    security_groups: Annotated[tuple[Text, ...], Field(max_length=0)] = ()
    allowed_address_pairs: Annotated[tuple[Text, ...], Field(max_length=0)] = ()


class PortBody(PortFields):
    network_id: Line
    project_id: Line | None = None
    tenant_id: Line | None = None


class NewPort(Body):
    port: PortBody


class UpdatePort(Body):
    port: PortFields


def add_ports(routes: APIRouter, embedded: EmbeddedPorts, new_id: Callable[[], str]) -> None:
    @routes.get("/v2.0/ports")
    def index(request: Request, context: ContextOf) -> Any:
        found = embedded.ports(project_id=None if context.is_admin else context.project)
        return {"ports": filtered([port_view(port, context) for port in found], request)}

    @routes.get("/v2.0/ports/{port_id}")
    def show(port_id: str, context: ContextOf) -> Any:
        return {"port": port_view(seen_port(embedded, context, port_id), context)}

    @routes.post("/v2.0/ports")
    def create(body: NewPort, context: ContextOf) -> Any:
        given = body.port
        _check_rights(context, given)
        project = given.project_id or given.tenant_id or context.project
        if project != context.project:
            policy.require(context, "create_port:tenant_id")
        network = seen_network(embedded, context, given.network_id)
        made = embedded.create_port(
            Port(id=new_id(), network_id=network.id, project_id=project, **_values(given, complete=True))
        )
        return JSONResponse({"port": port_view(made, context)}, status_code=201)

    @routes.put("/v2.0/ports/{port_id}")
    def update(port_id: str, body: UpdatePort, context: ContextOf) -> Any:
        given = body.port
        _check_rights(context, given)
        port = seen_port(embedded, context, port_id)
        changes = _values(given, complete=False)
        if "profile" in changes:
            # What the binding wrote is the host's.
            changes["profile"] |= {name: value for name, value in port.profile.items() if name in UNBOUND_KEYS}
        return {"port": port_view(embedded.update_port(port.id, **changes), context)}

    @routes.delete("/v2.0/ports/{port_id}")
    def delete(port_id: str, context: ContextOf) -> Response:
        embedded.delete_port(seen_port(embedded, context, port_id).id)
        return Response(status_code=204)


def _check_rights(context: RequestContext, given: PortFields) -> None:
    if given.profile:
        policy.require(context, "create_port:binding:profile")


def _values(given: PortFields, *, complete: bool) -> dict[str, Any]:
    """Fields of ``Port`` that were given, or all of them."""
    values = {
        "name": given.name,
        "description": given.description,
        "admin_state_up": given.admin_state_up,
        "mac_address": given.mac_address or "",
        "fixed_ips": tuple(fixed.ip_address for fixed in given.fixed_ips),
        "vnic_type": given.vnic_type,
        "profile": dict(given.profile or {}),
        "numa_affinity_policy": given.numa_affinity_policy,
        "device_profile": given.device_profile,
    }
    if "mac_address" in given.model_fields_set and given.mac_address is None and not complete:
        raise Invalid("Invalid input for field/attribute mac_address. Value: None. Write a MAC address.")
    names = {"mac_address": "mac", "numa_affinity_policy": "numa_policy"}
    return {
        names.get(name, name): value for name, value in values.items() if complete or name in given.model_fields_set
    }

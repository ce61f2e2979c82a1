"""The Network API, as far as servers and their devices need it: /network/v2.0. Networks here, ports in ``api.ports``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from jetbridge.api import policy, ports
from jetbridge.api.call import ContextOf
from jetbridge.api.fields import Body, Description, Name, Whole
from jetbridge.api.network_views import filtered, network_view
from jetbridge.api.services import ApiServices
from jetbridge.db.provider_networks import Changes
from jetbridge.errors import Invalid, NotFound, NotSupported
from jetbridge.model.network import Network
from jetbridge.network.embedded import EmbeddedPorts
from jetbridge.network.ports import seen_network, seen_networks

COLLECTIONS = ("subnets", "security-groups", "floatingips", "routers", "subnetpools", "trunks", "address-groups")
"""Resources that exist in the API but of which there are none here."""

EXTENSIONS = {
    "provider": "Provider Network",
    "binding": "Port Binding",
    "port-numa-affinity-policy": "Port NUMA affinity policy",
    "port-device-profile": "Port device profile",
    "port-security": "Port Security",
}
"""Alias to name: what of the API beyond its core there is."""

MOST_VLANS = 4094
MOST_TUNNELS = 2**24 - 1


class NetworkBody(Body):
    name: Name
    description: Description = ""
    shared: bool = False
    admin_state_up: Literal[True] = True
    port_security_enabled: Literal[False] = False
    network_type: Annotated[
        Literal["flat", "vlan", "vxlan", "geneve", "gre", "local"] | None, Field(alias="provider:network_type")
    ] = None
    physical_network: Annotated[Name | None, Field(alias="provider:physical_network", max_length=64)] = None
    segmentation_id: Annotated[Whole | None, Field(alias="provider:segmentation_id")] = None


class NewNetwork(Body):
    network: NetworkBody


class NetworkChange(Body):
    name: Name | None = None
    description: Description | None = None
    shared: bool | None = None
    admin_state_up: Literal[True] = True


class UpdateNetwork(Body):
    network: NetworkChange


def router(services: ApiServices) -> APIRouter:
    """Everything under /network. Where networks are those of a Network service elsewhere, only where it is."""
    routes = APIRouter(prefix="/network", include_in_schema=False)
    embedded = services.embedded_ports
    if embedded is None:
        _add_signpost(routes, services.settings.neutron_endpoint_override or services.settings.neutron_auth_url)
        return routes
    _add_documents(routes)
    _add_networks(routes, embedded)
    ports.add_ports(routes, embedded, services.new_id)
    _add_empty(routes)
    return routes


def _add_signpost(routes: APIRouter, url: str | None) -> None:
    @routes.get("")
    @routes.get("/{rest:path}")
    def elsewhere(rest: str = "") -> Any:
        raise NotFound(f"Networks and ports are those of the Network service that [neutron] names ({url}): ask it.")


def _add_documents(routes: APIRouter) -> None:
    @routes.get("")
    def versions(request: Request) -> Any:
        href = f"{str(request.base_url).rstrip('/')}/network/v2.0/"
        return {"versions": [{"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": href}]}]}

    @routes.get("/v2.0")
    def resources(request: Request) -> Any:
        base = f"{str(request.base_url).rstrip('/')}/network/v2.0"
        names = ("network", "subnet", "port")
        return {
            "resources": [
                {"name": name, "collection": f"{name}s", "links": [{"rel": "self", "href": f"{base}/{name}s"}]}
                for name in names
            ]
        }

    def described(alias: str) -> dict[str, Any]:
        name = EXTENSIONS[alias]
        return {"alias": alias, "name": name, "description": name, "links": [], "updated": "2026-01-01T00:00:00-00:00"}

    @routes.get("/v2.0/extensions")
    def extensions() -> Any:
        return {"extensions": [described(alias) for alias in EXTENSIONS]}

    @routes.get("/v2.0/extensions/{alias}")
    def extension(alias: str) -> Any:
        if alias not in EXTENSIONS:
            raise NotFound(noun="Extension", key=alias)
        return {"extension": described(alias)}


def _add_networks(routes: APIRouter, embedded: EmbeddedPorts) -> None:
    @routes.get("/v2.0/networks")
    def index(request: Request, context: ContextOf) -> Any:
        views = [network_view(network, context) for network in seen_networks(embedded, context)]
        return {"networks": filtered(views, request)}

    @routes.get("/v2.0/networks/{key}")
    def show(key: str, context: ContextOf) -> Any:
        return {"network": network_view(seen_network(embedded, context, key), context)}

    @routes.post("/v2.0/networks")
    def create(body: NewNetwork, context: ContextOf) -> Any:
        policy.require(context, "create_network")
        made = embedded.create_network(_network(body.network, context.project))
        return JSONResponse({"network": network_view(made, context)}, status_code=201)

    @routes.put("/v2.0/networks/{key}")
    def update(key: str, body: UpdateNetwork, context: ContextOf) -> Any:
        policy.require(context, "update_network")
        change = body.network
        network = seen_network(embedded, context, key)
        if change.name not in (None, network.name):
            raise Invalid("Invalid input for field/attribute name. A network is its name here: make another network.")
        changes: Changes = {}
        if change.description is not None:
            changes["description"] = change.description
        if change.shared is not None:
            changes["shared"] = change.shared
        return {"network": network_view(embedded.update_network(network.id, changes), context)}

    @routes.delete("/v2.0/networks/{key}")
    def delete(key: str, context: ContextOf) -> Response:
        policy.require(context, "delete_network")
        embedded.delete_network(seen_network(embedded, context, key).id)
        return Response(status_code=204)


def _network(body: NetworkBody, project: str) -> Network:
    """Raises ``Invalid`` for provider attributes that contradict each other."""
    kind = None if body.network_type == "local" else body.network_type
    physical, number = body.physical_network, body.segmentation_id

    def wrong(field: str, value: object, fix: str) -> Invalid:
        return Invalid(
            f"Invalid input for field/attribute provider:{field}. Value: {value}. With"
            f" provider:network_type={body.network_type or 'local'}: {fix}."
        )

    if kind in ("flat", "vlan") and physical is None:
        raise wrong("physical_network", physical, "name the physical network")
    if kind not in ("flat", "vlan") and physical is not None:
        raise wrong("physical_network", physical, "leave it out, or make the network flat or vlan")
    if kind == "vlan" and (number is None or not 1 <= number <= MOST_VLANS):
        raise wrong("segmentation_id", number, f"give the VLAN, 1 to {MOST_VLANS}")
    if kind in ("vxlan", "geneve", "gre") and number is not None and not 1 <= number <= MOST_TUNNELS:
        raise wrong("segmentation_id", number, f"use 1 to {MOST_TUNNELS}, or leave it out")
    if kind in ("flat", None) and number is not None:
        raise wrong("segmentation_id", number, "leave it out")
    return Network(
        id="",
        name=body.name,
        project_id=project,
        shared=body.shared,
        network_type=kind,
        physical_network=physical,
        segmentation_id=number,
        description=body.description,
    )


NOTHING_INSTEAD = (
    "the embedded Network service has networks and ports alone; for more name a Neutron in [neutron]endpoint_override"
)
_INSTEAD = {
    "subnets": "the embedded Network service hands out no addresses, boot with --network NETWORK as it is; for subnets name a Neutron in"
    " [neutron]endpoint_override"
}


def _add_empty(routes: APIRouter) -> None:
    def add(collection: str) -> None:
        def index() -> Any:
            return {collection.replace("-", "_"): []}

        def show(key: str) -> Any:
            raise NotFound(noun=collection, key=key)

        def create() -> Any:
            raise NotSupported(reason=f"there are no {collection} to make: {_INSTEAD.get(collection, NOTHING_INSTEAD)}")

        routes.add_api_route(f"/v2.0/{collection}", index)
        routes.add_api_route(f"/v2.0/{collection}", create, methods=["POST"])
        routes.add_api_route(f"/v2.0/{collection}/{{key}}", show)

    for collection in COLLECTIONS:
        add(collection)

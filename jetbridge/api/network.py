"""The Network API, as far as clients need it to find networks by name: /network/v2.0. Read only."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import APIRouter, Request

from jetbridge.api.call import ContextOf
from jetbridge.api.services import ApiServices
from jetbridge.db import servers as server_rows
from jetbridge.db.paging import EVERYTHING
from jetbridge.db.servers import ServerFilter
from jetbridge.errors import Forbidden, NotFound
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.server import Server
from jetbridge.network.embedded import Network, get_network, list_networks, network_id

COLLECTIONS = ("subnets", "security-groups", "floatingips", "routers", "subnetpools", "trunks", "address-groups")
"""Resources that exist in the API but of which there are none here."""

_PAGING = frozenset({"limit", "marker", "page_reverse", "sort_key", "sort_dir", "fields"})


def router(services: ApiServices) -> APIRouter:
    """Everything under /network."""
    routes = APIRouter(prefix="/network", include_in_schema=False)
    _add_documents(routes)
    _add_networks(routes, services)
    _add_ports(routes, services)
    _add_empty(routes)
    return routes


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

    @routes.get("/v2.0/extensions")
    def extensions() -> Any:
        return {"extensions": []}

    @routes.get("/v2.0/extensions/{alias}")
    def extension(alias: str) -> Any:
        raise NotFound(noun="Extension", key=alias)


def _add_networks(routes: APIRouter, services: ApiServices) -> None:
    @routes.get("/v2.0/networks")
    def index(request: Request) -> Any:
        views = [network_view(network) for network in list_networks(services.database)]
        return {"networks": _filtered(views, request)}

    @routes.get("/v2.0/networks/{network_id}")
    def show(network_id: str) -> Any:
        return {"network": network_view(get_network(services.database, network_id))}

    @routes.post("/v2.0/networks")
    def create() -> Any:
        raise Forbidden(
            reason="networks are those of the hosts: define one with `virsh net-define`, or a bridge on the host"
        )


def _add_ports(routes: APIRouter, services: ApiServices) -> None:
    def ports(context: RequestContext, device_id: str | None = None) -> list[dict[str, Any]]:
        wanted = ServerFilter(project_id=None if context.is_admin else context.project, deleted=False)
        with services.database.read() as conn:
            servers = server_rows.find(conn, wanted, EVERYTHING)
        return [view for server in servers if device_id in (None, server.uuid) for view in port_views(server)]

    @routes.get("/v2.0/ports")
    def index(request: Request, context: ContextOf) -> Any:
        return {"ports": _filtered(ports(context, request.query_params.get("device_id")), request)}

    @routes.get("/v2.0/ports/{port_id}")
    def show(port_id: str, context: ContextOf) -> Any:
        for port in ports(context):
            if port["id"] == port_id:
                return {"port": port}
        raise NotFound(noun="Port", key=port_id)


def _add_empty(routes: APIRouter) -> None:
    def add(collection: str) -> None:
        def index() -> Any:
            return {collection.replace("-", "_"): []}

        def show(key: str) -> Any:
            raise NotFound(noun=collection, key=key)

        routes.add_api_route(f"/v2.0/{collection}", index)
        routes.add_api_route(f"/v2.0/{collection}/{{key}}", show)

    for collection in COLLECTIONS:
        add(collection)


def network_view(network: Network) -> dict[str, Any]:
    return {
        "id": network.id,
        "name": network.name,
        "description": " and ".join(
            {"network": "libvirt network", "bridge": "host bridge"}.get(kind, kind) for kind in network.kinds
        ),
        "status": "ACTIVE",
        "admin_state_up": True,
        "shared": True,
        "router:external": False,
        "mtu": 1500,
        "subnets": [],
        "tags": [],
        "availability_zones": ["nova"],
        "project_id": ADMIN_ID,
        "tenant_id": ADMIN_ID,
        "revision_number": 1,
    }


def port_views(server: Server) -> Iterable[dict[str, Any]]:
    """A server's NICs as ports. They have no addresses of their own here: the network's DHCP gives them."""
    for nic in server.networks:
        yield {
            "id": _port_id(server.uuid, nic.mac),
            "name": "",
            "network_id": network_id(nic.network),
            "mac_address": nic.mac,
            "fixed_ips": [],
            "device_id": server.uuid,
            "device_owner": "compute:nova",
            "status": "ACTIVE" if server.host else "DOWN",
            "admin_state_up": True,
            "security_groups": [],
            "binding:vnic_type": "normal",
            "project_id": server.project_id,
            "tenant_id": server.project_id,
            "tags": [],
        }


def _port_id(server: str, mac: str) -> str:
    return str(uuid.uuid5(uuid.UUID(server), mac))


def _filtered(views: Sequence[dict[str, Any]], request: Request) -> list[dict[str, Any]]:
    """Those that have, for each filter given, one of its values; only the fields asked for."""
    wanted: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        wanted.setdefault(name, []).append(value)
    fields = wanted.get("fields")
    found = [
        view
        for view in views
        if all(
            name in _PAGING or name not in view or _text(view[name]) in {_text(value) for value in values}
            for name, values in wanted.items()
        )
    ]
    return [{key: view[key] for key in view if key in fields} for view in found] if fields else found


def _text(value: Any) -> str:
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text

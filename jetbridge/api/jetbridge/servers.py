"""/jetbridge/v1/servers: servers with their devices, what the hypervisor holds of one, why it went where it went, and by which way."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from jetbridge.api.call import ContextOf
from jetbridge.api.extra_specs import misspelt
from jetbridge.api.jetbridge.access import PREFIX, find_server, require_admin
from jetbridge.api.jetbridge.views import journey_view, server_view, verdict_view
from jetbridge.api.services import ApiServices
from jetbridge.db import faults, pci_devices, server_arqs, spans, verdicts, vgpus
from jetbridge.db import servers as rows
from jetbridge.db.servers import ServerFilter
from jetbridge.errors import Conflict
from jetbridge.journey.tree import steps
from jetbridge.model.context import RequestContext
from jetbridge.model.server import Server
from jetbridge.model.span import Span


def router(services: ApiServices) -> APIRouter:
    routes = APIRouter(prefix=f"{PREFIX}/servers", include_in_schema=False)

    def views(context: RequestContext, found: list[Server]) -> list[dict[str, Any]]:
        ids = [server.uuid for server in found]
        with services.database.read() as conn:
            devices = pci_devices.of_instances(conn, ids)
            slices = vgpus.of_servers(conn, ids)
            arqs = server_arqs.attached_to(conn, ids)
            reasons = faults.latest(conn, ids)
        return [
            server_view(
                server,
                devices.get(server.uuid, ()),
                slices.get(server.uuid, ()),
                arqs.get(server.uuid, ()),
                reasons[server.uuid].message if server.vm_state == "error" and server.uuid in reasons else None,
                admin=context.is_admin,
            )
            for server in found
        ]

    @routes.get("")
    def index(context: ContextOf, host: str | None = None) -> Any:
        project = None if context.is_admin else context.project
        if host is not None:
            require_admin(context, "listing the servers of a host")
        with services.database.read() as conn:
            found = rows.find(conn, ServerFilter(project_id=project, host=host, deleted=False))
        return {"servers": views(context, list(found))}

    @routes.get("/{key}")
    def show(key: str, context: ContextOf) -> Any:
        return {"server": views(context, [find_server(services, context, key)])[0]}

    @routes.get("/{key}/xml")
    def xml(key: str, context: ContextOf) -> Any:
        require_admin(context, "reading a domain's XML")
        server = find_server(services, context, key)
        if server.host is None:
            raise Conflict(
                f"Server {server.uuid} is on no host, so no hypervisor holds it: `jetbridge explain {server.uuid}` tells why"
            )
        payload = {"server_uuid": server.uuid}
        answer = services.bus.call(context, "compute", "domain_xml", payload, source="api", server=server.host)
        return {"server": server.uuid, "host": server.host, "domain": server.domain_name, "xml": answer["xml"]}

    @routes.get("/{key}/verdicts")
    def explanations(key: str, context: ContextOf) -> Any:
        server = find_server(services, context, key, deleted_too=True)
        with services.database.read() as conn:
            stored = verdicts.of_server(conn, server.uuid)
            fault = faults.latest(conn, [server.uuid]).get(server.uuid)
        return {
            "server": server.uuid,
            "name": server.display_name,
            "vm_state": server.vm_state.value,
            "host": server.host if context.is_admin else None,
            "fault": fault.message if fault else None,
            "details": fault.details if fault and context.is_admin else None,
            "warnings": [f"flavor {server.flavor.name}: {text}" for text in misspelt(server.flavor.extra_specs)],
            "verdicts": [verdict_view(each, admin=context.is_admin) for each in stored],
        }

    @routes.get("/{key}/journey")
    def journey(key: str, context: ContextOf) -> Any:
        """The requests that had to do with the server, the first one first, each with its spans."""
        require_admin(context, "reading which services a request crossed")
        server = find_server(services, context, key, deleted_too=True)
        services.settle_spans()
        with services.database.read() as conn:
            about = {*spans.requests_about(conn, server.uuid), server.request_id or ""}
            found = spans.of_requests(conn, about)
        by_request: dict[str, list[Span]] = {}
        for span in found:
            by_request.setdefault(str(span.request_id), []).append(span)
        ways = {request_id: steps(crossed, server.uuid) for request_id, crossed in by_request.items()}
        return {
            "server": server.uuid,
            "name": server.display_name,
            "requests": [journey_view(request_id, way) for request_id, way in ways.items()],
        }

    return routes

"""/jetbridge/v1 itself: which version runs, and how the whole is doing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import APIRouter

from jetbridge import __version__
from jetbridge.api.call import ContextOf
from jetbridge.api.jetbridge.access import PREFIX, require_admin
from jetbridge.api.services import ApiServices
from jetbridge.db import compute_nodes, pci_devices, providers, servers
from jetbridge.db import services as service_rows
from jetbridge.db.clock import utcnow
from jetbridge.db.servers import ServerFilter
from jetbridge.errors import JetbridgeError
from jetbridge.model.context import RequestContext

RESOURCES = ("audit", "devices", "fleet/reload", "hosts", "pools", "scan", "servers", "status")


def router(services: ApiServices) -> APIRouter:
    routes = APIRouter(prefix=PREFIX, include_in_schema=False)

    @routes.get("")
    def version() -> Any:
        return {"name": "jetbridge", "version": __version__, "api": "v1", "resources": list(RESOURCES)}

    @routes.get("/status")
    def status(context: ContextOf) -> Any:
        require_admin(context, "reading the status")
        with services.database.read() as conn:
            nodes = compute_nodes.listing(conn)
            brains = [row for row in service_rows.listing(conn) if row.binary != service_rows.COMPUTE]
            now, patience = utcnow(), services.settings.service_down_time
            alive = service_rows.up(conn, now, patience)
            up = {node.id for node in nodes if node.host in alive}
            devices = pci_devices.counts_by_status(conn)
            reachable = pci_devices.counts_by_status(conn, up)
            errors = providers.errors(conn)
            states = Counter(server.vm_state.value for server in servers.find(conn, ServerFilter(deleted=False)))
        by_status: Counter[str] = Counter()
        by_condition: Counter[str] = Counter()
        for (device_status, condition), count in devices.items():
            # Those of a host that is down are offered to nobody, whatever they are.
            by_status[device_status.value] += reachable.get((device_status, condition), 0)
            by_condition[condition.value] += count
        return {
            "version": __version__,
            "database": services.database.shown_url,
            "hosts": {
                "up": len(up),
                "down": len(nodes) - len(up),
                "not_reported": sum(1 for node in nodes if not node.reported),
            },
            "placement": _placement(services, context, sum(1 for node in nodes if node.reported), len(nodes)),
            "services": [
                {
                    "binary": row.binary,
                    "host": row.host,
                    "state": "up" if row.is_alive(now, patience) else "down",
                    "last_seen_up": f"{row.last_seen_up.isoformat()}Z" if row.last_seen_up else None,
                }
                for row in brains
            ],
            "report_errors": {node.host: errors[node.id] for node in nodes if node.id in errors},
            "probe_errors": {node.host: node.probe_error for node in nodes if node.probe_error},
            "devices": dict(sorted((+by_status).items())),
            "devices_of_down_hosts": sum(devices.values()) - sum(reachable.values()),
            "conditions": dict(sorted(by_condition.items())),
            "servers": dict(sorted(states.items())),
            "aliases": sorted(services.aliases),
        }

    return routes


def _placement(services: ApiServices, context: RequestContext, reported: int, hosts: int) -> Any:
    """``url`` None: this process has none in its options, and can't tell whether it answers."""
    told: dict[str, Any] = {
        "url": None,
        "answers": None,
        "error": None,
        "reported": reported,
        "waiting": hosts - reported,
    }
    if services.placement is None:
        return told
    told["url"] = services.placement.transport.url
    try:
        services.placement.by("api", context).check()
    except JetbridgeError as error:
        return {**told, "answers": False, "error": error.message}
    return {**told, "answers": True}

"""``os-hypervisors``: the hosts. Usage numbers are computed from the servers' rows, never stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from jetbridge.api.call import Call, ComputeCall, at_version
from jetbridge.api.paging import Listing, cut, next_link, page_of, refuse_unknown
from jetbridge.db import compute_nodes, servers, services
from jetbridge.db.clock import utcnow
from jetbridge.db.compute_nodes import ComputeNode, Usage
from jetbridge.db.connection import Connection
from jetbridge.db.services import Service
from jetbridge.errors import Invalid, NotFound
from jetbridge.model.server import Server

router = APIRouter(tags=["hosts"])

RULE = "os_compute_api:os-hypervisors"
PAGES_SINCE = 33
UUIDS_SINCE = 53


class HypervisorListing(Listing):
    hypervisor_hostname_pattern: str | None = None
    with_servers: bool = False


@dataclass(frozen=True)
class Host:
    node: ComputeNode
    usage: Usage
    agent: Service | None
    servers: Sequence[Server] | None  # None: not asked for


def _hosts(call: Call, conn: Connection, nodes: Sequence[ComputeNode], *, with_servers: bool) -> list[Host]:
    usage = compute_nodes.usage(conn, [node.id for node in nodes])
    agents = services.computes(conn)
    return [
        Host(
            node=node,
            usage=usage.get(node.id, Usage()),
            agent=agents.get(node.host),
            servers=servers.of_host(conn, node.host) if with_servers else None,
        )
        for node in nodes
    ]


def state_of(call: Call, agent: Service | None) -> tuple[str, str]:
    """State (up, down) and status (enabled, disabled)."""
    alive = agent is not None and agent.is_alive(utcnow(), call.services.settings.service_down_time)
    return "up" if alive else "down", "disabled" if agent is not None and agent.disabled else "enabled"


@router.get("/os-hypervisors")
def index(listing: Annotated[HypervisorListing, Query()], request: Request, call: ComputeCall) -> dict[str, Any]:
    return _list(listing, request, call, "/os-hypervisors", _brief)


@router.get("/os-hypervisors/detail")
def detail(listing: Annotated[HypervisorListing, Query()], request: Request, call: ComputeCall) -> dict[str, Any]:
    return _list(listing, request, call, "/os-hypervisors/detail", _detailed)


def _list(listing: HypervisorListing, request: Request, call: Call, path: str, view: Any) -> dict[str, Any]:
    call.require(RULE)
    known = {"limit", "marker"} if call.at_least(PAGES_SINCE) else set()
    if call.at_least(UUIDS_SINCE):
        known |= {"hypervisor_hostname_pattern", "with_servers"}
    refuse_unknown(call, request.query_params, known)
    page = page_of(listing, {})
    with call.services.database.read() as conn:
        nodes = compute_nodes.listing(conn)
        if "hypervisor_hostname_pattern" in known and listing.hypervisor_hostname_pattern is not None:
            nodes = _matching(nodes, listing.hypervisor_hostname_pattern)
        more = False
        if "limit" in known:
            shown, more = cut(_after(call, nodes, listing.marker), page)
        else:
            shown = nodes
        with_servers = "with_servers" in known and listing.with_servers
        hosts = _hosts(call, conn, shown, with_servers=with_servers)
    answer: dict[str, Any] = {"hypervisors": [view(call, host) for host in hosts]}
    if more:
        answer["hypervisors_links"] = next_link(request, call, path, _key(call, shown[-1]))
    return answer


def _key(call: Call, node: ComputeNode) -> str:
    return node.uuid if call.at_least(UUIDS_SINCE) else str(node.id)


def _after(call: Call, nodes: Sequence[ComputeNode], marker: str | None) -> Sequence[ComputeNode]:
    if marker is None:
        return nodes
    keys = [_key(call, node) for node in nodes]
    if marker not in keys:
        raise Invalid(f"marker [{marker}] not found: give the id of a hypervisor.")
    return nodes[keys.index(marker) + 1 :]


def _matching(nodes: Sequence[ComputeNode], pattern: str) -> list[ComputeNode]:
    found = [node for node in nodes if pattern.lower() in node.hypervisor_hostname.lower()]
    if not found:
        raise NotFound(f"No hypervisor matching '{pattern}' could be found.")
    return found


@router.get("/os-hypervisors/statistics", dependencies=[at_version("hypervisor-statistics")])
def statistics(call: ComputeCall) -> dict[str, Any]:
    call.require(RULE)
    with call.services.database.read() as conn:
        hosts = _hosts(call, conn, compute_nodes.listing(conn), with_servers=False)
    numbers = [_numbers(host) for host in hosts]
    names = _numbers(Host(_NOTHING, Usage(), None, None))
    return {
        "hypervisor_statistics": {
            "count": len(hosts),
            **{name: sum(number[name] for number in numbers) for name in names},
        }
    }


@router.get("/os-hypervisors/{hypervisor_id}")
def show(hypervisor_id: str, call: ComputeCall, with_servers: bool = False) -> dict[str, Any]:
    call.require(RULE)
    with call.services.database.read() as conn:
        node = _find(call, conn, hypervisor_id)
        host = _hosts(call, conn, [node], with_servers=with_servers and call.at_least(UUIDS_SINCE))[0]
    return {"hypervisor": _detailed(call, host)}


@router.get("/os-hypervisors/{hypervisor_id}/search", dependencies=[at_version("hypervisor-search")])
def search(hypervisor_id: str, call: ComputeCall) -> dict[str, Any]:
    call.require(RULE)
    with call.services.database.read() as conn:
        nodes = _matching(compute_nodes.listing(conn), hypervisor_id)
        return {"hypervisors": [_brief(call, host) for host in _hosts(call, conn, nodes, with_servers=False)]}


@router.get("/os-hypervisors/{hypervisor_id}/servers", dependencies=[at_version("hypervisor-search")])
def host_servers(hypervisor_id: str, call: ComputeCall) -> dict[str, Any]:
    call.require(RULE)
    with call.services.database.read() as conn:
        nodes = _matching(compute_nodes.listing(conn), hypervisor_id)
        hosts = _hosts(call, conn, nodes, with_servers=True)
    return {
        "hypervisors": [
            {**_brief(call, host), **({"servers": _servers(host)} if host.servers else {})} for host in hosts
        ]
    }


@router.get("/os-hypervisors/{hypervisor_id}/uptime", dependencies=[at_version("hypervisor-uptime")])
def uptime(hypervisor_id: str, call: ComputeCall) -> dict[str, Any]:
    call.require(RULE)
    with call.services.database.read() as conn:
        host = _hosts(call, conn, [_find(call, conn, hypervisor_id)], with_servers=False)[0]
    return {"hypervisor": {**_brief(call, host), "uptime": None}}


def _find(call: Call, conn: Connection, key: str) -> ComputeNode:
    for node in compute_nodes.listing(conn):
        if _key(call, node) == key:
            return node
    raise NotFound(f"Hypervisor with ID '{key}' could not be found.")


# --- views -----------------------------------------------------------------------------------------

_NOTHING = ComputeNode("", "", "", "", 0, 0, 0, 0, 1.0, 1.0, 1.0)


def _numbers(host: Host) -> dict[str, int]:
    """Memory in MiB and disk in GiB, reservations counted as used, as clients know it."""
    node, usage = host.node, host.usage
    memory_used = usage.memory_mb + node.reserved_memory_mb
    disk_used = usage.disk_gb + node.reserved_disk_gb
    return {
        "vcpus": node.vcpus,
        "vcpus_used": usage.vcpus,
        "memory_mb": node.memory_mb,
        "memory_mb_used": memory_used,
        "free_ram_mb": node.memory_mb - memory_used,
        "local_gb": node.local_gb,
        "local_gb_used": disk_used,
        "free_disk_gb": node.local_gb - disk_used,
        "disk_available_least": node.local_gb - disk_used,
        "running_vms": usage.servers,
        "current_workload": 0,
    }


def _brief(call: Call, host: Host) -> dict[str, Any]:
    state, status = state_of(call, host.agent)
    return call.shape(
        "hypervisor-brief",
        {
            "id@number": host.node.id,
            "id@uuid": host.node.uuid,
            "hypervisor_hostname": host.node.hypervisor_hostname,
            "state": state,
            "status": status,
            **_shown_servers(host),
        },
    )


def _detailed(call: Call, host: Host) -> dict[str, Any]:
    node = host.node
    state, status = state_of(call, host.agent)
    return call.shape(
        "hypervisor",
        {
            "id@number": node.id,
            "id@uuid": node.uuid,
            "hypervisor_hostname": node.hypervisor_hostname,
            "hypervisor_type": node.hypervisor_type,
            "hypervisor_version": node.hypervisor_version,
            "host_ip": node.host_ip,
            "state": state,
            "status": status,
            "service": call.shape(
                "hypervisor-service",
                {
                    "id@number": host.agent.id if host.agent else None,
                    "id@uuid": host.agent.uuid if host.agent else None,
                    "host": node.host,
                    "disabled_reason": host.agent.disabled_reason if host.agent else None,
                },
            ),
            "cpu_info@text": node.cpu_info or "",
            "cpu_info@object": _cpu_info(node.cpu_info),
            "uptime": None,
            **_numbers(host),
            **_shown_servers(host),
        },
    )


def _cpu_info(text: str | None) -> Mapping[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _shown_servers(host: Host) -> dict[str, Any]:
    return {} if host.servers is None else {"servers": _servers(host)}


def _servers(host: Host) -> list[dict[str, str]]:
    return [{"name": server.domain_name, "uuid": server.uuid} for server in host.servers or ()]

"""/jetbridge/v1 of hosts: the hosts themselves, their devices and pools, a scan of one, and the fleet file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Body

from jetbridge.api.call import ContextOf
from jetbridge.api.jetbridge.access import PREFIX, find_server, require_admin
from jetbridge.api.jetbridge.views import device_view, host_view, pool_view
from jetbridge.api.services import ApiServices
from jetbridge.db import cleanings, compute_nodes, pci_devices, providers
from jetbridge.db import services as service_rows
from jetbridge.db.clock import utcnow
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.errors import (
    Invalid,
    JetbridgeError,
    NotSupported,
    PciConfigInvalidSpec,
    PciDeviceWrongAddressFormat,
    UnknownDestination,
)
from jetbridge.model.context import RequestContext
from jetbridge.pci.address import PciAddress
from jetbridge.pci.device import Condition, Status
from jetbridge.rpc.bus import Payload

SCAN_SECONDS = 60.0
RELOAD_SECONDS = 180.0
AUDIT_SECONDS = 30.0


def router(services: ApiServices) -> APIRouter:
    routes = APIRouter(prefix=PREFIX, include_in_schema=False)
    _add_hosts(routes, services)
    _add_devices(routes, services)
    _add_actions(routes, services)
    return routes


def _add_hosts(routes: APIRouter, services: ApiServices) -> None:
    @routes.get("/hosts")
    def hosts(context: ContextOf) -> Any:
        require_admin(context, "listing hosts")
        with services.database.read() as conn:
            nodes = _by_name(compute_nodes.listing(conn))
            usage = compute_nodes.usage(conn)
            agents = service_rows.computes(conn)
            devices = _count_by_host(pci_devices.listing(conn))
            errors = providers.errors(conn)
        now, patience = utcnow(), services.settings.service_down_time
        return {
            "hosts": [
                host_view(
                    node,
                    usage.get(node.id, compute_nodes.Usage()),
                    agents.get(node.host),
                    node.host in agents and agents[node.host].is_alive(now, patience),
                    devices.get(node.host, {}),
                    errors.get(node.id),
                )
                for node in nodes
            ]
        }


def _by_name(nodes: Iterable[ComputeNode]) -> list[ComputeNode]:
    return sorted(nodes, key=lambda node: node.host)


def _count_by_host(listed: list[pci_devices.ListedDevice]) -> Mapping[str, Mapping[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for each in listed:
        of_host = counts.setdefault(each.host, {})
        of_host[each.device.status.value] = of_host.get(each.device.status.value, 0) + 1
    return counts


def _add_devices(routes: APIRouter, services: ApiServices) -> None:
    @routes.get("/devices")
    def devices(
        context: ContextOf, host: str | None = None, status: str | None = None, server: str | None = None
    ) -> Any:
        require_admin(context, "listing devices")
        if status is not None and status not in {*Status, *Condition}:
            raise Invalid(reason=f"status={status!r}: use {', '.join([*Status, *Condition])}")
        owner = None if server is None else find_server(services, context, server).uuid
        with services.database.read() as conn:
            if host is not None:
                compute_nodes.of_host(conn, host)
            found = pci_devices.listing(
                conn,
                host=host,
                status=Status(status) if status in set(Status) else None,
                condition=Condition(status) if status in set(Condition) else None,  # shown beside the status
                instance_uuid=owner,
            )
            last = cleanings.last(conn, {each.device.compute_node_id for each in found})
        return {
            "devices": [
                device_view(each, last.get((each.device.compute_node_id, each.device.address))) for each in found
            ]
        }

    @routes.post("/hosts/{host}/devices/{address}/clean")
    def clean(context: ContextOf, host: str, address: str, body: Annotated[Any, Body()] = None) -> Any:
        require_admin(context, "cleaning a device")
        by_hand = (body or {}).get("by_hand", False) if isinstance(body, dict | None) else None
        if not isinstance(by_hand, bool):
            raise Invalid(reason=f"by_hand={by_hand!r}: write true or false")
        wanted = {"address": _address(address), "by_hand": by_hand}
        with services.database.read() as conn:
            compute_nodes.of_host(conn, host)
        return services.bus.call(context, "compute", "clean_device", wanted, source="api", server=host)

    @routes.get("/pools")
    def pools(context: ContextOf, host: str | None = None) -> Any:
        require_admin(context, "listing pools")
        with services.database.read() as conn:
            nodes = _by_name(compute_nodes.listing(conn)) if host is None else [compute_nodes.of_host(conn, host)]
            found = pci_devices.pools(conn, [node.id for node in nodes])
        return {"pools": [pool_view(node.host, pool) for node in nodes for pool in found.get(node.id, ())]}


def _address(text: str) -> str:
    try:
        return str(PciAddress.parse(text))
    except (PciDeviceWrongAddressFormat, PciConfigInvalidSpec):
        raise Invalid(
            reason=f"{text!r} is no PCI address: write domain:bus:slot.function, such as 0000:3b:00.0"
        ) from None


def _add_actions(routes: APIRouter, services: ApiServices) -> None:
    @routes.get("/scan")
    def scan(context: ContextOf, host: str) -> Any:
        require_admin(context, "scanning a host")
        with services.database.read() as conn:
            compute_nodes.of_host(conn, host)
        answer = services.bus.call(context, "compute", "scan", {}, source="api", server=host, timeout=SCAN_SECONDS)
        return {"host": host, **answer}

    @routes.get("/audit")
    def audit(context: ContextOf, host: str | None = None) -> Any:
        require_admin(context, "auditing hosts")
        with services.database.read() as conn:
            nodes = _by_name(compute_nodes.listing(conn)) if host is None else [compute_nodes.of_host(conn, host)]
        findings: list[Any] = []
        unseen: dict[str, str] = {}
        for node in nodes:
            try:
                answer = services.bus.call(
                    context, "compute", "audit", {}, source="api", server=node.host, timeout=AUDIT_SECONDS
                )
            except JetbridgeError as error:
                unseen[node.host] = error.message
                continue
            findings += [{"host": node.host, **finding} for finding in answer["findings"]]
        return {"hosts": len(nodes), "findings": findings, "unseen": unseen}

    @routes.post("/fleet/reload")
    def reload(context: ContextOf) -> Any:
        require_admin(context, "reloading the fleet file")
        return reload_fleet(context, services)


def reload_fleet(context: RequestContext, services: ApiServices) -> dict[str, list[str]]:
    """Every process that serves hosts of a fleet reads the file again, after all have checked it: what one of them refuses changes nothing.
    ``unserved``: hosts of the file that no process picks; ``kept``: those of ``removed`` that have servers. Raises what the file's mistakes raise, ``NotSupported`` without a fleet."""
    with services.database.read() as conn:
        agents = service_rows.computes(conn)
    now, patience = utcnow(), services.settings.service_down_time
    checked: dict[str | None, str] = {}  # by process, the host in whose name it answers
    for host, agent in sorted(agents.items()):
        if agent.is_alive(now, patience) and agent.owner not in checked:
            with suppress(UnknownDestination):  # real hardware, or a host whose agent could not start
                _reload_process(context, services, host, check_only=True)
                checked[agent.owner] = host
    if not checked:
        raise NotSupported(
            reason="no compute that is up serves a fleet file, so there is none to reload (start it with --fleet FILE)"
        )
    answers = [_reload_process(context, services, host, check_only=False) for host in checked.values()]
    told = {
        what: [name for answer in answers for name in answer.get(what, ())]
        for what in ("added", "removed", "changed", "kept")
    }
    left_out = [set(answer["left_out"]) for answer in answers]
    return {**told, "unserved": sorted(set.intersection(*left_out))}


def _reload_process(context: RequestContext, services: ApiServices, host: str, *, check_only: bool) -> Payload:
    payload = {"check_only": check_only}
    return services.bus.call(
        context, "compute", "reload_fleet", payload, source="api", server=host, timeout=RELOAD_SECONDS
    )

"""Servers as the Compute API shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jetbridge.api.call import Call
from jetbridge.api.flavor_views import embedded, links, reference
from jetbridge.api.policy import RULES
from jetbridge.db import faults, services
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.faults import Fault
from jetbridge.db.services import Service
from jetbridge.errors import NotFound
from jetbridge.model.image import Image
from jetbridge.model.server import Server, TaskState, VmState

ATTRIBUTES = "os_compute_api:os-extended-server-attributes"
ZONE = "nova"
assert ATTRIBUTES in RULES

_STATUS_WORDS: Mapping[VmState, str] = {
    VmState.BUILDING: "BUILD",
    VmState.ACTIVE: "ACTIVE",
    VmState.STOPPED: "SHUTOFF",
    VmState.ERROR: "ERROR",
    VmState.DELETED: "DELETED",
}
_REBOOTS: Mapping[TaskState, str] = {TaskState.REBOOTING: "REBOOT", TaskState.REBOOTING_HARD: "HARD_REBOOT"}
_WITH_PROGRESS = frozenset({"ACTIVE", "BUILD", "REBOOT", "HARD_REBOOT"})
_WITH_FAULT = frozenset({"ERROR", "DELETED"})


def timestamp(when: datetime | None) -> str | None:
    return None if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ")


def microseconds(when: datetime | None) -> str | None:
    """As the fields that clients parse without a zone are written."""
    return None if when is None else when.strftime("%Y-%m-%dT%H:%M:%S.%f")


def status(server: Server) -> str:
    if server.vm_state is VmState.ACTIVE and server.task_state is not None and server.task_state in _REBOOTS:
        return _REBOOTS[server.task_state]
    return _STATUS_WORDS[server.vm_state]


def states_of(word: str) -> tuple[VmState, frozenset[TaskState | None]] | None:
    """The inverse of ``status``; None: no such status."""
    word = word.upper()
    for task, name in _REBOOTS.items():
        if word == name:
            return VmState.ACTIVE, frozenset({task})
    for state, name in _STATUS_WORDS.items():
        if word == name:
            others = frozenset({None, *TaskState})
            return state, (others - set(_REBOOTS) if state is VmState.ACTIVE else others)
    return None


@dataclass(frozen=True)
class Surroundings:
    """What the views of many servers need from other tables, read once: faults by server, agents by host, images by
    id (only those whose kernel or ramdisk the caller may see)."""

    faults: Mapping[str, Fault] = field(default_factory=dict)
    agents: Mapping[str, Service] = field(default_factory=dict)
    images: Mapping[str, Image] = field(default_factory=dict)


def surroundings(call: Call, conn: Connection, servers: Sequence[Server]) -> Surroundings:
    failed = [server.uuid for server in servers if status(server) in _WITH_FAULT]
    if not call.allowed(ATTRIBUTES):
        return Surroundings(faults.latest(conn, failed))
    with_kernel = {server.image_ref for server in servers if server.image_ref} if call.at_least(3) else set()
    return Surroundings(
        faults=faults.latest(conn, failed),
        agents=services.computes(conn, {server.host for server in servers if server.host}),
        images=_existing(call.services.images.get, with_kernel),
    )


def _existing(get: Callable[[str], Image], ids: set[str]) -> dict[str, Image]:
    found = {}
    for image_id in ids:
        try:
            found[image_id] = get(image_id)
        except NotFound:  # deleted since
            continue
    return found


def brief(call: Call, server: Server) -> dict[str, Any]:
    return {"id": server.uuid, "name": server.display_name, "links": links(call, f"/servers/{server.uuid}")}


def detailed(call: Call, server: Server, around: Surroundings) -> dict[str, Any]:
    return call.shape("server", _full(call, server, around))


def updated(call: Call, server: Server, around: Surroundings) -> dict[str, Any]:
    return call.shape("server-updated", _full(call, server, around))


def created(call: Call, server: Server) -> dict[str, Any]:
    return {
        "id": server.uuid,
        "links": links(call, f"/servers/{server.uuid}"),
        "OS-DCF:diskConfig": "MANUAL",
    }


def _full(call: Call, server: Server, around: Surroundings) -> dict[str, Any]:
    word = status(server)
    image = around.images.get(server.image_ref or "")
    properties: Mapping[str, str] = image.properties if image else {}
    full: dict[str, Any] = {
        **brief(call, server),
        "status": word,
        "tenant_id": server.project_id,
        "user_id": server.user_id,
        "metadata": dict(server.metadata),
        "hostId": host_id(server),
        "image": _image(call, server),
        "flavor@ref": reference(call, server.flavor),
        "flavor@embedded": embedded(server.flavor),
        "created": timestamp(server.created_at),
        "updated": timestamp(server.updated_at or server.created_at),
        "addresses": addresses(server),
        "accessIPv4": "",
        "accessIPv6": "",
        "OS-DCF:diskConfig": "MANUAL",
        "OS-EXT-AZ:availability_zone": (ZONE if server.host else server.availability_zone) or "",
        "config_drive": "True" if server.config_drive else "",
        "key_name": server.key_name,
        "OS-SRV-USG:launched_at": microseconds(server.launched_at),
        "OS-SRV-USG:terminated_at": microseconds(server.terminated_at),
        "OS-EXT-STS:task_state": server.task_state,
        "OS-EXT-STS:vm_state": server.vm_state,
        "OS-EXT-STS:power_state": int(server.power_state),
        "os-extended-volumes:volumes_attached": [],
        "OS-EXT-SRV-ATTR:host": server.host,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": server.node,
        "OS-EXT-SRV-ATTR:instance_name": server.domain_name,
        "OS-EXT-SRV-ATTR:reservation_id": server.reservation_id,
        "OS-EXT-SRV-ATTR:launch_index": server.launch_index,
        "OS-EXT-SRV-ATTR:hostname@admin": server.hostname,
        "OS-EXT-SRV-ATTR:hostname@all": server.hostname,
        "OS-EXT-SRV-ATTR:kernel_id": properties.get("kernel_id", ""),
        "OS-EXT-SRV-ATTR:ramdisk_id": properties.get("ramdisk_id", ""),
        "OS-EXT-SRV-ATTR:root_device_name": "/dev/vda",
        "OS-EXT-SRV-ATTR:user_data": server.user_data,
        "locked": server.locked,
        "locked_reason": server.locked_reason,
        "host_status": _host_status(call, server, around.agents),
        "description": server.display_description,
        "tags": list(server.tags),
        "trusted_image_certificates": None,
        "server_groups": [],
        "pinned_availability_zone": server.availability_zone,
    }
    if word in _WITH_PROGRESS:
        full["progress"] = 0
    if word in _WITH_FAULT and server.uuid in around.faults:
        full["fault"] = _fault(call, around.faults[server.uuid])
    return full


def addresses(server: Server) -> dict[str, list[Any]]:
    """Networks by name. Known are addresses that ports were given; others are given out by the networks themselves."""
    found: dict[str, list[Any]] = {nic.network: [] for nic in server.networks}
    for nic in server.networks:
        found[nic.network] += [
            {
                "version": 6 if ":" in address else 4,
                "addr": address,
                "OS-EXT-IPS:type": "fixed",
                "OS-EXT-IPS-MAC:mac_addr": nic.mac,
            }
            for address in nic.fixed_ips
        ]
    return found


def host_id(server: Server) -> str:
    """The same for one project's servers on one host, so that owners can tell hosts apart without knowing them."""
    return hashlib.sha224(f"{server.project_id}{server.host}".encode()).hexdigest() if server.host else ""


def _image(call: Call, server: Server) -> Any:
    if not server.image_ref:
        return ""
    bookmark = f"{call.url.removesuffix('/v2.1')}/images/{server.image_ref}"
    return {"id": server.image_ref, "links": [{"rel": "bookmark", "href": bookmark}]}


def _fault(call: Call, fault: Fault) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "code": fault.code,
        "created": timestamp(fault.created_at),
        "message": fault.message,
    }
    # Details of what went wrong inside name hosts: they are for administrators.
    if fault.details and (fault.code != 500 or call.allowed("os_compute_api:servers:show:fault_details")):
        shown["details"] = fault.details
    return shown


def _host_status(call: Call, server: Server, agents: Mapping[str, Service]) -> str:
    agent = agents.get(server.host or "")
    if agent is None:
        return "" if server.host is None else "UNKNOWN"
    if agent.forced_down:
        return "DOWN"
    if not agent.is_alive(utcnow(), call.services.settings.service_down_time):
        return "UNKNOWN"
    return "MAINTENANCE" if agent.disabled else "UP"

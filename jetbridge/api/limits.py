"""Limits and quotas: there are none, and clients that ask are told so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from jetbridge.api.call import Call, ComputeCall
from jetbridge.db import servers
from jetbridge.db.servers import ServerFilter
from jetbridge.errors import Forbidden

router = APIRouter(tags=["limits"])

UNLIMITED = -1
RESOURCES = (
    "instances",
    "cores",
    "ram",
    "metadata_items",
    "key_pairs",
    "server_groups",
    "server_group_members",
    "fixed_ips",
    "floating_ips",
    "security_groups",
    "security_group_rules",
    "injected_files",
    "injected_file_content_bytes",
    "injected_file_path_bytes",
)
_LIMITS = (
    "maxServerMeta",
    "maxTotalInstances",
    "maxTotalCores",
    "maxTotalRAMSize",
    "maxTotalKeypairs",
    "maxServerGroups",
    "maxServerGroupMembers",
    "maxImageMeta",
    "maxPersonality",
    "maxPersonalitySize",
    "maxSecurityGroups",
    "maxSecurityGroupRules",
    "maxTotalFloatingIps",
)


def _project(call: Call, project: str | None) -> str:
    if project is None or project == call.context.project:
        return call.context.project
    call.require("os_compute_api:os-quota-sets:others")
    return project


def _used(call: Call, project: str) -> Mapping[str, int]:
    with call.services.database.read() as conn:
        rows = servers.find(conn, ServerFilter(project_id=project))
    return {
        "instances": len(rows),
        "cores": sum(row.flavor.vcpus for row in rows),
        "ram": sum(row.flavor.memory_mb for row in rows),
    }


@router.get("/limits")
def limits(call: ComputeCall, tenant_id: str | None = None, reserved: str | None = None) -> dict[str, Any]:
    used = _used(call, _project(call, tenant_id))
    absolute = {
        **dict.fromkeys(_LIMITS, UNLIMITED),
        "totalInstancesUsed": used["instances"],
        "totalCoresUsed": used["cores"],
        "totalRAMUsed": used["ram"],
        "totalServerGroupsUsed": 0,
        "totalSecurityGroupsUsed": 0,
        "totalFloatingIpsUsed": 0,
    }
    return {"limits": {"rate": [], "absolute": call.shape("limits", absolute)}}


@router.get("/os-quota-sets/{project_id}")
def quota(project_id: str, call: ComputeCall, user_id: str | None = None) -> dict[str, Any]:
    project = _project(call, project_id)
    return {"quota_set": {"id": project, **call.shape("quota", dict.fromkeys(RESOURCES, UNLIMITED))}}


@router.get("/os-quota-sets/{project_id}/defaults")
def default_quota(project_id: str, call: ComputeCall) -> dict[str, Any]:
    return {"quota_set": {"id": project_id, **call.shape("quota", dict.fromkeys(RESOURCES, UNLIMITED))}}


@router.get("/os-quota-sets/{project_id}/detail")
def quota_detail(project_id: str, call: ComputeCall, user_id: str | None = None) -> dict[str, Any]:
    project = _project(call, project_id)
    used = _used(call, project)
    full = {name: {"limit": UNLIMITED, "in_use": used.get(name, 0), "reserved": 0} for name in RESOURCES}
    return {"quota_set": {"id": project, **call.shape("quota", full)}}


@router.put("/os-quota-sets/{project_id}")
def set_quota(project_id: str, call: ComputeCall) -> dict[str, Any]:
    raise Forbidden(f"There are no quotas here: none can be set for project {project_id}.")

"""Devices, pools, hosts, servers and verdicts as JSON. Field names are those of the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from jetbridge.accelerator.inventory import address_of
from jetbridge.db.cleanings import Cleaning
from jetbridge.db.compute_nodes import ComputeNode, Usage
from jetbridge.db.pci_devices import ListedDevice
from jetbridge.db.services import Service
from jetbridge.db.verdicts import StoredVerdict
from jetbridge.journey.tree import Step
from jetbridge.mdev.values import Vgpu
from jetbridge.model.accelerator import AttachType, ServerArq
from jetbridge.model.server import Server
from jetbridge.pci.device import PciDevice
from jetbridge.pci.pool import Pool
from jetbridge.placement.pci_tree import MARK, RESERVED, USED


def device_view(listed: ListedDevice, cleaning: Cleaning | None) -> dict[str, Any]:
    """``cleaning``: its last one."""
    device = listed.device
    return {
        "host": listed.host,
        **_hardware(device),
        "status": device.status.value,
        "condition": device.condition.value,
        "parent_addr": device.parent_addr,
        "instance_uuid": device.instance_uuid,
        "server_name": listed.server_name,
        "request_id": device.request_id,
        "resource_class": device.resource_class,
        "serial": device.serial,
        "driver": device.extra_info.get("driver"),
        "iommu_group": device.extra_info.get("iommu_group"),
        "tags": dict(device.pool_tags),
        "one_time_use": device.one_time_use,
        "used": not device.owned and device.extra_info.get(MARK) in (USED, RESERVED),
        "rp_uuid": device.extra_info.get("rp_uuid"),
        "cleaning": None if cleaning is None else _cleaning_view(cleaning),
    }


def _cleaning_view(cleaning: Cleaning) -> dict[str, Any]:
    return {
        "state": cleaning.state,
        "command": cleaning.command,
        "started_at": _time(cleaning.started_at),
        "exit_code": cleaning.exit_code,
        "seconds": cleaning.seconds,
        "output": cleaning.output,
        "reason": cleaning.reason,
    }


def owned_view(device: PciDevice) -> dict[str, Any]:
    return {**_hardware(device), "status": device.status.value, "request_id": device.request_id}


def _hardware(device: PciDevice) -> dict[str, Any]:
    return {
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "dev_type": device.dev_type.value,
        "numa_node": device.numa_node,
    }


def pool_view(host: str, pool: Pool) -> dict[str, Any]:
    return {
        "host": host,
        "vendor_id": pool.vendor_id,
        "product_id": pool.product_id,
        "dev_type": pool.dev_type.value,
        "numa_node": pool.numa_node,
        "address": pool.address,
        "count": pool.count,
        "tags": dict(pool.tags),
        "parent_ifname": pool.parent_ifname,
    }


def host_view(
    node: ComputeNode,
    usage: Usage,
    service: Service | None,
    alive: bool,
    devices: Mapping[str, int],
    report_error: str | None,
) -> dict[str, Any]:
    """``devices``: how many the host has, by status; ``report_error``: why its last report to Placement failed."""
    return {
        "id": node.id,
        "uuid": node.uuid,
        "host": node.host,
        "hypervisor_type": node.hypervisor_type,
        "state": "up" if alive else "down",
        "status": "disabled" if service is not None and service.disabled else "enabled",
        "forced_down": service is not None and service.forced_down,
        "disabled_reason": service.disabled_reason if service is not None else None,
        "probe_error": node.probe_error,
        "reported": node.reported,
        "report_error": report_error,
        "generation": node.generation,
        "numa_cells": len(node.numa.cells) if node.numa is not None else 0,
        "vcpus": node.vcpus,
        "vcpus_used": usage.vcpus,
        "memory_mb": node.memory_mb,
        "memory_mb_used": usage.memory_mb,
        "disk_gb": node.local_gb,
        "disk_gb_used": usage.disk_gb,
        "servers": usage.servers,
        "devices": dict(devices),
    }


def server_view(
    server: Server,
    devices: Iterable[PciDevice],
    vgpus: Iterable[Vgpu],
    arqs: Iterable[ServerArq],
    fault: str | None,
    *,
    admin: bool,
) -> dict[str, Any]:
    """With everything that its guest has of the host, by whatever way it came."""
    view = {
        "id": server.uuid,
        "name": server.display_name,
        "project_id": server.project_id,
        "vm_state": server.vm_state.value,
        "task_state": server.task_state.value if server.task_state is not None else None,
        "power_state": server.power_state.name,
        "flavor": server.flavor.name,
        "image_id": server.image_ref,
        "created_at": _time(server.created_at),
        "fault": fault,
        "devices": [owned_view(device) for device in devices],
        "vgpus": [{"uuid": vgpu.uuid, "type": vgpu.type, "held_as": vgpu.held_as} for vgpu in vgpus],
        "accelerators": [{"arq": arq.arq_uuid, "profile": arq.profile, "held_as": _held_as(arq)} for arq in arqs],
    }
    return {**view, "host": server.host, "domain": server.domain_name} if admin else view


def _held_as(arq: ServerArq) -> str | None:
    return arq.handle_uuid if arq.attach_type == AttachType.MDEV else address_of(arq.attach_info)


def verdict_view(stored: StoredVerdict, *, admin: bool) -> dict[str, Any]:
    group, reason = stored.group, stored.group.reason
    return {
        "attempt": stored.attempt,
        "request_id": stored.request_id,
        "created_at": _time(stored.created_at),
        "passed": group.passed,
        "filter": group.filter,
        "rule": reason.rule if reason else None,
        "text": reason.text if reason else None,
        "request": reason.request if reason else None,
        "before": reason.before if reason else None,
        "after": reason.after if reason else None,
        "hint": reason.hint if reason else None,
        "host_count": group.host_count,
        "hosts": list(group.hosts) if admin else None,
    }


def journey_view(request_id: str, steps: Sequence[Step]) -> dict[str, Any]:
    """The way of one request. ``at`` and ``seconds`` of its spans: when after its start, and for how long."""
    began = min(step.span.started_at for step in steps)
    ended = max(step.span.started_at + timedelta(seconds=step.span.seconds) for step in steps)
    return {
        "request_id": request_id,
        "started_at": began.isoformat(timespec="milliseconds") + "Z",
        "seconds": _seconds(ended - began),
        "spans": [
            {
                "depth": step.depth,
                "seam": step.span.seam.value,
                "from": step.span.source,
                "to": step.span.target,
                "what": step.span.what,
                "server": step.span.server,
                "at": _seconds(step.span.started_at - began),
                "seconds": round(step.span.seconds, 6),
                "essentials": dict(step.span.essentials),
                "error": step.span.error,
                "trace_id": step.span.trace_id,
                "span_id": step.span.span_id,
                "parent_id": step.span.parent_id,
            }
            for step in steps
        ],
    }


def _seconds(length: timedelta) -> float:
    return round(length.total_seconds(), 6)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.replace(microsecond=0).isoformat() + "Z"

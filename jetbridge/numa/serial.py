"""Topologies as plain JSON values and back, for ``compute_nodes.numa_topology`` and ``instance_extra.numa_topology``.

The form is stable: keys are only ever added, and a reader takes a missing key for its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jetbridge.numa.topology import (
    CpuPolicy,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    PagePool,
    ThreadPolicy,
)


def topology_to_json(topology: HostTopology | GuestTopology) -> dict[str, Any]:
    """``{"kind": "host" | "guest", "cells": [...], ...}`` of JSON values only; sets become sorted lists."""
    if isinstance(topology, HostTopology):
        return host_topology_to_json(topology)
    return guest_topology_to_json(topology)


def topology_from_json(data: Mapping[str, Any]) -> HostTopology | GuestTopology:
    """The topology of either kind. Raises ``ValueError`` for another kind."""
    kind = data.get("kind")
    if kind == "host":
        return host_topology_from_json(data)
    if kind == "guest":
        return guest_topology_from_json(data)
    raise ValueError(f"kind={kind!r} of a stored topology: expected host or guest")


def host_topology_to_json(topology: HostTopology) -> dict[str, Any]:
    return {"kind": "host", "cells": [_host_cell_to_json(cell) for cell in topology.cells]}


def guest_topology_to_json(topology: GuestTopology) -> dict[str, Any]:
    return {
        "kind": "guest",
        "cells": [_guest_cell_to_json(cell) for cell in topology.cells],
        "cpu_policy": topology.cpu_policy,
        "thread_policy": topology.thread_policy,
        "emulator_isolate": topology.emulator_isolate,
        "emulator_share": topology.emulator_share,
    }


def host_topology_from_json(data: Mapping[str, Any]) -> HostTopology:
    return HostTopology(cells=tuple(_host_cell_from_json(cell) for cell in data["cells"]))


def guest_topology_from_json(data: Mapping[str, Any]) -> GuestTopology:
    cpu_policy, thread_policy = data.get("cpu_policy"), data.get("thread_policy")
    return GuestTopology(
        cells=tuple(_guest_cell_from_json(cell) for cell in data["cells"]),
        cpu_policy=None if cpu_policy is None else CpuPolicy(cpu_policy),
        thread_policy=None if thread_policy is None else ThreadPolicy(thread_policy),
        emulator_isolate=data.get("emulator_isolate", False),
        emulator_share=data.get("emulator_share", False),
    )


def _host_cell_to_json(cell: HostCell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "cpus": sorted(cell.cpus),
        "pinnable": sorted(cell.pinnable),
        "memory_mb": cell.memory_mb,
        "siblings": [sorted(group) for group in cell.siblings],
        "socket": cell.socket,
        "pages": [
            {"size_kb": pool.size_kb, "total": pool.total, "used": pool.used, "reserved": pool.reserved}
            for pool in cell.pages
        ],
        "pinned": sorted(cell.pinned),
        "cpu_usage": cell.cpu_usage,
        "memory_usage_mb": cell.memory_usage_mb,
    }


def _host_cell_from_json(data: Mapping[str, Any]) -> HostCell:
    return HostCell(
        id=data["id"],
        cpus=_cpus(data["cpus"]),
        pinnable=_cpus(data["pinnable"]),
        memory_mb=data["memory_mb"],
        siblings=tuple(_cpus(group) for group in data.get("siblings", ())),
        socket=data.get("socket"),
        pages=tuple(
            PagePool(pool["size_kb"], pool["total"], pool.get("used", 0), pool.get("reserved", 0))
            for pool in data.get("pages", ())
        ),
        pinned=_cpus(data.get("pinned", ())),
        cpu_usage=data.get("cpu_usage", 0),
        memory_usage_mb=data.get("memory_usage_mb", 0),
    )


def _guest_cell_to_json(cell: GuestCell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "cpus": sorted(cell.cpus),
        "pinned_cpus": sorted(cell.pinned_cpus),
        "memory_mb": cell.memory_mb,
        "page_request": cell.page_request,
        "host_cell": cell.host_cell,
        "page_size_kb": cell.page_size_kb,
        "pinning": {str(guest): host for guest, host in sorted(cell.pinning.items())},
        "reserved_cpus": sorted(cell.reserved_cpus),
    }


def _guest_cell_from_json(data: Mapping[str, Any]) -> GuestCell:
    return GuestCell(
        id=data["id"],
        cpus=_cpus(data["cpus"]),
        pinned_cpus=_cpus(data["pinned_cpus"]),
        memory_mb=data["memory_mb"],
        page_request=data.get("page_request"),
        host_cell=data.get("host_cell"),
        page_size_kb=data.get("page_size_kb"),
        pinning={int(guest): host for guest, host in data.get("pinning", {}).items()},
        reserved_cpus=_cpus(data.get("reserved_cpus", ())),
    )


def _cpus(numbers: Iterable[int]) -> frozenset[int]:
    return frozenset(numbers)

"""Values to fill tables with; every argument has a default that is legal."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.model.flavor import Flavor
from jetbridge.model.server import PowerState, Server, TaskState, VmState
from jetbridge.pci.device import DeviceType, PciDevice

NOW = datetime(2026, 3, 4, 5, 6, 7)


def new_id() -> str:
    return str(uuid.uuid4())


def flavor(name: str = "gpu.small", **changes: Any) -> Flavor:
    values: dict[str, Any] = {"id": 0, "flavorid": name, "name": name, "vcpus": 2, "memory_mb": 2048, "root_gb": 10}
    return Flavor(**(values | changes))


def server(name: str = "s1", **changes: Any) -> Server:
    values: dict[str, Any] = {
        "id": 0,
        "uuid": new_id(),
        "display_name": name,
        "project_id": "p1",
        "user_id": "u1",
        "vm_state": VmState.BUILDING,
        "task_state": TaskState.SCHEDULING,
        "power_state": PowerState.NOSTATE,
        "flavor": flavor(),
        "image_ref": None,
        "created_at": NOW,
    }
    return Server(**(values | changes))


def node(host: str = "gpu001", **changes: Any) -> ComputeNode:
    values: dict[str, Any] = {
        "uuid": new_id(),
        "host": host,
        "hypervisor_hostname": host,
        "hypervisor_type": "QEMU",
        "hypervisor_version": 9000000,
        "vcpus": 32,
        "memory_mb": 65536,
        "local_gb": 1000,
        "cpu_allocation_ratio": 4.0,
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
    }
    return ComputeNode(**(values | changes))


def device(compute_node_id: int, address: str = "0000:3b:00.0", **changes: Any) -> PciDevice:
    values: dict[str, Any] = {
        "compute_node_id": compute_node_id,
        "address": address,
        "vendor_id": "10de",
        "product_id": "1eb8",
        "dev_type": DeviceType.PCI,
        "uuid": new_id(),
        "numa_node": 0,
    }
    return PciDevice(**(values | changes))

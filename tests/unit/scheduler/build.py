"""A small cloud in a real database, and hosts and requests as values."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jetbridge.db import compute_nodes, networks, pci_devices, request_specs, servers, services
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.networks import HostNetwork
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.flavor import Flavor
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.server import PowerState, Server, VmState
from jetbridge.numa.topology import HostTopology
from jetbridge.pci.device import DeviceType, PciDevice, Status
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import NumaPolicy, PciRequest
from tests.schema import new_database

CONTEXT = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-00000000-0000-0000-0000-000000000001")
NOW = datetime(2026, 1, 1, 12, 0, 0)
FLAVOR = Flavor(id=1, flavorid="1", name="small", vcpus=2, memory_mb=2048, root_gb=10)

_numbers = itertools.count(1)


def new_id() -> str:
    return str(uuid.UUID(int=next(_numbers)))


def request(
    count: int = 1,
    name: str = "GPU",
    product_id: str = "1eb8",
    vendor_id: str = "10de",
    policy: NumaPolicy | None = None,
    **properties: str,
) -> PciRequest:
    wanted = {"vendor_id": vendor_id, "product_id": product_id, **properties}
    return PciRequest(new_id(), count, (wanted,), alias_name=name, numa_policy=policy)


def spec(*requests: PciRequest, **facts: Any) -> RequestSpec:
    known: dict[str, Any] = {
        "instance_uuid": new_id(),
        "project_id": ADMIN_ID,
        "flavor": FLAVOR,
        "image_ref": None,
        "pci_requests": requests,
    }
    return RequestSpec(**{**known, **facts})


def pool(
    count: int = 1,
    product_id: str = "1eb8",
    dev_type: DeviceType = DeviceType.PCI,
    address: str = "0000:3b:00.0",
    numa_node: int | None = None,
    vendor_id: str = "10de",
) -> Pool:
    return Pool(vendor_id, product_id, numa_node, dev_type, address, count)


def gpus(count: int, first_bus: int = 1) -> tuple[Pool, ...]:
    return tuple(pool(address=f"0000:{first_bus + at:02x}:00.0") for at in range(count))


def state(name: str = "h1", number: int = 1, **facts: Any) -> HostState:
    known: dict[str, Any] = {
        "compute_node_id": number,
        "host": name,
        "hypervisor_hostname": name,
        "generation": 1,
        "vcpus": 16,
        "memory_mb": 65536,
        "disk_gb": 1000,
        "vcpus_used": 0,
        "memory_mb_used": 0,
        "disk_gb_used": 0,
        "running_servers": 0,
        "cpu_allocation_ratio": 4.0,
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
        "reserved_memory_mb": 512,
        "reserved_disk_gb": 0,
        "enabled": True,
        "alive": True,
        "pools": (),
        "networks": frozenset({"default"}),
    }
    return HostState(**{**known, **facts})


class Cloud:
    """Hosts and servers in a database of its own; ``now`` is the time that services are judged by."""

    def __init__(self, folder: Path) -> None:
        self.database = new_database(folder / "cloud.sqlite3")
        self.now = NOW

    def host(
        self,
        name: str,
        *,
        gpus: int = 0,
        numa: HostTopology | None = None,
        devices: Sequence[Mapping[str, Any]] = (),
        network_names: Sequence[str] = ("default",),
        **facts: Any,
    ) -> ComputeNode:
        """``gpus``: plain free GPUs; ``devices``: others, as arguments of ``PciDevice``."""
        node = ComputeNode(
            uuid=new_id(),
            host=name,
            hypervisor_hostname=name,
            hypervisor_type="QEMU",
            hypervisor_version=9000000,
            vcpus=16,
            memory_mb=65536,
            local_gb=1000,
            cpu_allocation_ratio=4.0,
            ram_allocation_ratio=1.0,
            disk_allocation_ratio=1.0,
            reserved_memory_mb=512,
            numa=numa,
        )

        def store(conn: Connection) -> ComputeNode:
            services.register(conn, [name], "nova-compute", "compute", "this process", new_id, now=self.now)
            stored = compute_nodes.upsert(conn, replace(node, **facts))
            compute_nodes.lock(conn, stored.id)
            cards = [{"address": f"0000:{bus:02x}:00.0"} for bus in range(1, gpus + 1)]
            pci_devices.save(conn, [self._device(stored.id, card) for card in [*cards, *devices]])
            networks.replace(conn, stored.id, [HostNetwork(network, "network") for network in network_names])
            return compute_nodes.get(conn, stored.id)

        return self.database.write(store)

    def _device(self, node: int, facts: Mapping[str, Any]) -> PciDevice:
        known: dict[str, Any] = {
            "vendor_id": "10de",
            "product_id": "1eb8",
            "dev_type": DeviceType.PCI,
            "uuid": new_id(),
        }
        return PciDevice(compute_node_id=node, **{**known, **facts})

    def server(self, wanted: RequestSpec, index: int = 0) -> str:
        """A server that waits for its host, and its frozen request."""
        server = Server(
            id=0,
            uuid=wanted.instance_uuid,
            display_name="vm",
            project_id=ADMIN_ID,
            user_id=ADMIN_ID,
            vm_state=VmState.BUILDING,
            task_state=None,
            power_state=PowerState.NOSTATE,
            flavor=wanted.flavor,
            image_ref=None,
            created_at=datetime.now(UTC).replace(tzinfo=None),
            launch_index=index,
        )

        def store(conn: Connection) -> None:
            servers.create(conn, server, pci_requests=wanted.pci_requests, numa_topology=wanted.numa_topology)
            request_specs.create(conn, wanted)

        self.database.write(store)
        return wanted.instance_uuid

    def place(self, server_uuid: str, node: ComputeNode) -> None:
        """As a claim without devices."""

        def store(conn: Connection) -> None:
            compute_nodes.lock(conn, node.id)
            servers.place(conn, server_uuid, node.host, node.hypervisor_hostname, node.id)

        self.database.write(store)

    def take_devices(self, node: ComputeNode, server_uuid: str, count: int) -> None:
        """Give the server so many devices of the host."""

        def store(conn: Connection) -> None:
            compute_nodes.lock(conn, node.id)
            free = [device for device in pci_devices.of_host(conn, node.id) if device.status is Status.AVAILABLE]
            taken = [replace(device, status=Status.CLAIMED, instance_uuid=server_uuid) for device in free[:count]]
            pci_devices.save(conn, taken)

        self.database.write(store)

    def service(self, name: str, *, disabled: bool, reason: str | None = None) -> None:
        def store(conn: Connection) -> None:
            services.set_disabled(conn, services.find(conn, name, "nova-compute").uuid, disabled, reason)

        self.database.write(store)

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

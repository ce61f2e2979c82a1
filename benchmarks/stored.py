"""A database with many hosts, and what scheduler and claim do with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from benchmarks.fleets import CELLS, CPUS_PER_CELL, GPU, cell
from jetbridge.db import compute_nodes, pci_devices, services
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.numa.topology import HostTopology
from jetbridge.pci.device import DeviceType, PciDevice, Status
from jetbridge.scheduler.snapshot import SnapshotCache

BATCH = 500
TIMES = 7


def filled(url: str, hosts: int) -> Database:
    database = Database(url)
    database.upgrade()
    names = [f"node{number:06}" for number in range(hosts)]
    topology = HostTopology(tuple(cell(number) for number in range(CELLS)))

    def store(conn: Connection, batch: list[str]) -> None:
        services.register(conn, batch, "nova-compute", "compute", "bench", lambda: _uuid(len(batch)))
        rows = []
        for name in batch:
            node = compute_nodes.upsert(conn, _node(name, topology))
            rows += [_device(node.id, at) for at in range(8)]
        pci_devices.save(conn, rows)

    for start in range(0, hosts, BATCH):
        batch = names[start : start + BATCH]
        database.write(lambda conn, batch=batch: store(conn, batch))  # type: ignore[misc]
    return database


_numbers = iter(range(1, 10**9))


def _uuid(_: int = 0) -> str:
    return f"{next(_numbers):036}"


def _node(name: str, topology: HostTopology) -> ComputeNode:
    return ComputeNode(
        uuid=_uuid(),
        host=name,
        hypervisor_hostname=name,
        hypervisor_type="QEMU",
        hypervisor_version=9000000,
        vcpus=CELLS * CPUS_PER_CELL,
        memory_mb=262144,
        local_gb=2000,
        cpu_allocation_ratio=4.0,
        ram_allocation_ratio=1.0,
        disk_allocation_ratio=1.0,
        numa=topology,
    )


def _device(node: int, at: int) -> PciDevice:
    return PciDevice(
        node, f"0000:{0x10 + at:02x}:00.0", **GPU, dev_type=DeviceType.PCI, uuid=_uuid(), numa_node=at // 4
    )


def reload_ms(url: str, hosts: int, changed: int) -> dict[str, float]:
    """CPU milliseconds of this process until a scheduler has the hosts as they are: nothing moved, ``changed`` moved, everything
    loaded anew. On a server the database's own time is not in it."""
    database = filled(url, hosts)
    try:
        snapshot = SnapshotCache(database, service_down_time=10**6, with_pools=True)
        start = time.process_time()
        nodes = [state.compute_node_id for state in snapshot.hosts()]
        everything = time.process_time() - start
        step = max(len(nodes) // changed, 1)
        return {
            "nothing": _median(snapshot, lambda: None),
            f"changed_{changed}": _median(snapshot, lambda: _take_one_each(database, nodes[::step][:changed])),
            "everything": round(1000 * everything, 1),
        }
    finally:
        database.close()


def _median(snapshot: SnapshotCache, between: Callable[[], None]) -> float:
    taken = []
    for _ in range(TIMES):
        between()
        start = time.process_time()
        snapshot.hosts()
        taken.append(time.process_time() - start)
    return round(1000 * median(taken), 2)


def _take_one_each(database: Database, nodes: list[int]) -> None:
    def take(conn: Connection) -> None:
        for node in nodes:
            compute_nodes.lock(conn, node)
            free = [one for one in pci_devices.of_host(conn, node) if one.status is Status.AVAILABLE]
            pci_devices.save(conn, [replace(one, status=Status.ALLOCATED, instance_uuid="server") for one in free[:1]])

    database.write(take)


def claim_ms(url: str) -> float:
    """CPU milliseconds of a transaction that locks a host, reads its devices and takes one."""
    database = filled(url, 1)
    try:
        with database.read() as conn:
            (node,) = compute_nodes.generations(conn)
        taken = []
        for _ in range(8):
            start = time.process_time()
            _take_one_each(database, [node])
            taken.append(time.process_time() - start)
        return round(1000 * median(taken), 3)
    finally:
        database.close()

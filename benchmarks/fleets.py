"""Hosts and requests as values for the benchmarks, and the same as plain data for the peer."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.flavor import Flavor
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.numa.topology import HostCell, HostTopology, PagePool
from jetbridge.pci.device import DeviceType
from jetbridge.pci.pool import Group, Level, Pool
from jetbridge.pci.request import PciRequest, requests_to_json

GPU = {"vendor_id": "10de", "product_id": "1eb8"}
CONTEXT = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-bench")
FLAVOR = Flavor(id=1, flavorid="1", name="gpu1", vcpus=4, memory_mb=8192, root_gb=10)
CELLS, CPUS_PER_CELL, CELL_MB = 2, 32, 131072


def gpu_request(count: int = 1) -> PciRequest:
    return PciRequest(
        "11111111-1111-1111-1111-111111111111", count, ({**GPU, "dev_type": "type-PCI"},), alias_name="gpu"
    )


def request_spec(number: int, request: PciRequest) -> RequestSpec:
    return RequestSpec(f"{number:032x}", ADMIN_ID, FLAVOR, None, pci_requests=(request,))


def cell(number: int, **usage: int) -> HostCell:
    first, half = number * CPUS_PER_CELL, CPUS_PER_CELL // 2
    return HostCell(
        id=number,
        cpus=frozenset(range(first, first + CPUS_PER_CELL)),
        pinnable=frozenset(range(first, first + CPUS_PER_CELL)),
        memory_mb=CELL_MB,
        siblings=tuple(frozenset({first + at, first + half + at}) for at in range(half)),
        socket=number,
        pages=(PagePool(4, CELL_MB * 128), PagePool(2048, CELL_MB // 4), PagePool(1048576, 16)),
        **usage,
    )


def gpu_pools() -> list[Pool]:
    """Eight GPUs, four a NUMA node, two a PCIe switch."""
    return [
        Pool(
            **GPU,
            numa_node=at // 4,
            dev_type=DeviceType.PCI,
            address=f"0000:{0x10 + at:02x}:00.0",
            count=1,
            groups=(Group(Level.NODE, str(at // 4), 4), Group(Level.SWITCH, f"0000:{0x10 + at // 2:02x}:1f.0", 2)),
        )
        for at in range(8)
    ]


class Hosts:
    """Makes host states of ``kinds`` kinds that differ in free devices, CPUs and memory; what is equal is held once."""

    def __init__(self, kinds: int, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._pools = gpu_pools()
        self._cells = tuple(cell(number) for number in range(CELLS))
        kind_set: dict[Any, HostState] = {}
        while len(kind_set) < kinds:
            state = self._kind()
            kind_set[state.look] = state
        self.kinds = list(kind_set.values())

    def _kind(self) -> HostState:
        servers = self._random.randrange(0, 9)
        free = self._random.sample(range(8), 8 - servers)
        per_cell = [self._random.randrange(0, 5) for _ in self._cells]
        return HostState(
            compute_node_id=0,
            host="",
            hypervisor_hostname="",
            generation=1,
            vcpus=CELLS * CPUS_PER_CELL,
            memory_mb=CELLS * CELL_MB,
            disk_gb=2000,
            vcpus_used=4 * servers,
            memory_mb_used=8192 * servers + 1024 * self._random.randrange(0, 8),
            disk_gb_used=10 * servers,
            running_servers=servers,
            cpu_allocation_ratio=4.0,
            ram_allocation_ratio=1.0,
            disk_allocation_ratio=1.0,
            reserved_memory_mb=512,
            reserved_disk_gb=0,
            enabled=True,
            alive=True,
            numa=HostTopology(
                tuple(
                    replace(one, cpu_usage=4 * guests, memory_usage_mb=8192 * guests)
                    for one, guests in zip(self._cells, per_cell, strict=True)
                )
            ),
            pools=tuple(self._pools[at] for at in sorted(free)),
        )

    def host(self, number: int) -> HostState:
        """A new value, of which nothing is known yet."""
        kind = self._random.choice(self.kinds)
        return replace(kind, compute_node_id=number, host=f"node{number:06}", hypervisor_hostname=f"node{number:06}")


def for_peer(state: HostState) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pools and cells as the peer's process takes them."""
    pools = [
        {
            **GPU,
            "numa_node": pool.numa_node,
            "dev_type": pool.dev_type.value,
            "count": pool.count,
            "address": pool.address,
        }
        for pool in state.pools or ()
    ]
    return pools, [] if state.numa is None else [cell_for_peer(one) for one in state.numa.cells]


def cell_for_peer(one: HostCell) -> dict[str, Any]:
    return {
        "id": one.id,
        "cpus": sorted(one.cpus),
        "pinnable": sorted(one.pinnable),
        "memory_mb": one.memory_mb,
        "cpu_usage": one.cpu_usage,
        "memory_usage_mb": one.memory_usage_mb,
        "pinned": sorted(one.pinned),
        "siblings": [sorted(group) for group in one.siblings],
        "socket": one.socket,
        "pages": [[pool.size_kb, pool.total, pool.used] for pool in one.pages],
    }


def request_for_peer(request: PciRequest) -> dict[str, Any]:
    """As the product stores it."""
    (stored,) = requests_to_json([request])["requests"]
    return dict(stored)

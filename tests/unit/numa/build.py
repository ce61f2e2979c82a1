"""Hosts, guests and devices in few words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from jetbridge.numa.topology import (
    CpuPolicy,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    PagePool,
    ThreadPolicy,
)
from jetbridge.pci.device import DeviceType
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import NumaPolicy, PciRequest

CASES = Path(__file__).parents[2] / "cases"


def cases(name: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.safe_load((CASES / name).read_text())
    return loaded


def host_cell(
    number: int,
    *,
    shared: int = 0,
    dedicated: int = 0,
    pinned: int = 0,
    threads: int = 1,
    memory_mb: int = 8192,
    memory_usage_mb: int = 0,
    cpu_usage: int = 0,
    socket: int | None = None,
    pages: Iterable[Sequence[int]] = (),
) -> HostCell:
    """CPUs are numbered from 100 times the cell's number: the dedicated ones first, of these the first ``pinned`` in use."""
    start = 100 * number
    everything = range(start, start + dedicated + shared)
    pinnable = everything[:dedicated]
    return HostCell(
        id=number,
        cpus=frozenset(everything[dedicated:]),
        pinnable=frozenset(pinnable),
        memory_mb=memory_mb,
        siblings=tuple(frozenset(everything[at : at + threads]) for at in range(0, len(everything), threads)),
        socket=number if socket is None else socket,
        pages=tuple(PagePool(*pool) for pool in pages),
        pinned=frozenset(pinnable[:pinned]),
        cpu_usage=cpu_usage,
        memory_usage_mb=memory_usage_mb,
    )


def guest(
    cells: int = 1,
    *,
    shared: int = 0,
    dedicated: int = 0,
    memory_mb: int = 1024,
    page: str | None = None,
    thread_policy: str | None = None,
    emulator_isolate: bool = False,
) -> GuestTopology:
    """``cells`` equal cells, each with so many CPUs and MiB; guest CPUs are numbered through, shared ones first."""
    each = shared + dedicated
    policy = CpuPolicy.MIXED if shared and dedicated else CpuPolicy.DEDICATED if dedicated else None
    return GuestTopology(
        cells=tuple(
            GuestCell(
                id=number,
                cpus=frozenset(range(number * each, number * each + shared)),
                pinned_cpus=frozenset(range(number * each + shared, (number + 1) * each)),
                memory_mb=memory_mb,
                page_request=page,
            )
            for number in range(cells)
        ),
        cpu_policy=policy,
        thread_policy=None if thread_policy is None else ThreadPolicy(thread_policy),
        emulator_isolate=emulator_isolate,
    )


def gpu(node: int | None, address: str = "0000:3b:00.0", product_id: str = "1eb8") -> Pool:
    return Pool("10de", product_id, node, DeviceType.PCI, address, 1)


def wants(count: int = 1, policy: str | None = None, product_id: str = "1eb8", name: str = "GPU") -> PciRequest:
    return PciRequest(
        request_id=f"id-of-{name}",
        count=count,
        spec=({"vendor_id": "10de", "product_id": product_id},),
        alias_name=name,
        numa_policy=None if policy is None else NumaPolicy(policy),
    )


def host(*cells: HostCell) -> HostTopology:
    return HostTopology(cells)

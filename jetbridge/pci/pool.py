"""Pools: equal free devices of one host, generated on demand and never stored."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jetbridge.pci.device import Condition, DeviceType, PciDevice, Status


@dataclass(frozen=True)
class Pool:
    """``count`` free devices that no request can tell apart.

    ``address`` is the parent's address for VFs and vDPA devices, the device's own otherwise: so a
    PF's pool and the pools of its VFs carry the same address, by which their exclusion is known.
    ``tags`` come from the device_spec line (values are text or None).
    """

    vendor_id: str
    product_id: str
    numa_node: int | None
    dev_type: DeviceType
    address: str
    count: int
    tags: Mapping[str, str | None] = field(default_factory=dict)
    parent_ifname: str | None = None
    rp_uuid: str | None = None

    @cached_property
    def look(self) -> Hashable:
        """What requests can see of the pool. Its provider's id is left out: it differs from host to host, and only a request for
        certain providers could tell."""
        return (
            self.vendor_id,
            self.product_id,
            self.numa_node,
            self.dev_type,
            self.address,
            self.count,
            frozenset(self.tags.items()),
            self.parent_ifname,
        )


def pools_of(devices: Iterable[PciDevice]) -> tuple[Pool, ...]:
    """The pools of one host's devices that can be given out (available, condition ok), in ``pool_order``.

    What tells pools apart is ``pool_of``; the grouped query over ``pci_devices`` makes the same pools from the rows.
    """
    members: dict[Hashable, list[PciDevice]] = {}
    for device in devices:
        if is_free(device):
            members.setdefault(pool_key(device), []).append(device)
    return tuple(sorted((pool_of(group) for group in members.values()), key=pool_order))


def pool_of(members: Sequence[PciDevice]) -> Pool:
    """The pool of devices that belong to one. Each part comes from its row: the ids, ``numa_node`` and ``dev_type`` from the
    columns; ``address`` from ``parent_addr``, else ``address``; ``tags`` from ``pool_tags``, all of them;
    ``parent_ifname`` and ``rp_uuid`` from ``extra_info``."""
    device = members[0]
    return Pool(
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        numa_node=device.numa_node,
        dev_type=device.dev_type,
        address=device.parent_addr or device.address,
        count=len(members),
        tags=dict(device.pool_tags),
        parent_ifname=device.extra_info.get("parent_ifname"),
        rp_uuid=device.extra_info.get("rp_uuid"),
    )


def is_free(device: PciDevice) -> bool:
    return device.status is Status.AVAILABLE and device.condition is Condition.OK


def pool_order(pool: Pool) -> tuple[int | str, ...]:
    """Sort key, different for all pools of a host: devices with fewer tags are used first, so that tagged ones stay for those
    who ask for them; then by address."""
    return (
        len(pool.tags) + (pool.parent_ifname is not None) + (pool.rp_uuid is not None),
        pool.address,
        pool.product_id,
        pool.dev_type,
        json.dumps(dict(pool.tags), sort_keys=True),
        pool.vendor_id,
        pool.numa_node is not None,
        pool.numa_node or 0,
        pool.parent_ifname or "",
        pool.rp_uuid or "",
    )


def pool_key(member: PciDevice | Pool) -> Hashable:
    """What devices of one pool have in common, for looking up: equal for a pool and its devices."""
    pool = member if isinstance(member, Pool) else pool_of([member])
    return (
        pool.vendor_id,
        pool.product_id,
        pool.numa_node,
        pool.dev_type,
        pool.address,
        frozenset(pool.tags.items()),
        pool.parent_ifname,
        pool.rp_uuid,
    )

"""Pools: equal free devices of one host, generated on demand and never stored."""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from jetbridge.pci.device import VIRTUAL, Condition, DeviceType, PciDevice, Status


class Level(enum.Enum):
    """Kinds of groups of devices, see ``pci/choose.py``."""

    FABRIC = enum.auto()  # NVLink or the like
    NODE = enum.auto()
    SWITCH = enum.auto()  # PCIe
    CARD = enum.auto()  # the virtual functions of one physical function


class Group(NamedTuple):
    """Devices of one kind that lie together; ``size`` counts them, given away or not."""

    level: Level
    name: str
    size: int


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
    groups: tuple[Group, ...] = field(default=(), compare=False)
    """Where the devices lie on their host. Left out of comparisons: it depends on what else the host has."""

    @property
    def kind(self) -> Hashable:
        return self.vendor_id, self.product_id, self.dev_type

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
            self.groups,
        )


class Part(NamedTuple):
    """A pool without its groups, its count that of free devices (maybe none), and what its groups are made of: how many devices
    there are in all, and the fabric and the PCIe switch that they are on."""

    pool: Pool
    devices: int
    fabric: str | None
    switch: str | None


def pools_of(devices: Iterable[PciDevice]) -> tuple[Pool, ...]:
    """The pools of one host's devices that can be given out (available, condition ok), in ``pool_order``.

    ``devices`` are all of the host's: those given away count in the sizes of groups. What tells pools apart is ``pool_key``; the
    grouped query over ``pci_devices`` makes the same pools from the rows.
    """
    members: dict[Hashable, list[PciDevice]] = {}
    for device in devices:
        members.setdefault(pool_key(device), []).append(device)
    return assembled(_part(family) for family in members.values())


def assembled(parts: Iterable[Part]) -> tuple[Pool, ...]:
    """The pools of one host that have free devices, with their groups, in ``pool_order``. No two parts have the same key."""
    parts = tuple(parts)
    sizes: Counter[tuple[Level, str, Hashable]] = Counter()
    for part in parts:
        for level, name in _places(part):
            sizes[level, name, part.pool.kind] += part.devices
    pools = [
        replace(part.pool, groups=tuple(Group(*place, sizes[(*place, part.pool.kind)]) for place in _places(part)))
        for part in parts
        if part.pool.count
    ]
    return tuple(sorted(pools, key=pool_order))


def _part(members: Sequence[PciDevice]) -> Part:
    """Each part of a pool comes from its rows: the ids, ``numa_node`` and ``dev_type`` from the columns; ``address`` from
    ``parent_addr``, else ``address``; ``tags`` from ``pool_tags``, all of them; the others from ``extra_info``."""
    device = members[0]
    pool = Pool(
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        numa_node=device.numa_node,
        dev_type=device.dev_type,
        address=device.parent_addr or device.address,
        count=sum(is_free(member) for member in members),
        tags=device.pool_tags,
        parent_ifname=device.extra_info.get("parent_ifname"),
        rp_uuid=device.extra_info.get("rp_uuid"),
    )
    fabric, switch = (
        min((name for member in members if (name := member.extra_info.get(key))), default=None)
        for key in ("fabric", "switch")
    )
    return Part(pool, len(members), fabric, switch)


def _places(part: Part) -> Iterator[tuple[Level, str]]:
    """Level and name of each group that the devices belong to, the widest first."""
    if part.fabric is not None:
        yield Level.FABRIC, part.fabric
    if part.pool.numa_node is not None:
        yield Level.NODE, str(part.pool.numa_node)
    if part.switch is not None:
        yield Level.SWITCH, part.switch
    if part.pool.dev_type in VIRTUAL:
        yield Level.CARD, part.pool.address


def is_free(device: PciDevice) -> bool:
    return device.status is Status.AVAILABLE and device.condition is Condition.OK


def pool_order(pool: Pool) -> tuple[int | str, ...]:
    """Sort key, different for all pools of a host: devices with fewer tags are used first, so that tagged ones stay for those
    who ask for them; then by address."""
    return (
        tag_count(pool),
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


def tag_count(pool: Pool) -> int:
    """How many things set a pool's devices apart from plain ones: the fewer, the sooner they are used."""
    return len(pool.tags) + (pool.parent_ifname is not None) + (pool.rp_uuid is not None)


def pool_key(member: PciDevice | Pool) -> Hashable:
    """What devices of one pool have in common, for looking up: equal for a pool and its devices."""
    if isinstance(member, Pool):
        address, tags = member.address, member.tags
        parent_ifname, rp_uuid = member.parent_ifname, member.rp_uuid
    else:
        address, tags = member.parent_addr or member.address, member.pool_tags
        parent_ifname, rp_uuid = member.extra_info.get("parent_ifname"), member.extra_info.get("rp_uuid")
    return (
        member.vendor_id,
        member.product_id,
        member.numa_node,
        member.dev_type,
        address,
        frozenset(tags.items()),
        parent_ifname,
        rp_uuid,
    )

"""Devices, one row per assignable function, and the pools that are made from the rows on demand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.batches import narrowed
from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables import compute_nodes, instances, pci_devices
from jetbridge.pci.device import Condition, DeviceType, PciDevice, Status
from jetbridge.pci.existing import Existing
from jetbridge.pci.pool import Part, Pool, assembled

_t = pci_devices.c

_OF_HOST = (
    sa.select(pci_devices).where(_t.compute_node_id == sa.bindparam("node"), _t.deleted == 0).order_by(_t.address)
)
_OF_INSTANCE = (
    sa.select(pci_devices)
    .where(_t.instance_uuid == sa.bindparam("server"), _t.deleted == 0)
    .order_by(_t.compute_node_id, _t.address)
)

_FREE = sa.func.sum(
    sa.case((sa.and_(_t.status == Status.AVAILABLE.value, _t.condition == Condition.OK.value), 1), else_=0)
)
"""How many of a group can be given out."""

_SET_APART = sa.and_(
    _t.status == Status.AVAILABLE.value,
    _t.condition == Condition.OK.value,
    sa.or_(*(_t.extra_info.contains(canonical({"one_time_use": mark})[1:-1]) for mark in ("used", "reserved"))),
)
"""Used, and kept by Placement until it is cleaned: the mark of ``placement/pci_tree.py``, in canonical JSON."""


@dataclass(frozen=True)
class ListedDevice:
    """A device with the names people know its host and its owner by."""

    device: PciDevice
    host: str
    server_name: str | None


def of_host(conn: Connection, compute_node_id: int) -> list[PciDevice]:
    """All devices of a host, by address."""
    return [_device(row) for row in conn.execute(_OF_HOST, {"node": compute_node_id})]


def of_instance(conn: Connection, instance_uuid: str) -> list[PciDevice]:
    """The devices a server owns, by address."""
    return [_device(row) for row in conn.execute(_OF_INSTANCE, {"server": instance_uuid})]


def of_instances(conn: Connection, instance_uuids: Collection[str]) -> dict[str, list[PciDevice]]:
    """As ``of_instance`` for several servers in one statement; servers without devices are left out."""
    if not instance_uuids:
        return {}
    query = sa.select(pci_devices).where(_t.instance_uuid.in_(list(instance_uuids)), _t.deleted == 0)
    found: dict[str, list[PciDevice]] = {}
    for row in conn.execute(query.order_by(_t.compute_node_id, _t.address)):
        found.setdefault(row.instance_uuid, []).append(_device(row))
    return found


def get(conn: Connection, compute_node_id: int, address: str) -> PciDevice | None:
    query = sa.select(pci_devices).where(_t.compute_node_id == compute_node_id, _t.address == address, _t.deleted == 0)
    row = conn.execute(query).first()
    return None if row is None else _device(row)


def last_gone(conn: Connection, compute_node_id: int, addresses: Collection[str]) -> dict[str, PciDevice]:
    """By address, the row of the last device that was there and is gone."""
    if not addresses:
        return {}
    query = sa.select(pci_devices).where(
        _t.compute_node_id == compute_node_id, _t.address.in_(list(addresses)), _t.deleted != 0
    )
    return {row.address: _device(row) for row in conn.execute(query.order_by(_t.id))}


def save(conn: Connection, changed: Iterable[PciDevice], *, now: datetime | None = None) -> list[PciDevice]:
    """Write devices: those without id are inserted, the others updated by id; those with status ``removed`` are soft-deleted
    (a removed device that was never stored is passed over). Answers the stored devices with their ids, the deleted ones
    with status ``deleted``. The host's row must have been locked before (``compute_nodes.lock``)."""
    at = now or utcnow()
    devices = list(changed)
    fresh = [device for device in devices if device.id is None and device.status is not Status.REMOVED]
    kept = [device for device in devices if device.id is not None and device.status is not Status.REMOVED]
    gone = [device for device in devices if device.id is not None and device.status is Status.REMOVED]
    # Deleting first: the same save may replace a row by a new one at the same address.
    if gone:
        conn.execute(
            pci_devices.update().where(_t.id == sa.bindparam("row_id")).values(_gone(at)),
            [{"row_id": device.id} for device in gone],
        )
    if kept:
        conn.execute(
            pci_devices.update().where(_t.id == sa.bindparam("row_id")),
            [{"row_id": device.id, "updated_at": at, **_columns(device)} for device in kept],
        )
    stored = kept + [replace(device, status=Status.DELETED, instance_uuid=None, request_id=None) for device in gone]
    if fresh:
        conn.execute(pci_devices.insert(), [{"created_at": at, "deleted": 0, **_columns(device)} for device in fresh])
        stored += _read_back(conn, fresh)
    return stored


def forget_node(conn: Connection, compute_node_id: int, *, now: datetime | None = None) -> None:
    """The host is gone for good: its devices are soft-deleted. Its row must have been locked before (``compute_nodes.lock``)."""
    conn.execute(
        pci_devices.update()
        .where(_t.compute_node_id == compute_node_id, _t.deleted == 0)
        .values(_gone(now or utcnow()))
    )


def _gone(at: datetime) -> dict[str, Any]:
    return {
        "deleted": _t.id,
        "deleted_at": at,
        "status": Status.DELETED.value,
        "instance_uuid": None,
        "request_id": None,
    }


def _read_back(conn: Connection, fresh: Sequence[PciDevice]) -> list[PciDevice]:
    nodes = {device.compute_node_id for device in fresh}
    query = sa.select(_t.id, _t.compute_node_id, _t.address).where(_t.compute_node_id.in_(nodes), _t.deleted == 0)
    ids = {(row.compute_node_id, row.address): row.id for row in conn.execute(query)}
    return [replace(device, id=ids[device.compute_node_id, device.address]) for device in fresh]


def pools(conn: Connection, compute_node_ids: Collection[int] | None = None) -> dict[int, tuple[Pool, ...]]:
    """Pools of the given hosts (None: of all) by one grouped query. Only devices that can be given out are counted; hosts that
    have none are left out. The pools and their order are those of ``pci.pool.pools_of``."""
    pool_address = sa.func.coalesce(_t.parent_addr, _t.address).label("pool_address")
    identity: list[Any] = [
        _t.compute_node_id,
        _t.vendor_id,
        _t.product_id,
        _t.numa_node,
        _t.dev_type,
        pool_address,
        _t.pool_tags,
        _t.parent_ifname,
        _t.rp_uuid,
    ]
    query = (
        sa.select(
            *identity,
            _FREE,
            sa.func.count(),
            sa.func.min(_t.fabric),
            sa.func.min(_t.switch),
        )
        .where(_t.deleted == 0)
        .group_by(*identity)
        .order_by(_t.compute_node_id)
    )
    wanted = None if compute_node_ids is None else set(compute_node_ids)
    kinds: dict[Any, tuple[Pool, ...]] = {}  # hosts whose rows are alike share their pools
    found: dict[int, tuple[Pool, ...]] = {}
    rows = conn.execute(narrowed(query, _t.compute_node_id, compute_node_ids))
    for node, group in groupby(rows, key=itemgetter(0)):
        if wanted is not None and node not in wanted:
            continue
        facts = tuple(row[1:] for row in group)
        if facts not in kinds:
            kinds[facts] = assembled(_part(*fact) for fact in facts)
        if kinds[facts]:
            found[node] = kinds[facts]
    return found


def _part(
    vendor_id: str,
    product_id: str,
    numa_node: int | None,
    dev_type: str,
    address: str,
    tags: str,
    parent_ifname: str | None,
    rp_uuid: str | None,
    free: int,
    devices: int,
    fabric: str | None,
    switch: str | None,
) -> Part:
    pool = Pool(
        vendor_id,
        product_id,
        numa_node,
        DeviceType(dev_type),
        address,
        int(free),
        decoded(tags),
        parent_ifname,
        rp_uuid,
    )
    return Part(pool, devices, fabric, switch)


def listing(
    conn: Connection,
    *,
    host: str | None = None,
    status: Status | None = None,
    condition: Condition | None = None,
    instance_uuid: str | None = None,
) -> list[ListedDevice]:
    """Devices for people: by host and address."""
    query = (
        sa.select(pci_devices, compute_nodes.c.host, instances.c.display_name)
        .join(compute_nodes, compute_nodes.c.id == _t.compute_node_id)
        .outerjoin(instances, instances.c.uuid == _t.instance_uuid)
        .where(_t.deleted == 0, compute_nodes.c.deleted == 0)
        .order_by(compute_nodes.c.host, _t.address)
    )
    if host is not None:
        query = query.where(compute_nodes.c.host == host)
    if status is not None:
        query = query.where(_t.status == status.value)
    if condition is not None:
        query = query.where(_t.condition == condition.value)
    if instance_uuid is not None:
        query = query.where(_t.instance_uuid == instance_uuid)
    return [ListedDevice(_device(row), row.host, row.display_name) for row in conn.execute(query)]


def counts_by_status(
    conn: Connection, compute_node_ids: Collection[int] | None = None
) -> dict[tuple[Status, Condition], int]:
    """How many devices there are in each status and condition, on the given hosts or on all."""
    query = sa.select(_t.compute_node_id, _t.status, _t.condition, sa.func.count().label("devices"))
    query = query.where(_t.deleted == 0).group_by(_t.compute_node_id, _t.status, _t.condition)
    found: dict[tuple[Status, Condition], int] = {}
    for row in conn.execute(query):
        if compute_node_ids is None or row.compute_node_id in compute_node_ids:
            kind = (Status(row.status), Condition(row.condition))
            found[kind] = found.get(kind, 0) + row.devices
    return found


def existing(conn: Connection) -> list[Existing]:
    """How many devices of each kind there are on all hosts; their resource class is as their line has it."""
    kind = _t.vendor_id, _t.product_id, _t.dev_type, _t.resource_class
    cleaning = sa.func.sum(sa.case((_t.condition == Condition.CLEANING.value, 1), else_=0))
    apart = sa.func.sum(sa.case((_SET_APART, 1), else_=0))
    query = sa.select(*kind, sa.func.count(), _FREE, cleaning, apart).where(_t.deleted == 0).group_by(*kind)
    return [
        Existing(
            vendor_id,
            product_id,
            DeviceType(dev_type),
            devices,
            int(free) - int(reserved),
            int(waiting),
            int(reserved),
            resource_class,
        )
        for vendor_id, product_id, dev_type, resource_class, devices, free, waiting, reserved in conn.execute(query)
    ]


def owners_of_host(conn: Connection, compute_node_id: int) -> dict[str, int]:
    """Server UUID to how many devices of the host it owns."""
    query = (
        sa.select(_t.instance_uuid, sa.func.count().label("devices"))
        .where(_t.compute_node_id == compute_node_id, _t.deleted == 0, _t.instance_uuid.is_not(None))
        .group_by(_t.instance_uuid)
    )
    return {row.instance_uuid: row.devices for row in conn.execute(query)}


def _columns(device: PciDevice) -> dict[str, Any]:
    return {
        "uuid": device.uuid,
        "compute_node_id": device.compute_node_id,
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "dev_type": device.dev_type.value,
        "dev_id": device.dev_id,
        "label": device.label,
        "status": device.status.value,
        "condition": device.condition.value,
        "numa_node": device.numa_node,
        "parent_addr": device.parent_addr,
        "instance_uuid": device.instance_uuid,
        "request_id": device.request_id,
        "pool_tags": canonical(dict(device.pool_tags)),
        "resource_class": device.resource_class,
        "traits": device.traits,
        "one_time_use": device.one_time_use,
        "managed": device.managed,
        "serial": device.serial,
        # Copies of entries of extra_info that pools carry: grouping needs them as columns.
        **{name: device.extra_info.get(name) for name in ("parent_ifname", "rp_uuid", "fabric", "switch")},
        "extra_info": canonical(dict(device.extra_info)),
        "stale_update": None if device.stale_update is None else canonical(dict(device.stale_update)),
    }


def _device(row: Row[Any]) -> PciDevice:
    return PciDevice(
        compute_node_id=row.compute_node_id,
        address=row.address,
        vendor_id=row.vendor_id,
        product_id=row.product_id,
        dev_type=DeviceType(row.dev_type),
        status=Status(row.status),
        id=row.id,
        uuid=row.uuid,
        dev_id=row.dev_id,
        label=row.label,
        numa_node=row.numa_node,
        parent_addr=row.parent_addr,
        instance_uuid=row.instance_uuid,
        request_id=row.request_id,
        extra_info=decoded(row.extra_info),
        pool_tags=decoded(row.pool_tags),
        resource_class=row.resource_class,
        traits=row.traits,
        one_time_use=row.one_time_use,
        managed=row.managed,
        serial=row.serial,
        condition=Condition(row.condition),
        stale_update=decoded(row.stale_update),
    )

"""What the embedded accelerator service owns: cards and functions, each with the handles that guests are given."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.sql import Select

from jetbridge.db import pci_devices
from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables_accelerator import accelerators, attach_handles
from jetbridge.errors import NotFound
from jetbridge.model.accelerator import Accelerator, AcceleratorCondition, AttachHandle, AttachType
from jetbridge.pci.device import Condition, PciDevice

_t = accelerators.c
_h = attach_handles.c


def _asking(*conditions: sa.ColumnElement[bool]) -> tuple[Select[Any], Select[Any]]:
    """For the accelerators, and for the handles of these."""
    ids = sa.select(_t.id).where(*conditions)
    return (
        sa.select(accelerators).where(*conditions).order_by(_t.hostname, _t.address),
        sa.select(attach_handles).where(_h.accelerator_id.in_(ids)).order_by(_h.address, _h.position),
    )


_OF_HOST = _asking(_t.compute_node_id == sa.bindparam("node"))


def of_host(conn: Connection, compute_node_id: int) -> tuple[Accelerator, ...]:
    """By address. Every pass of an agent asks."""
    return _answered(conn, _OF_HOST, {"node": compute_node_id})


def listing(
    conn: Connection, *, hostname: str | None = None, device_type: str | None = None, vendor: str | None = None
) -> tuple[Accelerator, ...]:
    """All that have each of the properties given, by host and address."""
    wanted = ((_t.hostname, hostname), (_t.device_type, device_type), (_t.vendor_id, vendor))
    return _find(conn, *(column == value for column, value in wanted if value is not None))


def get(conn: Connection, uuid: str) -> Accelerator:
    """By its UUID as a device or as a deployable. Raises ``NotFound``."""
    found = _find(conn, sa.or_(_t.uuid == uuid, _t.device_uuid == uuid))
    if not found:
        raise NotFound(noun="Device", key=uuid)
    return found[0]


def by_provider(conn: Connection, rp_uuid: str) -> Accelerator | None:
    """The one that a resource provider stands for."""
    found = _find(conn, _t.rp_uuid == rp_uuid)
    return found[0] if found else None


def handle_of(conn: Connection, arq_uuid: str) -> AttachHandle | None:
    row = conn.execute(sa.select(attach_handles).where(_h.arq_uuid == arq_uuid)).first()
    return None if row is None else _handle(row)


def handles_of(conn: Connection, arq_uuids: Collection[str]) -> Mapping[str, AttachHandle]:
    """By the request that has them."""
    query = sa.select(attach_handles).where(_h.arq_uuid.in_(list(arq_uuids)))
    return {row.arq_uuid: _handle(row) for row in conn.execute(query)}


def handle(conn: Connection, uuid: str) -> AttachHandle | None:
    """By its own UUID: of a mediated device it is the device's."""
    row = conn.execute(sa.select(attach_handles).where(_h.uuid == uuid)).first()
    return None if row is None else _handle(row)


def take(conn: Connection, handle_id: int, arq_uuid: str, *, now: datetime | None = None) -> bool:
    """Give a handle to a request. False: another one has it."""
    query = attach_handles.update().where(_h.id == handle_id, _h.arq_uuid.is_(None))
    return conn.execute(query.values(arq_uuid=arq_uuid, updated_at=now or utcnow())).rowcount == 1


def give_back(conn: Connection, arq_uuid: str, *, now: datetime | None = None) -> None:
    """A handle that is gone from the host is forgotten now."""
    lost = _h.condition == AcceleratorCondition.LOST.value
    conn.execute(attach_handles.delete().where(_h.arq_uuid == arq_uuid, lost))
    query = attach_handles.update().where(_h.arq_uuid == arq_uuid)
    conn.execute(query.values(arq_uuid=None, updated_at=now or utcnow()))


def set_enabled(conn: Connection, accelerator_id: int, enabled: bool, *, now: datetime | None = None) -> None:
    query = accelerators.update().where(_t.id == accelerator_id)
    conn.execute(query.values(enabled=enabled, updated_at=now or utcnow()))


def set_provider(conn: Connection, accelerator_id: int, rp_uuid: str | None, *, now: datetime | None = None) -> None:
    query = accelerators.update().where(_t.id == accelerator_id)
    conn.execute(query.values(rp_uuid=rp_uuid, updated_at=now or utcnow()))


def save(conn: Connection, changed: Iterable[Accelerator], *, now: datetime | None = None) -> None:
    """Write accelerators with their handles: those without id are inserted, the others updated. A handle's owner and an accelerator's
    provider are never written here. The host's row must have been locked before (``compute_nodes.lock``)."""
    at = now or utcnow()
    for accelerator in changed:
        values = {
            "device_uuid": accelerator.device_uuid,
            "compute_node_id": accelerator.compute_node_id,
            "hostname": accelerator.hostname,
            "name": accelerator.name,
            "address": accelerator.address,
            "vendor_id": accelerator.vendor_id,
            "product_id": accelerator.product_id,
            "device_type": accelerator.device_type,
            "resource_class": accelerator.resource_class,
            "traits": canonical(sorted(accelerator.traits)),
        }
        if accelerator.id:
            conn.execute(accelerators.update().where(_t.id == accelerator.id).values(updated_at=at, **values))
            key = accelerator.id
        else:
            made = conn.execute(
                accelerators.insert().values(uuid=accelerator.uuid, enabled=True, created_at=at, **values)
            )
            assert made.inserted_primary_key is not None
            key = int(made.inserted_primary_key[0])
        for each in accelerator.handles:
            _save_handle(conn, replace(each, accelerator_id=key), at)


def remove(conn: Connection, accelerator: Accelerator) -> None:
    """Forget an accelerator none of whose handles is owned."""
    conn.execute(attach_handles.delete().where(_h.accelerator_id == accelerator.id))
    conn.execute(accelerators.delete().where(_t.id == accelerator.id))


def remove_handles(conn: Connection, handles: Sequence[AttachHandle]) -> None:
    """Forget handles that nobody owns; one that was taken meanwhile stays."""
    ids = [each.id for each in handles]
    if ids:
        conn.execute(attach_handles.delete().where(_h.id.in_(ids), _h.arq_uuid.is_(None)))


def any_known(conn: Connection, compute_node_id: int) -> bool:
    """Whether the host has a handle that is known to be there."""
    ids = sa.select(_t.id).where(_t.compute_node_id == compute_node_id)
    known = _h.condition == AcceleratorCondition.OK.value
    return conn.execute(sa.select(_h.id).where(_h.accelerator_id.in_(ids), known)).first() is not None


def mark_unknown(conn: Connection, compute_node_id: int) -> None:
    """The host's discovery failed."""
    ids = sa.select(_t.id).where(_t.compute_node_id == compute_node_id)
    query = attach_handles.update().where(_h.accelerator_id.in_(ids), _h.condition == AcceleratorCondition.OK.value)
    conn.execute(query.values(condition=AcceleratorCondition.UNKNOWN.value))


def remove_host(conn: Connection, compute_node_id: int) -> None:
    """The host is gone, and with it what it had."""
    ids = sa.select(_t.id).where(_t.compute_node_id == compute_node_id)
    conn.execute(attach_handles.delete().where(_h.accelerator_id.in_(ids)))
    conn.execute(accelerators.delete().where(_t.compute_node_id == compute_node_id))


def mark_relatives(conn: Connection, compute_node_id: int) -> None:
    """Devices of ``pci_devices`` that can't be given away while a guest has something of their card from the accelerator service get the
    condition ``accelerator``, and lose it when that is over. The host must have been locked before (``compute_nodes.lock``)."""
    query = (
        sa.select(_h.address, _t.address.label("card"))
        .join(accelerators, _t.id == _h.accelerator_id)
        .where(_t.compute_node_id == compute_node_id, _h.arq_uuid.is_not(None))
    )
    in_use = [(row.address, row.card) for row in conn.execute(query)]
    changed = []
    for device in pci_devices.of_host(conn, compute_node_id):
        blocked = any(_related(device, address, card) for address, card in in_use)
        if blocked and device.condition in (Condition.OK, Condition.HELD):
            changed.append(replace(device, condition=Condition.ACCELERATOR))
        elif not blocked and device.condition is Condition.ACCELERATOR:
            changed.append(replace(device, condition=Condition.OK))
    if changed:
        pci_devices.save(conn, changed)


def owned_relative(devices: Iterable[PciDevice], accelerator: Accelerator, address: str) -> PciDevice | None:
    """Of a host's ``devices`` one that a server owns and that keeps a function of ``accelerator`` from being given away: itself, its card,
    or a virtual function of it."""
    return next((device for device in devices if device.owned and _related(device, address, accelerator.address)), None)


def _related(device: PciDevice, address: str, card: str) -> bool:
    return device.address in (address, card) or device.parent_addr == address


def _save_handle(conn: Connection, handle: AttachHandle, at: datetime) -> None:
    values = {
        "attach_type": handle.attach_type.value,
        "address": handle.address,
        "position": handle.position,
        "info": canonical(dict(handle.info)),
        "condition": handle.condition.value,
        "accelerator_id": handle.accelerator_id,
    }
    if handle.id:
        conn.execute(attach_handles.update().where(_h.id == handle.id).values(updated_at=at, **values))
    else:
        conn.execute(attach_handles.insert().values(uuid=handle.uuid, created_at=at, **values))


def _find(conn: Connection, *conditions: sa.ColumnElement[bool]) -> tuple[Accelerator, ...]:
    return _answered(conn, _asking(*conditions), {})


def _answered(
    conn: Connection, asked: tuple[Select[Any], Select[Any]], values: Mapping[str, object]
) -> tuple[Accelerator, ...]:
    """What ``_asking`` asks for. Most hosts have no accelerators: then the handles aren't asked for."""
    of_accelerators, of_handles = asked
    rows = conn.execute(of_accelerators, values).all()
    if not rows:
        return ()
    handles: dict[int, list[AttachHandle]] = {}
    for row in conn.execute(of_handles, values):
        handles.setdefault(row.accelerator_id, []).append(_handle(row))
    return tuple(_accelerator(row, tuple(handles.get(row.id, ()))) for row in rows)


def _accelerator(row: Row[Any], handles: tuple[AttachHandle, ...]) -> Accelerator:
    return Accelerator(
        uuid=row.uuid,
        device_uuid=row.device_uuid,
        compute_node_id=row.compute_node_id,
        hostname=row.hostname,
        name=row.name,
        address=row.address,
        vendor_id=row.vendor_id,
        product_id=row.product_id,
        device_type=row.device_type,
        resource_class=row.resource_class,
        traits=frozenset(decoded(row.traits)),
        enabled=row.enabled,
        rp_uuid=row.rp_uuid,
        handles=handles,
        id=row.id,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _handle(row: Row[Any]) -> AttachHandle:
    return AttachHandle(
        uuid=row.uuid,
        attach_type=AttachType(row.attach_type),
        address=row.address,
        info=decoded(row.info),
        position=row.position,
        arq_uuid=row.arq_uuid,
        condition=AcceleratorCondition(row.condition),
        id=row.id,
        accelerator_id=row.accelerator_id,
    )

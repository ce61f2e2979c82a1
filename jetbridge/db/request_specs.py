"""Requests as they were frozen before anything was scheduled.

The JSON keeps the shape operators query: ``{"pci_requests": {"requests": [{"count", "spec", "alias_name", ...}]}, ...}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from jetbridge.db.batches import Rows
from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded, flavor_from_json, flavor_to_json
from jetbridge.db.tables import request_specs
from jetbridge.errors import ServerNotFound
from jetbridge.model.request_group import groups_from_json, groups_to_json
from jetbridge.model.request_spec import RequestSpec
from jetbridge.numa.serial import guest_topology_from_json, topology_to_json
from jetbridge.pci.request import requests_from_json, requests_to_json

_t = request_specs.c

_INSERT = request_specs.insert()
_SPECS = Rows(sa.select(_t.instance_uuid, _t.spec), _t.instance_uuid)


def create(conn: Connection, spec: RequestSpec, *, now: datetime | None = None) -> None:
    row = {"instance_uuid": spec.instance_uuid, "spec": canonical(to_json(spec)), "created_at": now or utcnow()}
    conn.execute(_INSERT, row)


def save(conn: Connection, spec: RequestSpec, *, now: datetime | None = None) -> None:
    """Replace a stored request. Raises ``ServerNotFound``."""
    query = request_specs.update().where(_t.instance_uuid == spec.instance_uuid)
    if conn.execute(query.values(spec=canonical(to_json(spec)), updated_at=now or utcnow())).rowcount == 0:
        raise ServerNotFound(server=spec.instance_uuid)


def get(conn: Connection, instance_uuid: str) -> RequestSpec:
    """Raises ``ServerNotFound``."""
    found = get_many(conn, [instance_uuid])
    if not found:
        raise ServerNotFound(server=instance_uuid)
    return found[instance_uuid]


def get_many(conn: Connection, instance_uuids: Iterable[str]) -> dict[str, RequestSpec]:
    """Those that exist, in the order asked for."""
    wanted = list(dict.fromkeys(instance_uuids))
    found = {row.instance_uuid: from_json(decoded(row.spec)) for row in _SPECS.among(conn, wanted)}
    return {uuid: found[uuid] for uuid in wanted if uuid in found}


def delete(conn: Connection, instance_uuid: str) -> None:
    conn.execute(request_specs.delete().where(_t.instance_uuid == instance_uuid))


def to_json(spec: RequestSpec) -> dict[str, Any]:
    return {
        "instance_uuid": spec.instance_uuid,
        "project_id": spec.project_id,
        "flavor": flavor_to_json(spec.flavor),
        "image": {"id": spec.image_ref, "properties": dict(spec.image_properties)},
        "pci_requests": requests_to_json(spec.pci_requests),
        "numa_topology": None if spec.numa_topology is None else topology_to_json(spec.numa_topology),
        "availability_zone": spec.availability_zone,
        "force_hosts": None if spec.force_host is None else [spec.force_host],
        "scheduler_hints": {name: list(values) for name, values in spec.hints.items()},
        "networks": list(spec.networks),
        "requested_resources": groups_to_json(spec.groups),
        "port_device_profiles": dict(spec.port_profiles),
    }


def from_json(value: Mapping[str, Any]) -> RequestSpec:
    topology = value["numa_topology"]
    forced = value["force_hosts"]
    return RequestSpec(
        instance_uuid=value["instance_uuid"],
        project_id=value["project_id"],
        flavor=flavor_from_json(value["flavor"]),
        image_ref=value["image"]["id"],
        image_properties=value["image"]["properties"],
        pci_requests=requests_from_json(value["pci_requests"]),
        numa_topology=None if topology is None else guest_topology_from_json(topology),
        availability_zone=value["availability_zone"],
        force_host=forced[0] if forced else None,
        hints={name: tuple(values) for name, values in value["scheduler_hints"].items()},
        networks=tuple(value["networks"]),
        # Former releases wrote neither.
        groups=groups_from_json(value.get("requested_resources", ())),
        port_profiles=value.get("port_device_profiles", {}),
    )

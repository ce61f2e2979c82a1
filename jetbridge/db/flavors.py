"""Flavors, their extra specs, and the projects that may use private ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.batches import batches
from jetbridge.db.clock import utcnow
from jetbridge.db.paging import EVERYTHING, Page, paged
from jetbridge.db.tables import flavor_extra_specs, flavor_projects, flavors
from jetbridge.errors import Conflict, NotFound
from jetbridge.model.flavor import Flavor

_t = flavors.c
_x = flavor_extra_specs.c

_ONE = sa.select(flavors).where(_t.flavorid == sa.bindparam("of"))
_SPECS = (
    sa.select(_x.flavor_id, _x.key, _x.value)
    .where(_x.flavor_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(_x.key)
)

_SORT_KEYS: dict[str, sa.Column[Any]] = {
    "flavorid": _t.flavorid,
    "id": _t.id,
    "name": _t.name,
    "vcpus": _t.vcpus,
    "memory_mb": _t.memory_mb,
    "root_gb": _t.root_gb,
    "ephemeral_gb": _t.ephemeral_gb,
    "swap": _t.swap,
    "rxtx_factor": _t.rxtx_factor,
    "is_public": _t.is_public,
    "disabled": _t.disabled,
    "created_at": _t.created_at,
    "updated_at": _t.updated_at,
}


def create(conn: Connection, flavor: Flavor, *, now: datetime | None = None) -> Flavor:
    """Stores the flavor with its extra specs (its ``id`` is ignored). Raises ``Conflict`` when name or flavorid is taken."""
    _refuse_taken(conn, _t.flavorid, flavor.flavorid, "ID")
    _refuse_taken(conn, _t.name, flavor.name, "name")
    result = conn.execute(
        flavors.insert().values(
            flavorid=flavor.flavorid,
            name=flavor.name,
            vcpus=flavor.vcpus,
            memory_mb=flavor.memory_mb,
            root_gb=flavor.root_gb,
            ephemeral_gb=flavor.ephemeral_gb,
            swap=flavor.swap_mb,
            rxtx_factor=flavor.rxtx_factor,
            is_public=flavor.is_public,
            disabled=flavor.disabled,
            description=flavor.description,
            created_at=now or utcnow(),
        )
    )
    key = result.inserted_primary_key
    assert key is not None
    _store_specs(conn, key[0], flavor.extra_specs)
    return replace(flavor, id=key[0])


def _refuse_taken(conn: Connection, column: sa.Column[Any], value: str, what: str) -> None:
    if conn.execute(sa.select(_t.id).where(column == value)).first() is not None:
        raise Conflict(f"Flavor with {what} {value} already exists.")


def get(conn: Connection, flavorid: str, *, project_id: str | None = None) -> Flavor:
    """``project_id``: only what this project may see (None: everything). Raises ``NotFound``."""
    query = _ONE if project_id is None else _ONE.where(_visible_to(project_id))
    row = conn.execute(query, {"of": flavorid}).first()
    if row is None:
        raise NotFound(noun="Flavor", key=flavorid)
    return _flavor(row, _specs(conn, [row.id]).get(row.id, {}))


def find(
    conn: Connection,
    *,
    is_public: bool | None = True,
    project_id: str | None = None,
    min_memory_mb: int | None = None,
    min_root_gb: int | None = None,
    include_disabled: bool = True,
    page: Page = EVERYTHING,
) -> tuple[Flavor, ...]:
    """``is_public``: public ones, private ones, or (None) both. ``project_id``: only private ones this project may use (None: all).
    The page's marker is a flavorid; order: by flavorid."""
    query = sa.select(flavors)
    if is_public is not None:
        query = query.where(_t.is_public.is_(is_public))
    if project_id is not None:
        query = query.where(_visible_to(project_id))
    if min_memory_mb is not None:
        query = query.where(_t.memory_mb >= min_memory_mb)
    if min_root_gb is not None:
        query = query.where(_t.root_gb >= min_root_gb)
    if not include_disabled:
        query = query.where(_t.disabled.is_(False))
    query = paged(
        conn,
        query,
        page,
        keys=_SORT_KEYS,
        default=(("flavorid", "asc"),),
        unique=_t.id,
        marker_column=_t.flavorid,
    )
    rows = conn.execute(query).all()
    specs = _specs(conn, [row.id for row in rows])
    return tuple(_flavor(row, specs.get(row.id, {})) for row in rows)


def _visible_to(project_id: str) -> sa.ColumnElement[bool]:
    allowed = sa.select(flavor_projects.c.flavor_id).where(flavor_projects.c.project_id == project_id)
    return sa.or_(_t.is_public.is_(True), _t.id.in_(allowed))


def set_description(conn: Connection, flavorid: str, description: str | None, *, now: datetime | None = None) -> Flavor:
    """Raises ``NotFound``."""
    flavor = get(conn, flavorid)
    conn.execute(flavors.update().where(_t.id == flavor.id).values(description=description, updated_at=now or utcnow()))
    return replace(flavor, description=description)


def delete(conn: Connection, flavorid: str) -> None:
    """Raises ``NotFound``. Servers keep their own copy of the flavor."""
    flavor = get(conn, flavorid)
    conn.execute(flavor_extra_specs.delete().where(flavor_extra_specs.c.flavor_id == flavor.id))
    conn.execute(flavor_projects.delete().where(flavor_projects.c.flavor_id == flavor.id))
    conn.execute(flavors.delete().where(_t.id == flavor.id))


def set_extra_specs(
    conn: Connection, flavorid: str, specs: Mapping[str, str], *, now: datetime | None = None
) -> Flavor:
    """Adds or replaces the given keys and leaves the others. Raises ``NotFound``."""
    flavor = get(conn, flavorid)
    if specs:
        table = flavor_extra_specs
        conn.execute(table.delete().where(table.c.flavor_id == flavor.id, table.c.key.in_(list(specs))))
        _store_specs(conn, flavor.id, specs)
        conn.execute(flavors.update().where(_t.id == flavor.id).values(updated_at=now or utcnow()))
    return replace(flavor, extra_specs={**flavor.extra_specs, **specs})


def delete_extra_spec(conn: Connection, flavorid: str, key: str) -> None:
    """Raises ``NotFound`` for the flavor or the key."""
    flavor = get(conn, flavorid)
    table = flavor_extra_specs
    if conn.execute(table.delete().where(table.c.flavor_id == flavor.id, table.c.key == key)).rowcount == 0:
        raise NotFound(f"Flavor {flavorid} has no extra specs with key {key}.")


def projects(conn: Connection, flavorid: str) -> tuple[str, ...]:
    """Who may use a private flavor. Raises ``NotFound``."""
    flavor = get(conn, flavorid)
    table = flavor_projects
    query = sa.select(table.c.project_id).where(table.c.flavor_id == flavor.id).order_by(table.c.id)
    return tuple(conn.execute(query).scalars())


def add_project(conn: Connection, flavorid: str, project_id: str) -> None:
    """Raises ``NotFound``, and ``Conflict`` when the project has access already."""
    if project_id in projects(conn, flavorid):
        raise Conflict(f"Flavor access already exists for flavor {flavorid} and project {project_id} combination.")
    flavor = get(conn, flavorid)
    conn.execute(flavor_projects.insert().values(flavor_id=flavor.id, project_id=project_id))


def remove_project(conn: Connection, flavorid: str, project_id: str) -> None:
    """Raises ``NotFound`` for the flavor or the access."""
    flavor = get(conn, flavorid)
    table = flavor_projects
    gone = conn.execute(table.delete().where(table.c.flavor_id == flavor.id, table.c.project_id == project_id))
    if gone.rowcount == 0:
        raise NotFound(f"Flavor access not found for {flavorid} / {project_id} combination.")


def _store_specs(conn: Connection, flavor_id: int, specs: Mapping[str, str]) -> None:
    if specs:
        rows = [{"flavor_id": flavor_id, "key": key, "value": value} for key, value in specs.items()]
        conn.execute(flavor_extra_specs.insert(), rows)


def _specs(conn: Connection, flavor_ids: Sequence[int]) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for ids in batches(flavor_ids):
        for row in conn.execute(_SPECS, {"ids": list(ids)}):
            found.setdefault(row.flavor_id, {})[row.key] = row.value
    return found


def _flavor(row: Row[Any], specs: Mapping[str, str]) -> Flavor:
    return Flavor(
        id=row.id,
        flavorid=row.flavorid,
        name=row.name,
        vcpus=row.vcpus,
        memory_mb=row.memory_mb,
        root_gb=row.root_gb,
        ephemeral_gb=row.ephemeral_gb,
        swap_mb=row.swap,
        rxtx_factor=row.rxtx_factor,
        is_public=row.is_public,
        disabled=row.disabled,
        description=row.description,
        extra_specs=specs,
    )

"""Images: all of them but their data."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.clock import utcnow
from jetbridge.db.codec import canonical, decoded
from jetbridge.db.tables import images, instances
from jetbridge.errors import Conflict, NotFound
from jetbridge.model.image import Image, ImageStatus, Visibility

_t = images.c

_ONE = sa.select(images).where(_t.id == sa.bindparam("image"))


def insert(conn: Connection, image: Image) -> None:
    """Raises ``Conflict`` when the id is taken."""
    if conn.execute(sa.select(_t.id).where(_t.id == image.id)).first() is not None:
        raise Conflict(f"Image ID {image.id} already exists!")
    conn.execute(images.insert().values(_columns(image)))


def get(conn: Connection, image_id: str) -> Image:
    """Raises ``NotFound``."""
    row = conn.execute(_ONE, {"image": image_id}).first()
    if row is None:
        raise NotFound(f"No image found with ID {image_id}")
    return _image(row)


def listing(conn: Connection) -> tuple[Image, ...]:
    """All of them, newest first."""
    return tuple(_image(row) for row in conn.execute(sa.select(images).order_by(_t.created_at.desc(), _t.id)))


def update(conn: Connection, image: Image, *, now: datetime | None = None) -> None:
    """Replace a stored image. Raises ``NotFound``."""
    values = {**_columns(image), "updated_at": image.updated_at or now or utcnow()}
    if conn.execute(images.update().where(_t.id == image.id).values(values)).rowcount == 0:
        raise NotFound(f"No image found with ID {image.id}")


def delete(conn: Connection, image_id: str) -> None:
    """Raises ``NotFound``."""
    if conn.execute(images.delete().where(_t.id == image_id)).rowcount == 0:
        raise NotFound(f"No image found with ID {image_id}")


def servers_using(conn: Connection, image_id: str) -> tuple[str, ...]:
    """UUIDs of living servers made from the image, oldest first."""
    query = sa.select(instances.c.uuid).where(instances.c.image_ref == image_id, instances.c.deleted == 0)
    return tuple(conn.execute(query.order_by(instances.c.id)).scalars())


def _columns(image: Image) -> dict[str, Any]:
    return {
        "id": image.id,
        "name": image.name,
        "owner": image.owner,
        "status": image.status.value,
        "visibility": image.visibility.value,
        "container_format": image.container_format,
        "disk_format": image.disk_format,
        "size": image.size,
        "virtual_size": image.virtual_size,
        "checksum": image.checksum,
        "os_hash_algo": image.os_hash_algo,
        "os_hash_value": image.os_hash_value,
        "min_disk": image.min_disk,
        "min_ram": image.min_ram,
        "protected": image.protected,
        "properties": canonical(dict(image.properties)),
        "tags": canonical(list(image.tags)),
        "created_at": image.created_at,
        "updated_at": image.updated_at,
    }


def _image(row: Row[Any]) -> Image:
    return Image(
        id=row.id,
        owner=row.owner,
        status=ImageStatus(row.status),
        created_at=row.created_at,
        name=row.name,
        visibility=Visibility(row.visibility),
        container_format=row.container_format,
        disk_format=row.disk_format,
        size=row.size,
        virtual_size=row.virtual_size,
        checksum=row.checksum,
        os_hash_algo=row.os_hash_algo,
        os_hash_value=row.os_hash_value,
        min_disk=row.min_disk,
        min_ram=row.min_ram,
        protected=row.protected,
        properties=decoded(row.properties),
        tags=tuple(decoded(row.tags)),
        updated_at=row.updated_at,
    )

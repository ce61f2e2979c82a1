"""Images as the Image API shows them, and the schemas it publishes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jetbridge.image.fields import CONTAINER_FORMATS
from jetbridge.image.formats import DISK_FORMATS
from jetbridge.model.image import Image, ImageStatus, Visibility

_TEXT = {"type": ["null", "string"], "maxLength": 255}
_READ_ONLY_TEXT = {"type": ["null", "string"], "readOnly": True}
_READ_ONLY_NUMBER = {"type": ["null", "integer"], "readOnly": True}


def versions(url: str) -> dict[str, Any]:
    """``url``: of the front door (``http://HOST:PORT/image``)."""
    links = [{"rel": "self", "href": f"{url}/v2/"}]
    minors = [(9, "CURRENT"), *((minor, "SUPPORTED") for minor in (7, 6, 5, 4, 3, 2, 1, 0))]
    return {"versions": [{"id": f"v2.{minor}", "status": status, "links": links} for minor, status in minors]}


def image_view(image: Image) -> dict[str, Any]:
    return {
        **image.properties,
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
        "os_hidden": False,
        "min_disk": image.min_disk,
        "min_ram": image.min_ram,
        "protected": image.protected,
        "tags": list(image.tags),
        "created_at": _time(image.created_at),
        "updated_at": _time(image.updated_at or image.created_at),
        "self": f"/v2/images/{image.id}",
        "file": f"/v2/images/{image.id}/file",
        "schema": "/v2/schemas/image",
    }


def _time(moment: datetime) -> str:
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def image_schema() -> dict[str, Any]:
    properties: Mapping[str, Any] = {
        "id": {"type": "string", "pattern": "^[0-9a-f-]{36}$"},
        "name": _TEXT,
        "owner": _TEXT,
        "status": {"type": "string", "enum": [status.value for status in ImageStatus], "readOnly": True},
        "visibility": {"type": "string", "enum": [visibility.value for visibility in Visibility]},
        "container_format": {"type": ["null", "string"], "enum": [None, *CONTAINER_FORMATS]},
        "disk_format": {"type": ["null", "string"], "enum": [None, *DISK_FORMATS]},
        "size": _READ_ONLY_NUMBER,
        "virtual_size": _READ_ONLY_NUMBER,
        "checksum": _READ_ONLY_TEXT,
        "os_hash_algo": _READ_ONLY_TEXT,
        "os_hash_value": _READ_ONLY_TEXT,
        "os_hidden": {"type": "boolean"},
        "min_disk": {"type": "integer", "minimum": 0},
        "min_ram": {"type": "integer", "minimum": 0},
        "protected": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 255}},
        "created_at": {"type": "string", "readOnly": True},
        "updated_at": {"type": "string", "readOnly": True},
        "self": {"type": "string", "readOnly": True},
        "file": {"type": "string", "readOnly": True},
        "schema": {"type": "string", "readOnly": True},
    }
    return {
        "name": "image",
        "properties": dict(properties),
        "additionalProperties": {"type": "string"},
        "links": [{"rel": "self", "href": "{self}"}, {"rel": "enclosure", "href": "{file}"}],
    }


def images_schema() -> dict[str, Any]:
    return _collection("images", image_schema())


def member_schema() -> dict[str, Any]:
    text = {"type": "string"}
    names = ("member_id", "image_id", "created_at", "updated_at", "status", "schema")
    return {"name": "member", "properties": dict.fromkeys(names, text)}


def members_schema() -> dict[str, Any]:
    return _collection("members", member_schema())


def _collection(name: str, item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "properties": {
            name: {"type": "array", "items": dict(item)},
            "first": {"type": "string"},
            "next": {"type": "string"},
            "schema": {"type": "string"},
        },
        "links": [{"rel": "first", "href": "{first}"}, {"rel": "next", "href": "{next}"}],
    }

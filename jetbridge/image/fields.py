"""What callers may say of an image: creating one, and changing one by JSON patch (RFC 6902, one level deep)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeGuard

from jetbridge.errors import Forbidden, Invalid
from jetbridge.image.access import require_visibility
from jetbridge.image.formats import DISK_FORMATS
from jetbridge.model.context import RequestContext
from jetbridge.model.image import Image, ImageStatus, Visibility

CONTAINER_FORMATS = ("bare", "ami", "aki", "ari")
READ_ONLY = frozenset(
    [
        "status",
        "size",
        "virtual_size",
        "checksum",
        "os_hash_algo",
        "os_hash_value",
        "created_at",
        "updated_at",
        "self",
        "file",
        "schema",
        "direct_url",
        "locations",
        "stores",
        "first",
        "last",
    ]
)
BASE = frozenset(
    [
        "id",
        "name",
        "owner",
        "visibility",
        "container_format",
        "disk_format",
        "min_disk",
        "min_ram",
        "protected",
        "os_hidden",
        "tags",
    ]
)
_MAX_TEXT = 255
_MAX_NUMBER = 2**31 - 1
_MAX_PROPERTIES = 128


def new_image(context: RequestContext, body: Mapping[str, Any], image_id: str) -> Image:
    """The image that ``body`` describes; ``image_id`` is used when it gives none. Raises ``Invalid``, ``Forbidden``."""
    given = dict(body)
    chosen = given.pop("id", image_id)
    if not _is_uuid(chosen):
        raise Invalid(reason=f"id={chosen!r} is not a UUID")
    image = Image(id=chosen, owner=context.project, status=ImageStatus.QUEUED, created_at=datetime.min)
    for name, value in given.items():
        image = with_field(context, image, name, value)
    return image


def with_field(context: RequestContext, image: Image, name: str, value: Any) -> Image:
    """``image`` with one attribute or property set. Raises ``Invalid``, ``Forbidden``."""
    if name in READ_ONLY or name == "id":
        raise Forbidden(reason=f"attribute {name!r} is read-only")
    match name:
        case "name":
            return replace(image, name=None if value is None else _text(name, value))
        case "visibility":
            visibility = Visibility(_one_of(name, value, tuple(Visibility)))
            require_visibility(context, visibility)
            return replace(image, visibility=visibility)
        case "owner":
            owner = _text(name, value)
            if owner != image.owner and not context.is_admin:
                raise Forbidden(reason="owner can be changed by admins only")
            return replace(image, owner=owner)
        case "container_format":
            return replace(image, container_format=None if value is None else _one_of(name, value, CONTAINER_FORMATS))
        case "disk_format":
            return replace(image, disk_format=None if value is None else _one_of(name, value, DISK_FORMATS))
        case "min_disk":
            return replace(image, min_disk=_number(name, value))
        case "min_ram":
            return replace(image, min_ram=_number(name, value))
        case "protected":
            return replace(image, protected=_boolean(name, value))
        case "os_hidden":
            if _boolean(name, value):
                raise Invalid(reason="os_hidden=true is not supported: set visibility=private instead")
            return image
        case "tags":
            return replace(image, tags=_tags(value))
    properties = {**image.properties, _property_name(name): _text(name, value)}
    if len(properties) > _MAX_PROPERTIES:
        raise Invalid(reason=f"an image has at most {_MAX_PROPERTIES} properties")
    return replace(image, properties=properties)


def patched(context: RequestContext, image: Image, operations: Any) -> Image:
    """``image`` after all operations, in order. Raises ``Invalid``, ``Forbidden``."""
    if not isinstance(operations, Sequence) or isinstance(operations, str | bytes):
        raise Invalid(reason='the body must be a list of operations {"op", "path", "value"}')
    for operation in operations:
        if not isinstance(operation, Mapping):
            raise Invalid(reason=f"{operation!r} is not an operation")
        image = _apply(context, image, operation)
    return image


def _apply(context: RequestContext, image: Image, operation: Mapping[str, Any]) -> Image:
    op, path = operation.get("op"), operation.get("path")
    if op not in ("add", "replace", "remove"):
        raise Invalid(reason=f"op={op!r}: use add, replace or remove")
    if not isinstance(path, str) or not path.startswith("/") or "/" in path[1:]:
        raise Invalid(reason=f"path={path!r}: write /NAME")
    name = path[1:].replace("~1", "/").replace("~0", "~")
    if op != "remove":
        if "value" not in operation:
            raise Invalid(reason=f"the operation {op} {path} has no value")
        return with_field(context, image, name, operation["value"])
    if name in READ_ONLY or name in BASE:
        raise Forbidden(reason=f"attribute {name!r} can't be removed")
    if name not in image.properties:
        raise Invalid(reason=f"image {image.id} has no property {name!r}")
    return replace(image, properties={key: value for key, value in image.properties.items() if key != name})


def tag(text: str) -> str:
    """Raises ``Invalid``."""
    if not text or len(text) > _MAX_TEXT:
        raise Invalid(reason=f"a tag has 1 to {_MAX_TEXT} characters, not {len(text)}")
    return text


def _tags(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Invalid(reason=f"tags={value!r} is not a list")
    return tuple(dict.fromkeys(tag(_text("tags", item)) for item in value))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Invalid(reason=f"{name}={value!r} is not text")
    if len(value) > _MAX_TEXT:
        raise Invalid(reason=f"{name} has {len(value)} characters, at most {_MAX_TEXT} are allowed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(reason=f"{name}={value!a} holds a lone surrogate") from None
    if "\x00" in value:
        # PostgreSQL stores none, and in a JSON column it fails only when it is read.
        raise Invalid(reason=f"{name}={value!a} holds a NUL character: leave it out")
    return value


def _property_name(name: str) -> str:
    if not name or len(name) > _MAX_TEXT:
        raise Invalid(reason=f"the name of a property has 1 to {_MAX_TEXT} characters, not {len(name)}")
    return _text("the name of a property", name)


def _number(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_NUMBER:
        raise Invalid(reason=f"{name}={value!r} is not a whole number from 0 to {_MAX_NUMBER}")
    return value


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Invalid(reason=f"{name}={value!r} is not true or false")
    return value


def _one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    if value not in choices:
        more = ""
        if name == "disk_format" and isinstance(value, str):
            more = " (convert others with `qemu-img convert -O qcow2 IN OUT`)"
        raise Invalid(reason=f"{name}={value!r}: use {', '.join(choices)}{more}")
    return str(value)


def _is_uuid(value: Any) -> TypeGuard[str]:
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False

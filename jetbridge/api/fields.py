"""Types of request fields that several nouns share. A ``ValueError`` in them ends as a 400 naming the field."""

from __future__ import annotations

import ipaddress
import math
import re
import unicodedata
import uuid
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

MAX_INT = 0x7FFFFFFF


class Body(BaseModel):
    """A JSON object that has the declared fields and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


def _storable(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("The text holds a lone surrogate, which is not valid Unicode") from None
    if "\x00" in text:
        raise ValueError("The text holds a NUL character: leave it out")
    return text


def _printable(text: str) -> str:
    for character in _storable(text):
        if unicodedata.category(character).startswith("C") or unicodedata.category(character) in ("Zl", "Zp"):
            raise ValueError(f"The character {character!a} is not printable: leave it out")
    return text


def _printable_lines(text: str) -> str:
    _printable(re.sub(r"[\n\r\t]", " ", _storable(text)))
    return text


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("A name must not be empty or blank")
    if text != text.strip():
        raise ValueError("A name must not begin or end with blanks: trim it")
    return _printable(text)


def _sendable(value: Any) -> Any:
    """What JSON can hold is more than can be sent back: Python reads NaN and lone surrogates, and no answer can have them."""
    if isinstance(value, str):
        _storable(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"The number {value} is none that JSON has")
    elif isinstance(value, dict):
        for each in (*value, *value.values()):
            _sendable(each)
    elif isinstance(value, list):
        for each in value:
            _sendable(each)
    return value


def _ip(text: str) -> str:
    if "%" in text:  # what follows is any text, and means something only on the machine that wrote it
        raise ValueError("An address with a zone is of no use elsewhere: leave out the % and what follows")
    return str(ipaddress.ip_address(text))


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("A boolean is not a number: write a number")
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,20}", value):
        raise ValueError("This is not a whole number: write digits only")
    return value


def _uuid(text: str) -> str:
    """Also accepts the form without dashes; answers the usual form."""
    try:
        return str(uuid.UUID(text)) if re.fullmatch(r"[0-9a-fA-F-]{32,36}", text) else _raise_uuid()
    except ValueError:
        return _raise_uuid()


def canonical_uuid(text: str) -> str:
    """The usual form of what ``is_uuid``."""
    return _uuid(text)


def _raise_uuid() -> str:
    raise ValueError("This is not a UUID: write 8-4-4-4-12 hexadecimal digits")


def is_uuid(text: str) -> bool:
    try:
        _uuid(text)
    except ValueError:
        return False
    return True


Text = Annotated[str, AfterValidator(_storable)]
Json = Annotated[Any, AfterValidator(_sendable)]
Name = Annotated[str, StringConstraints(max_length=255, min_length=1), AfterValidator(_name)]
Line = Annotated[str, StringConstraints(max_length=255), AfterValidator(_printable)]
Description = Annotated[str, StringConstraints(max_length=255), AfterValidator(_printable_lines)]
LongDescription = Annotated[str, StringConstraints(max_length=65535), AfterValidator(_printable_lines)]
IpAddress = Annotated[str, AfterValidator(_ip)]
Uuid = Annotated[str, AfterValidator(_uuid)]
Whole = Annotated[int, BeforeValidator(_no_boolean), Field(ge=0, le=MAX_INT)]
Positive = Annotated[int, BeforeValidator(_no_boolean), Field(ge=1, le=MAX_INT)]

MetadataKey = Annotated[
    str, StringConstraints(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9\-_:. ]+$"), AfterValidator(_storable)
]
MetadataValue = Annotated[str, StringConstraints(max_length=255), AfterValidator(_storable)]
Metadata = dict[MetadataKey, MetadataValue]


def _tag(text: str) -> str:
    if not text.strip():
        raise ValueError("A tag must not be empty")
    if "/" in text or "," in text:
        raise ValueError("A tag must not contain '/' or ','")
    return _printable(text)


Tag = Annotated[str, StringConstraints(min_length=1, max_length=60), AfterValidator(_tag)]
_HOSTNAME = r"^[a-zA-Z0-9]([a-zA-Z0-9\-]{0,62})?(\.[a-zA-Z0-9\-]{1,63})*$"
Hostname = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_HOSTNAME)]
HostName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9._\-]+$")]

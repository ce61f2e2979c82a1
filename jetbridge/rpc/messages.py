"""What every bus has in common: which values a message may hold, and what is said about one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from jetbridge.errors import Invalid
from jetbridge.journey.seams import Crossing, Seams
from jetbridge.model.context import RequestContext
from jetbridge.model.events import Seam

_ESSENTIAL = ("kind", "reason")


def plain_message(payload: Mapping[str, Any], what: str) -> dict[str, Any]:
    """A copy made of JSON values only, as a message over a network would arrive. Raises ``Invalid`` naming the place of any other
    value: it would be refused, or arrive as something else, on another bus."""
    copy = _plain(payload, what)
    assert isinstance(copy, dict)
    return copy


def target_name(topic: str, server: str | None) -> str:
    """As in events, log lines and errors: ``scheduler``, ``compute:HOST``."""
    return topic if server is None else f"{topic}:{server}"


def about(context: RequestContext, message: Mapping[str, Any]) -> dict[str, Any]:
    """``extra`` of a log line: what it says of the request it belongs to."""
    return {"request_id": context.request_id, "server": _servers(message)[0]}


def sent(
    seams: Seams,
    seam: Seam,
    context: RequestContext,
    target: str,
    method: str,
    message: Mapping[str, Any],
    source: str,
) -> AbstractContextManager[Crossing]:
    """Around the sending of a message."""
    uuids = _servers(message)
    essentials = {key: str(message[key]) for key in _ESSENTIAL if key in message}
    if len(uuids) > 1:
        essentials["servers"] = str(len(uuids))
    return seams.crossing(
        seam, source, target, method, request_id=context.request_id, server=uuids[0], essentials=essentials
    )


def _servers(message: Mapping[str, Any]) -> list[Any]:
    return message.get("server_uuids") or [message.get("server_uuid")]


def _plain(value: Any, where: str) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)  # an enumeration's member arrives as its text
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list):
        return [_plain(item, where) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise Invalid(reason=f"{where}: key {key!r} is not text")
        return {str.__str__(key): _plain(item, f"{where}[{key}]") for key, item in value.items()}
    raise Invalid(reason=f"{where}: {value!r} of type {type(value).__name__} is not a JSON value")

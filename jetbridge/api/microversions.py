"""Microversions of the Compute API: reading the headers, and applying the table of differences.

The differences themselves are data: ``jetbridge.api.version_table``. Views are built with every field any
version has; ``shape`` keeps those of the version asked. A name with a variant (``flavor@ref``, ``flavor@embedded``)
is answered under the part before the ``@``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jetbridge.api.version_table import NEWEST, OLDEST, REQUEST_FIELDS, ROUTES, VIEW_FIELDS
from jetbridge.errors import Invalid, NotFound

SERVICE_HEADER = "OpenStack-API-Version"
COMPUTE_HEADER = "X-OpenStack-Nova-API-Version"


class Version(NamedTuple):
    """Compared by number: 2.9 is older than 2.10."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


MINIMUM = Version(2, OLDEST)
MAXIMUM = Version(2, NEWEST)


class InvalidVersionText(Invalid):
    template = "API Version String {value!r} is of invalid format. Must be of format MajorNum.MinorNum, or latest."


class VersionOutOfRange(Invalid):
    template = "Version {value} is not supported by the API. Minimum is {minimum} and maximum is {maximum}."
    http_status = 406


def parse_version(text: str) -> Version:
    """``MAJOR.MINOR`` or ``latest``. Raises ``InvalidVersionText``, ``VersionOutOfRange``."""
    if text == "latest":
        return MAXIMUM
    match = re.fullmatch(r"([1-9]\d{0,3})\.(0|[1-9]\d{0,3})", text, re.ASCII)
    if match is None:
        raise InvalidVersionText(value=text)
    version = Version(int(match[1]), int(match[2]))
    if not MINIMUM <= version <= MAXIMUM:
        raise VersionOutOfRange(value=text, minimum=MINIMUM, maximum=MAXIMUM)
    return version


def negotiate(headers: Mapping[str, str]) -> Version:
    """The version a request asks for; ``headers`` has lower-case names. The newer header wins; without one: 2.1.

    ``OpenStack-API-Version`` lists services (``compute 2.47, volume 3.5``); entries of others are skipped."""
    for entry in headers.get(SERVICE_HEADER.lower(), "").split(","):
        service, _, wanted = entry.strip().partition(" ")
        if service == "compute":
            return parse_version(wanted.strip())
    old = headers.get(COMPUTE_HEADER.lower())
    return MINIMUM if old is None else parse_version(old.strip())


def shape(
    view: str, full: Mapping[str, Any], version: Version, allowed: Callable[[str], bool] = lambda rule: True
) -> dict[str, Any]:
    """The fields of ``full`` that ``view`` has at ``version`` for a caller to whom ``allowed`` grants rules."""
    spans = VIEW_FIELDS[view]
    shaped = {}
    for name, value in full.items():
        span = spans.get(name)
        if span is None or (span.has(version.minor) and (span.rule is None or allowed(span.rule))):
            shaped[name.partition("@")[0]] = value
    return shaped


def check_request(request: str, given: Iterable[str], version: Version) -> None:
    """Refuses fields that ``request`` doesn't have at ``version``. Raises ``Invalid`` naming the first."""
    spans = REQUEST_FIELDS[request]
    for name in given:
        span = spans.get(name)
        if span is not None and not span.has(version.minor):
            raise Invalid(
                f"Invalid input for field/attribute {request}. Additional properties are not allowed "
                f"({name!r} was unexpected): it exists {span.describe()}, and {version} was asked."
            )


def check_route(route: str, version: Version) -> None:
    """Raises ``NotFound`` where the resource doesn't exist at ``version``."""
    span = ROUTES[route]
    if not span.has(version.minor):
        raise NotFound(f"The resource could not be found at microversion {version}: it exists {span.describe()}.")

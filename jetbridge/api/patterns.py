"""Regular expressions of callers, kept from being a way to stop the service."""

from __future__ import annotations

import re
import warnings
from typing import Any

from jetbridge.errors import Invalid

_MAX_LENGTH = 255
_MAX_REPEATS = 2


def check_pattern(parameter: str, text: str | None) -> str | None:
    """``text`` when it is a regular expression that can be matched quickly. Raises ``Invalid``.

    A repeat inside a repeat can take exponential time, many open repeats in a row polynomial: both are refused.
    """
    if text is None:
        return None
    if len(text) > _MAX_LENGTH:
        raise Invalid(f"The query parameter {parameter!r} is longer than {_MAX_LENGTH} characters: shorten it.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of patterns whose meaning may change one day
            parsed = re._parser.parse(text)  # type: ignore[attr-defined]  # the only parser there is
            re.compile(f"(?i){text}")  # as the database matches it
    except (re.error, RecursionError, OverflowError) as error:
        raise Invalid(f"Invalid regular expression {text!r} in the query parameter {parameter!r}: {error}.") from None
    if _repeats(parsed, inside=False) > _MAX_REPEATS:
        raise Invalid(
            f"The regular expression {text!r} in the query parameter {parameter!r} has too many repeats: use at most"
            f" {_MAX_REPEATS}, and none inside another."
        )
    return text


def _repeats(parsed: Any, *, inside: bool) -> int:
    """Open repeats in a parsed pattern; one inside another counts as too many."""
    count = 0
    for operation, argument in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, body = argument
            if inside and high != low:
                count += _MAX_REPEATS + 1
            elif int(high) - int(low) > 1:
                count += 1
            count += _repeats(body, inside=inside or int(high) > 1)
        elif name in ("GROUPREF", "GROUPREF_EXISTS") or (name == "BRANCH" and inside):
            count += _MAX_REPEATS + 1
        elif isinstance(argument, tuple | list):
            count += sum(_repeats(part, inside=inside) for part in _subpatterns(argument))
    return count


def _subpatterns(argument: Any) -> list[Any]:
    found = []
    for part in argument:
        if type(part).__name__ == "SubPattern":
            found.append(part)
        elif isinstance(part, list):
            found += _subpatterns(part)
    return found

"""Times as callers write them."""

from __future__ import annotations

from datetime import UTC, datetime

from jetbridge.errors import Invalid


def parse_time(parameter: str, text: str | None) -> datetime | None:
    """ISO 8601 to UTC without zone; a time without zone is UTC. Raises ``Invalid``."""
    if text is None:
        return None
    # In a query a plus sign that nobody escaped arrives as a blank.
    candidate = text.strip()
    if " " in candidate and "T" in candidate:
        candidate = candidate.replace(" ", "+")
    try:
        when = datetime.fromisoformat(candidate)
        return when.astimezone(UTC).replace(tzinfo=None) if when.tzinfo else when
    except (ValueError, OverflowError):
        raise Invalid(
            f"Invalid value {text!r} for the query parameter {parameter!r}: write a time such as 2026-01-31T12:00:00Z."
        ) from None

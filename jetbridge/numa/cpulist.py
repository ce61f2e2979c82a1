"""CPU lists as the field writes them: ``0-3,8,^2``."""

from __future__ import annotations

import re

_TERM = re.compile(r"(?P<exclude>\^?)\s*(?P<first>\d{1,6})\s*(?:-\s*(?P<last>\d{1,6}))?", re.ASCII)

MAX_CPU = 65535
"""Larger numbers are surely typing errors, and a range up to them would only fill memory."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """The CPUs of a list: numbers and ranges, ``^`` takes out, wherever it stands. Raises ``ValueError``."""
    included: set[int] = set()
    excluded: set[int] = set()
    for term in text.split(","):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise ValueError(f"{term.strip()!r} is not a CPU, a range such as 0-3, or an exclusion such as ^2")
        first = int(match["first"])
        last = first if match["last"] is None else int(match["last"])
        if last < first:
            raise ValueError(f"the range {term.strip()!r} runs backwards")
        if last > MAX_CPU:
            raise ValueError(f"CPU {last} is larger than {MAX_CPU}")
        (excluded if match["exclude"] else included).update(range(first, last + 1))
    return frozenset(included - excluded)


def format_cpu_list(cpus: frozenset[int]) -> str:
    """``cpus`` in the shortest form, ranges joined: ``0-3,8``."""
    parts: list[str] = []
    ordered = sorted(cpus)
    start = 0
    for position in range(1, len(ordered) + 1):
        if position == len(ordered) or ordered[position] != ordered[position - 1] + 1:
            first, last = ordered[start], ordered[position - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = position
    return ",".join(parts)

"""Why something was refused, as data. The base that pure rooms share with jetbridge.errors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Why a host (or a fit) refused.

    ``rule`` is a stable word (``pci.properties``, ``pci.numa``, ``pci.device_type``, ``pci.dependency``, ``ram``,
    ``service.disabled``, ...), ``text`` the sentence for people, without host names so that hosts with the same reason
    group together. ``before`` and ``after`` count candidate devices around the rule that
    left too few; ``hint`` is the nearest change that would have let it pass.
    """

    rule: str
    text: str
    request: str | None = None  # alias name, or port id
    before: int | None = None
    after: int | None = None
    hint: str | None = None


def some(names: Collection[str], most: int = 4) -> str:
    """``a, b, c, d and 3 more``, in order."""
    found = sorted(names)
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def counted(number: int, noun: str) -> str:
    """``1 device``, ``2 devices``: for nouns whose plural is a plain s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""Why no host was found, in a sentence or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jetbridge.model.verdict import Verdict
from jetbridge.reasons import Reason, counted

MOST_REASONS = 3
"""Reasons told per filter; the rest is counted."""

MOST_CHARACTERS = 1200


@dataclass(frozen=True)
class _Told:
    """Hosts that one filter refused with the same rule and text."""

    reason: Reason
    hosts: int


def summary(verdicts: Sequence[Verdict]) -> str:
    """By filter: how many hosts fell, and why; what refused the most hosts comes first.

    Hosts of the same rule and text count together; the hint told is that of the first of them.
    """
    if not verdicts:
        return "No compute host is known: start an agent, and see that it reports."
    refused = [verdict for verdict in verdicts if not verdict.passed]
    parts: list[str] = []
    for name, _ in Counter(verdict.filter for verdict in refused).most_common():
        mine = [verdict for verdict in refused if verdict.filter == name]
        verb = "refused " if not parts else ""
        parts.append(f"{len(mine)} {verb}by {name} ({_reasons(mine)})")
    return _cut(f"{counted(len(verdicts), 'host')} considered: {', '.join(parts)}")


def _reasons(verdicts: Iterable[Verdict]) -> str:
    groups: dict[tuple[str, str], _Told] = {}
    for verdict in verdicts:
        if verdict.reason is not None:
            key = verdict.reason.rule, verdict.reason.text
            known = groups.get(key, _Told(verdict.reason, 0))
            groups[key] = _Told(known.reason, known.hosts + 1)
    ordered = sorted(groups.values(), key=lambda told: -told.hosts)
    if len(ordered) == 1:
        return _sentence(ordered[0].reason)
    told = [f"{group.hosts}: {_sentence(group.reason)}" for group in ordered[:MOST_REASONS]]
    rest = sum(group.hosts for group in ordered[MOST_REASONS:])
    return "; ".join([*told, f"{rest} for other reasons"] if rest else told)


def _sentence(reason: Reason) -> str:
    return f"{reason.text}; hint: {reason.hint}" if reason.hint else reason.text


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1].rstrip() + "…"

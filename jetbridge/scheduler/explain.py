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

OTHER_DEVICES = "pci.properties"
"""The rule that refuses hosts whose devices are of other kinds."""


@dataclass(frozen=True)
class _Told:
    """Hosts that one filter refused with the same rule and text."""

    reason: Reason
    hosts: int


def summary(verdicts: Sequence[Verdict]) -> str:
    """By filter: how many hosts fell, and why; what refused the most hosts comes first. Then what would have helped.

    Hosts of the same rule and text count together; the hint told is that of the first of them. Hosts that have the devices and may not
    give them are nearer to the answer than hosts that have others: their hints come first, for the message of a fault is short.
    """
    if not verdicts:
        return "No compute host is known: start an agent, and see that it reports."
    refused = [verdict for verdict in verdicts if not verdict.passed]
    parts: list[str] = []
    hints: list[Reason] = []
    for name, count in Counter(verdict.filter for verdict in refused).most_common():
        groups = _grouped(verdict for verdict in refused if verdict.filter == name)
        verb = "refused " if not parts else ""
        parts.append(f"{count} {verb}by {name} ({_reasons(groups)})")
        hints += [group.reason for group in groups[:MOST_REASONS]]
    nearest = sorted(hints, key=lambda reason: reason.rule == OTHER_DEVICES)
    told = list(dict.fromkeys(reason.hint for reason in nearest if reason.hint))[:MOST_REASONS]
    advice = f". {'Hint' if len(told) == 1 else 'Hints'}: {'; '.join(told)}" if told else ""
    return _cut(f"{counted(len(verdicts), 'host')} considered: {', '.join(parts)}{advice}")


def _grouped(verdicts: Iterable[Verdict]) -> list[_Told]:
    """The most frequent first."""
    groups: dict[tuple[str, str], _Told] = {}
    for verdict in verdicts:
        if verdict.reason is not None:
            key = verdict.reason.rule, verdict.reason.text
            known = groups.get(key, _Told(verdict.reason, 0))
            groups[key] = _Told(known.reason, known.hosts + 1)
    return sorted(groups.values(), key=lambda told: -told.hosts)


def _reasons(groups: Sequence[_Told]) -> str:
    if len(groups) == 1:
        return groups[0].reason.text
    told = [f"{group.hosts}: {group.reason.text}" for group in groups[:MOST_REASONS]]
    rest = sum(group.hosts for group in groups[MOST_REASONS:])
    return "; ".join([*told, f"{rest} for other reasons"] if rest else told)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1].rstrip() + "…"

"""Why no host was found, in a sentence or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from jetbridge.model.verdict import VerdictGroup
from jetbridge.reasons import Reason, counted

MOST_REASONS = 3
"""Reasons told per filter; the rest is counted."""

MOST_CHARACTERS = 1200

OTHER_DEVICES = "pci.properties"
"""The rule that refuses hosts whose devices are of other kinds."""

TOO_FEW = (OTHER_DEVICES, "pci.count", "placement.eligible")
"""The rules that refuse hosts without enough free devices of the kind."""

_Told = tuple[Reason, int]
"""A reason and how many hosts one filter refused with the same rule and text."""


def summary(groups: Sequence[VerdictGroup], in_all: Mapping[str, str] | None = None) -> str:
    """By filter: how many hosts fell, and why; what refused the most hosts comes first. Then what would have helped.

    Hosts of the same rule and text count together; the hint told is that of the first of them. Hosts that have the devices and may not
    give them are nearer to the answer than hosts that have others: their hints come first, for the message of a fault is short.
    ``in_all``: by alias, how many of its devices there are. If there are any, devices of other ids are no hint: they are what else the
    hosts have.
    """
    if not groups:
        return "No compute host is known: start an agent, and see that it reports."
    fallen: Counter[str | None] = Counter()
    for group in groups:
        if not group.passed:
            fallen[group.filter] += group.host_count
    parts: list[str] = []
    reasons: list[Reason] = []
    for name, count in fallen.most_common():
        told = _told(group for group in groups if group.filter == name)
        verb = "refused " if not parts else ""
        parts.append(f"{count} {verb}by {name} ({_reasons(told)})")
        reasons += [reason for reason, _ in told[:MOST_REASONS]]
    known = in_all or {}
    nearest = sorted(reasons, key=lambda reason: reason.rule == OTHER_DEVICES)
    hints = list(dict.fromkeys(hint for reason in nearest if (hint := _hint(reason, known))))[:MOST_REASONS]
    lacking = {reason.request for reason in reasons if reason.rule in TOO_FEW}
    existing = "".join(f". {words}" for alias, words in known.items() if alias in lacking)
    advice = f". {'Hint' if len(hints) == 1 else 'Hints'}: {'; '.join(hints)}" if hints else ""
    considered = sum(group.host_count for group in groups)
    return _cut(f"{counted(considered, 'host')} considered: {', '.join(parts)}{existing}{advice}")


def _hint(reason: Reason, in_all: Mapping[str, str]) -> str | None:
    return None if reason.rule == OTHER_DEVICES and reason.request in in_all else reason.hint


def _told(groups: Iterable[VerdictGroup]) -> list[_Told]:
    """The most frequent first."""
    found: dict[tuple[str, str], _Told] = {}
    for group in groups:
        if group.reason is not None:
            key = group.reason.rule, group.reason.text
            reason, hosts = found.get(key, (group.reason, 0))
            found[key] = reason, hosts + group.host_count
    return sorted(found.values(), key=lambda told: -told[1])


def _reasons(told: Sequence[_Told]) -> str:
    if len(told) == 1:
        return told[0][0].text
    texts = [f"{hosts}: {reason.text}" for reason, hosts in told[:MOST_REASONS]]
    rest = sum(hosts for _, hosts in told[MOST_REASONS:])
    return "; ".join([*texts, f"{rest} for other reasons"] if rest else texts)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1].rstrip() + "…"

"""Choosing hosts for the servers of one request, each on what the ones before it left."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

from jetbridge.model.context import RequestContext
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.verdict import MOST_HOSTS_NAMED, Selection, VerdictGroup
from jetbridge.pci.existing import Existing, in_all
from jetbridge.pci.fit import explained
from jetbridge.placement.groups import groups_of
from jetbridge.reasons import Reason
from jetbridge.scheduler.consume import consumed, fitted_on
from jetbridge.scheduler.explain import summary
from jetbridge.scheduler.filters.base import HostFilter
from jetbridge.scheduler.memo import Answer, Memo, Question
from jetbridge.scheduler.weighers import Score, scores

logger = logging.getLogger(__name__)

TRIED = "RetryFilter"
"""The name under which hosts that failed this server before are refused."""

PLACEMENT = "Placement"
"""The name under which hosts are refused whose providers can't serve a server."""

Place = Callable[[HostState], Selection | Reason]
"""Takes a host that passed, or says why not."""

Placer = Callable[[RequestSpec], Place]

_Decision = tuple[str | None, Reason | None]
_TRIED = Answer(TRIED, Reason("host.tried", "the build already failed there"), None)


class Random(Protocol):
    """The part of ``random.Random`` that choosing needs."""

    def randrange(self, stop: int, /) -> int: ...

    def shuffle(self, values: list[Any], /) -> None: ...


@dataclass(frozen=True)
class Choosing:
    """How to choose among hosts that passed. ``alternates``: further hosts to name for each server."""

    filters: tuple[HostFilter, ...]
    random: Random
    alternates: int = 2
    pci_weight_multiplier: float = 1.0
    host_subset_size: int = 1
    shuffle_best: bool = False
    packing: bool = False


@dataclass(frozen=True)
class Outcome:
    """``selections`` has per server the host and its alternates; None: some server found none. ``verdicts`` are by server, of those
    that were looked at: the last of them is the one that found no host."""

    selections: tuple[tuple[Selection, ...], ...] | None
    verdicts: Mapping[str, tuple[VerdictGroup, ...]]


@dataclass(frozen=True)
class Judged:
    """The hosts that were looked at for one server, and the answer about each."""

    states: Sequence[HostState]
    answers: Sequence[Answer]

    @cached_property
    def counts(self) -> Mapping[Answer, int]:
        """In order of first appearance."""
        return Counter(self.answers)

    @property
    def passed(self) -> list[HostState]:
        return [state for state, answer in zip(self.states, self.answers, strict=True) if answer.filter is None]


def select_destinations(
    context: RequestContext,
    states: Sequence[HostState],
    specs: Sequence[RequestSpec],
    choosing: Choosing,
    exclude_hosts: Collection[str] = (),
    memo: Memo | None = None,
    placer: Placer | None = None,
) -> Outcome:
    """Hosts for all servers or for none. Nothing passed in is changed; ``memo`` (of the same filters) learns. ``placer`` has the last
    word on the best hosts, and what it records stays recorded also when a later server finds no host."""
    memo = Memo(choosing.filters) if memo is None else memo
    current = list(states)
    selections: list[tuple[Selection, ...]] = []
    verdicts: dict[str, tuple[VerdictGroup, ...]] = {}
    for number, spec in enumerate(specs, start=1):
        judged = filter_hosts(context, current, spec, memo.question(spec), exclude_hosts)
        ordered = in_order(judged, spec, choosing)
        place = _selection if placer is None else placer(spec)
        refused: dict[str, Reason] = {}
        chosen: Selection | None = None
        best: HostState | None = None
        for state in ordered:
            answer = place(state)
            if isinstance(answer, Selection):
                chosen, best = answer, state
                break
            refused[state.host] = answer
        _log_refused(context, spec, refused)
        verdicts[spec.instance_uuid] = with_refusals(grouped(judged), refused)
        if chosen is None or best is None:
            return Outcome(None, verdicts)
        verdicts[spec.instance_uuid] = _with_choice(verdicts[spec.instance_uuid], best, chosen, spec, choosing.packing)
        selections.append((chosen, *(_selection(state) for state in islice(ordered, choosing.alternates))))
        if number < len(specs):
            at = next(at for at, state in enumerate(current) if state is best)
            current[at] = consumed(best, spec, choosing.packing, chosen.providers)
    return Outcome(tuple(selections), verdicts)


def failure(outcome: Outcome, specs: Sequence[RequestSpec], existing: Callable[[], Sequence[Existing]] = tuple) -> str:
    """Why the outcome has no hosts, for people. ``existing``: what devices there are at all, for ``in_all``."""
    number, uuid = len(outcome.verdicts), list(outcome.verdicts)[-1]
    spec = next(spec for spec in specs if spec.instance_uuid == uuid)
    which = f"For server {number} of {len(specs)} in the request: " if len(specs) > 1 else ""
    if not outcome.verdicts[uuid] and spec.force_host is not None:
        return f"{which}The host {spec.force_host}, which the server was sent to, is not known."
    classes = {
        request.request_id: name
        for request in spec.pci_requests
        for group in groups_of(request, spec.groups)
        for name in group.resources
    }
    return which + summary(outcome.verdicts[uuid], in_all(spec.pci_requests, existing, classes))


def filter_hosts(
    context: RequestContext,
    states: Sequence[HostState],
    spec: RequestSpec,
    question: Question,
    exclude_hosts: Collection[str] = (),
) -> Judged:
    """Every host's answer. With a forced host only that one is looked at."""
    if spec.force_host is not None:
        states = [state for state in states if state.host == spec.force_host]
    answers = question.answers(states)
    if exclude_hosts:
        answers = [
            _TRIED if state.host in exclude_hosts else answer for state, answer in zip(states, answers, strict=True)
        ]
    judged = Judged(states, answers)
    names = [one.name for one in question.filters]
    _log(context, spec, [TRIED, *names] if exclude_hosts else names, judged)
    return judged


def grouped(judged: Judged) -> tuple[VerdictGroup, ...]:
    """By identical answer; in order of first appearance, hosts in the order given."""
    counts: Counter[_Decision] = Counter()
    names: dict[_Decision, list[str]] = {}
    names_of: dict[Answer, list[str]] = {}
    for answer, count in judged.counts.items():
        decision = answer.filter, answer.reason
        counts[decision] += count
        names_of[answer] = names.setdefault(decision, [])
    missing = sum(min(count, MOST_HOSTS_NAMED) for count in counts.values())
    for state, answer in zip(judged.states, judged.answers, strict=True):
        if not missing:
            break
        if len(names_of[answer]) < MOST_HOSTS_NAMED:
            names_of[answer].append(state.host)
            missing -= 1
    return tuple(
        VerdictGroup(filter, reason, count, tuple(names[filter, reason])) for (filter, reason), count in counts.items()
    )


def _with_choice(
    groups: Sequence[VerdictGroup], chosen: HostState, selection: Selection, spec: RequestSpec, packing: bool
) -> tuple[VerdictGroup, ...]:
    """The host that was chosen as a group of its own, which tells the devices that the server's requests get there and why those."""
    fitted = fitted_on(chosen, spec, packing, selection.providers) if spec.pci_requests else None
    devices = f": {explained(spec.pci_requests, fitted.choice)}" if fitted is not None and fitted.choice.takes else ""
    told: list[VerdictGroup] = []
    for group in groups:
        if group.passed:
            told.append(VerdictGroup(None, Reason("chosen", f"chosen{devices}"), 1, (chosen.host,)))
            if group.host_count == 1:
                continue
            others = tuple(host for host in group.hosts if host != chosen.host)
            group = replace(group, host_count=group.host_count - 1, hosts=others)
        told.append(group)
    return tuple(told)


def with_refusals(groups: Sequence[VerdictGroup], refused: Mapping[str, Reason]) -> tuple[VerdictGroup, ...]:
    """The verdicts, when of the hosts that passed some were refused by Placement after all."""
    if not refused:
        return tuple(groups)
    told: dict[Reason, list[str]] = {}
    for host, reason in refused.items():
        told.setdefault(reason, []).append(host)
    kept = []
    for group in groups:
        if group.filter is None:
            left = tuple(host for host in group.hosts if host not in refused)
            group = VerdictGroup(None, None, group.host_count - len(refused), left)
        if group.host_count:
            kept.append(group)
    more = [
        VerdictGroup(PLACEMENT, reason, len(names), tuple(names[:MOST_HOSTS_NAMED])) for reason, names in told.items()
    ]
    return (*kept, *more)


def in_order(judged: Judged, spec: RequestSpec, choosing: Choosing) -> Iterator[HostState]:
    """The hosts that passed, the best first. Equal ones keep their order, unless the best are to be shuffled. Few are wanted of
    many, so only the best are sorted until more are asked for."""
    weights = {answer: answer.weight for answer in judged.counts if answer.weight is not None}
    values = scores(
        list(weights.values()),
        with_devices=bool(spec.pci_requests),
        pci_weight_multiplier=choosing.pci_weight_multiplier,
    )
    score_of = dict(zip(weights, values, strict=True))
    if not score_of:
        return
    enough = max(1 + choosing.alternates, choosing.host_subset_size)
    best: set[Answer] = set()
    hosts = 0
    last: Score | None = None
    for answer in sorted(score_of, key=score_of.__getitem__, reverse=True):
        if hosts >= enough and score_of[answer] != last:
            break
        best.add(answer)
        hosts += judged.counts[answer]
        last = score_of[answer]
    first = _sorted(judged, score_of, best)
    if choosing.shuffle_best:
        equal = [state for score, state in first if score == first[0][0]]
        choosing.random.shuffle(equal)
        first[: len(equal)] = [(first[0][0], state) for state in equal]
    subset = min(choosing.host_subset_size, len(first))
    if subset > 1:
        first.insert(0, first.pop(choosing.random.randrange(subset)))
    yield from (state for _, state in first)
    yield from (state for _, state in _sorted(judged, score_of, score_of.keys() - best))


def _sorted(
    judged: Judged, score_of: Mapping[Answer, Score], wanted: Collection[Answer]
) -> list[tuple[Score, HostState]]:
    found = [
        (score_of[answer], state)
        for state, answer in zip(judged.states, judged.answers, strict=True)
        if answer in wanted
    ]
    return sorted(found, key=lambda pair: pair[0], reverse=True)


def _log(context: RequestContext, spec: RequestSpec, filters: Sequence[str], judged: Judged) -> None:
    """A line per filter that had hosts left to judge."""
    refused: Counter[str | None] = Counter()
    for answer, count in judged.counts.items():
        refused[answer.filter] += count
    left = len(judged.states)
    for name in filters:
        if not left:
            break
        left -= refused[name]
        logger.info(
            "[%s] [instance: %s] Filter %s returned %d hosts", context.request_id, spec.instance_uuid, name, left
        )


def _log_refused(context: RequestContext, spec: RequestSpec, refused: Mapping[str, Reason]) -> None:
    for host, reason in islice(refused.items(), MOST_HOSTS_NAMED):
        logger.info(
            "[%s] [instance: %s] Placement: not host %s: %s", context.request_id, spec.instance_uuid, host, reason.text
        )


def _selection(state: HostState) -> Selection:
    return Selection(state.host, state.compute_node_id, state.generation)

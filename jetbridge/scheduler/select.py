"""Choosing hosts for the servers of one request, each on what the ones before it left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jetbridge.model.context import RequestContext
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.verdict import Selection, Verdict
from jetbridge.reasons import Reason
from jetbridge.scheduler.consume import consumed
from jetbridge.scheduler.explain import summary
from jetbridge.scheduler.filters.base import HostFilter
from jetbridge.scheduler.weighers import Score, scores

logger = logging.getLogger(__name__)

TRIED = "RetryFilter"
"""The name under which hosts that failed this server before are refused."""


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
    """``selections`` has per server the host and its alternates; None: some server found none, and ``failure`` says
    why. ``verdicts`` are by server, of those that were looked at."""

    selections: tuple[tuple[Selection, ...], ...] | None
    verdicts: Mapping[str, tuple[Verdict, ...]]
    failure: str | None = None


def select_destinations(
    context: RequestContext,
    states: Sequence[HostState],
    specs: Sequence[RequestSpec],
    choosing: Choosing,
    exclude_hosts: Collection[str] = (),
) -> Outcome:
    """Hosts for all servers or for none. Nothing passed in is changed, nothing is stored."""
    current = {state.compute_node_id: state for state in states}
    selections: list[tuple[Selection, ...]] = []
    verdicts: dict[str, tuple[Verdict, ...]] = {}
    for number, spec in enumerate(specs, start=1):
        passed, verdicts[spec.instance_uuid] = filter_hosts(
            context, tuple(current.values()), spec, choosing.filters, exclude_hosts
        )
        if not passed:
            which = f"For server {number} of {len(specs)} in the request: " if len(specs) > 1 else ""
            return Outcome(None, verdicts, which + _why(spec, verdicts[spec.instance_uuid]))
        ordered = in_order(passed, spec, choosing)
        selections.append(tuple(_selection(state) for state in ordered[: 1 + choosing.alternates]))
        best = ordered[0]
        current[best.compute_node_id] = consumed(best, spec, choosing.packing)
    return Outcome(tuple(selections), verdicts)


def filter_hosts(
    context: RequestContext,
    states: Sequence[HostState],
    spec: RequestSpec,
    filters: Sequence[HostFilter],
    exclude_hosts: Collection[str] = (),
) -> tuple[list[HostState], tuple[Verdict, ...]]:
    """The hosts that pass every filter, and every host's verdict. With a forced host only that one is looked at."""
    remaining = [state for state in states if spec.force_host in (None, state.host)]
    refused: dict[str, Verdict] = {}
    considered = [state.host for state in remaining]

    def judge(name: str, check: Callable[[HostState, RequestSpec], Reason | None]) -> list[HostState]:
        passed = []
        for state in remaining:
            reason = check(state, spec)
            if reason is None:
                passed.append(state)
            else:
                refused[state.host] = Verdict(state.host, passed=False, filter=name, reason=reason)
        logger.info(
            "[%s] [instance: %s] Filter %s returned %d hosts",
            context.request_id,
            spec.instance_uuid,
            name,
            len(passed),
        )
        return passed

    if exclude_hosts:
        tried = Reason("host.tried", "the build already failed there")
        remaining = judge(TRIED, lambda state, spec: tried if state.host in exclude_hosts else None)
    for host_filter in filters:
        if not remaining:
            break
        remaining = judge(host_filter.name, host_filter.check)
    verdicts = tuple(refused.get(host, Verdict(host, passed=True)) for host in considered)
    return remaining, verdicts


def in_order(states: Sequence[HostState], spec: RequestSpec, choosing: Choosing) -> list[HostState]:
    """The best host first. Equal ones keep their order, unless the best are to be shuffled."""
    values = scores(states, spec, choosing.pci_weight_multiplier)
    ranked: list[tuple[Score, HostState]] = sorted(
        zip(values, states, strict=True), key=lambda pair: pair[0], reverse=True
    )
    ordered = [state for _, state in ranked]
    if choosing.shuffle_best:
        equal = sum(1 for score, _ in ranked if score == ranked[0][0])
        best = ordered[:equal]
        choosing.random.shuffle(best)
        ordered[:equal] = best
    subset = min(choosing.host_subset_size, len(ordered))
    if subset > 1:
        ordered.insert(0, ordered.pop(choosing.random.randrange(subset)))
    return ordered


def _selection(state: HostState) -> Selection:
    return Selection(state.host, state.compute_node_id, state.generation)


def _why(spec: RequestSpec, verdicts: Sequence[Verdict]) -> str:
    if not verdicts and spec.force_host is not None:
        return f"The host {spec.force_host}, which the server was sent to, is not known."
    return summary(verdicts)

"""What was decided before: hosts that look alike are judged once for requests that ask for the same."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from jetbridge.model.host_state import HostState, Look
from jetbridge.model.request_spec import RequestSpec
from jetbridge.numa.serial import guest_topology_to_json
from jetbridge.pci.request import PciRequest
from jetbridge.pci.wanted import Wanted
from jetbridge.reasons import Reason
from jetbridge.scheduler.filters.base import HostFilter, ValueFilter
from jetbridge.scheduler.weighers import Weight, weight

MOST_ANSWERS = 200_000
"""Answers kept, over all requests; some hundred bytes each."""

Sees = Callable[[HostState], Hashable | None]


@dataclass(frozen=True, eq=False, slots=True)
class Answer:
    """What was decided about hosts that look alike: ``filter`` and ``reason`` tell who refused them, or they pass and have a
    ``weight``. Compared by identity."""

    filter: str | None
    reason: Reason | None
    weight: Weight | None


class Question:
    """One request's answers. ``remember`` False: every host is judged anew."""

    def __init__(self, filters: Sequence[HostFilter], spec: RequestSpec, *, remember: bool = True) -> None:
        self.filters = filters
        self._spec = spec
        self._wanted = Wanted(spec.pci_requests)
        self._sees = [one.sees if remember and isinstance(one, ValueFilter) else None for one in filters]
        self._by_value = None not in self._sees
        self._known: dict[Look, Answer] = {}
        self._parts: dict[Hashable, Reason | None] = {}
        # Hosts that differ may get the same answer: it is one object, so that there are few to count and to put in order.
        self._refusals: dict[tuple[str, Reason], Answer] = {}
        self._passes: dict[Weight, Answer] = {}

    def __len__(self) -> int:
        return len(self._known) + len(self._parts)

    def answers(self, states: Sequence[HostState]) -> list[Answer]:
        """One per host, in their order. Nothing is asked twice of hosts that look alike."""
        if not self._by_value:
            return [self._answer(state) for state in states]
        known = self._known
        found = [known.get(state.look) for state in states]
        if None in found:
            for at, answer in enumerate(found):
                if answer is None:
                    look = states[at].look
                    if look not in known:
                        known[look] = self._answer(states[at])
                    found[at] = known[look]
        return found  # type: ignore[return-value]  # there is no None left

    def _answer(self, state: HostState) -> Answer:
        for one, sees in zip(self.filters, self._sees, strict=True):
            reason = self._asked(one, sees, state)
            if reason is not None:
                return self._refusals.setdefault((one.name, reason), Answer(one.name, reason, None))
        heavy = weight(state, self._spec, self._wanted)
        return self._passes.setdefault(heavy, Answer(None, None, heavy))

    def _asked(self, one: HostFilter, sees: Sees | None, state: HostState) -> Reason | None:
        seen = None if sees is None else sees(state)
        if seen is None:
            return one.check(state, self._spec)
        key = one.name, seen
        if key not in self._parts:
            self._parts[key] = one.check(state, self._spec)
        return self._parts[key]


class Memo:
    """The answers of one set of filters, by request. Not safe to use from several threads at once."""

    def __init__(self, filters: Sequence[HostFilter], most_answers: int = MOST_ANSWERS) -> None:
        self._filters = tuple(filters)
        self._most = most_answers
        self._questions: OrderedDict[Hashable, Question] = OrderedDict()

    def question(self, spec: RequestSpec) -> Question:
        """What is known for requests like this one. The requests not asked for longest are forgotten when there are too many
        answers, this one's too when they are too many by themselves."""
        if self._most < 1:
            return Question(self._filters, spec, remember=False)
        self._forget()
        key = asked(spec)
        if key not in self._questions:
            self._questions[key] = Question(self._filters, spec)
        self._questions.move_to_end(key)
        return self._questions[key]

    def __len__(self) -> int:
        return sum(len(question) for question in self._questions.values())

    def _forget(self) -> None:
        while self._questions and len(self) > self._most:
            self._questions.popitem(last=False)


def asked(spec: RequestSpec) -> Hashable:
    """All of a request that an answer may depend on: not whose server it is, nor the ids made for it alone."""
    flavor = spec.flavor
    return (
        (flavor.vcpus, flavor.memory_mb, flavor.root_gb, flavor.ephemeral_gb, flavor.swap_mb),
        frozenset(flavor.extra_specs.items()),
        frozenset(spec.image_properties.items()),
        tuple(_asked_devices(request) for request in spec.pci_requests),
        None if spec.numa_topology is None else json.dumps(guest_topology_to_json(spec.numa_topology)),
        spec.availability_zone,
        frozenset(spec.hints.items()),
        spec.networks,
    )


def _asked_devices(request: PciRequest) -> Hashable:
    named = request.alias_name or request.requester_id
    return (
        request.alias_name,
        request.requester_id,
        None if named else request.request_id,  # refusals name it only then
        request.count,
        tuple(frozenset(properties.items()) for properties in request.spec),
        request.policy,
    )

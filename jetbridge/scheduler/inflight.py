"""Servers that were sent to a host and haven't claimed there yet: counted where they will arrive, or else everybody is sent to the same host."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.scheduler.consume import NO_CHOICE, Providers, consumed

LONGEST_WAIT_SECONDS = 60.0
"""After this a server that still hasn't claimed counts no more: its message was lost."""


@dataclass(frozen=True)
class _Sent:
    spec: RequestSpec
    at: float
    providers: Providers


@dataclass(frozen=True)
class _Expected:
    """``state`` is ``base`` with the servers of ``uuids`` on it."""

    base: HostState
    uuids: tuple[str, ...]
    state: HostState


class InFlight:
    """What one scheduler process has decided and not yet seen in the tables. A guess that helps to choose: only the claim
    counts, and nothing is refused because of it alone. Not safe to use from several threads at once."""

    def __init__(self, packing: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._packing = packing
        self._monotonic = monotonic
        self._sent: dict[int, dict[str, _Sent]] = {}
        self._expected: dict[int, _Expected] = {}

    @property
    def servers(self) -> frozenset[str]:
        return frozenset(uuid for sent in self._sent.values() for uuid in sent)

    def keep_only(self, waiting: Collection[str]) -> None:
        """Forget the servers that claimed, failed or are gone, and those that took too long."""
        oldest = self._monotonic() - LONGEST_WAIT_SECONDS
        self._sent = {
            node: kept
            for node, sent in self._sent.items()
            if (kept := {uuid: one for uuid, one in sent.items() if uuid in waiting and one.at > oldest})
        }
        self._expected = {node: known for node, known in self._expected.items() if node in self._sent}

    def add(self, compute_node_id: int, spec: RequestSpec, providers: Providers = NO_CHOICE) -> None:
        """``providers``: those that Placement's choice says, once it is made."""
        if providers:
            self._expected.pop(compute_node_id, None)  # it counted the server without them
        self._sent.setdefault(compute_node_id, {})[spec.instance_uuid] = _Sent(spec, self._monotonic(), providers)

    def forget(self, uuids: Collection[str]) -> None:
        """They are on their way no more."""
        self._sent = {
            node: kept
            for node, sent in self._sent.items()
            if (kept := {uuid: one for uuid, one in sent.items() if uuid not in uuids})
        }

    def applied(self, states: Sequence[HostState]) -> tuple[HostState, ...]:
        """The hosts as they will be once everybody has arrived."""
        return tuple(self._arrived(state) if state.compute_node_id in self._sent else state for state in states)

    def _arrived(self, base: HostState) -> HostState:
        sent = self._sent[base.compute_node_id]
        uuids = tuple(sent)
        known = self._expected.get(base.compute_node_id)
        if known is None or known.base is not base or uuids[: len(known.uuids)] != known.uuids:
            known = _Expected(base, (), base)
        state = known.state
        for uuid in uuids[len(known.uuids) :]:
            state = consumed(state, sent[uuid].spec, self._packing, sent[uuid].providers)
        self._expected[base.compute_node_id] = _Expected(base, uuids, state)
        return state

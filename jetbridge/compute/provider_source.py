"""What each model adds to its host's providers in Placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from jetbridge.compute.host import AgentHost
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.model.provider import Provider, Seen


@dataclass(frozen=True)
class Contribution:
    """``children`` of the host's root, whose names begin with the host's and are nobody else's. ``heal``: allocations that servers
    must have because they hold what a child stands for (consumer, child's name, class, amount). ``root_traits``: what the model makes
    the host itself capable of. ``warnings``: sentences that name what is wrong and what to do."""

    children: tuple[Provider, ...] = ()
    heal: tuple[tuple[str, str, str, int], ...] = ()
    root_traits: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


class ProviderSource(Protocol):
    """One model. The report writes what its sources name, and retires children of theirs that they name no more once nobody uses
    them; so a source that can't say now what there is (a failed probe) raises instead of naming nothing."""

    @property
    def kind(self) -> str:
        """Short word that is recorded with the source's children (``pci``, ``mdev``, ...): only they are the source's own."""
        ...

    def contribute(self, host: AgentHost, node: ComputeNode, seen: Mapping[str, Seen] | None) -> Contribution:
        """What there is to report. ``seen``: the source's own children in Placement, by name. None: Placement isn't asked yet. That
        answer alone shows a starting agent whether the host can be reported, and each pass whether anything has changed: so the
        same facts have to give the same answer.

        Raises ``JetbridgeError`` when the facts contradict each other: a starting agent doesn't start then, and a later pass logs it and
        leaves Placement as it is.
        """
        ...

    def reported(self, host: AgentHost, node: ComputeNode, uuids: Mapping[str, str], seen: Mapping[str, Seen]) -> None:
        """The children are in Placement: their UUIDs by name, and how they are there now. Called after each pass that had something
        to look at; repeating it changes nothing."""
        ...

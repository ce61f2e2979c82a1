"""What a filter is. Others may bring their own by the entry point group ``jetbridge.filters``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from jetbridge.config.settings import Settings
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.reasons import Reason

MOST_TEXTS = 3
"""Reasons of one host that are joined into one; more would not be read."""


class HostFilter(Protocol):
    """Judges one host for one server, from the two values alone: no state, no side effect."""

    @property
    def name(self) -> str:
        """As in ``[filter_scheduler]enabled_filters`` and in the log."""
        ...

    def check(self, state: HostState, spec: RequestSpec) -> Reason | None:
        """Why the host can't take the server, without naming the host; None: it can."""
        ...


@runtime_checkable
class ValueFilter(HostFilter, Protocol):
    """A filter whose answer follows from the host's look (``HostState.look``) and from what the request asks for, not from which
    host it is nor whose server: hosts that look alike are judged once. Other filters are asked for every host every time."""

    def sees(self, state: HostState) -> Hashable | None:
        """The part of the look that the answer depends on: hosts where it is equal are judged once even when they differ elsewhere.
        None: asking again costs less than searching for the answer."""
        ...


FilterFactory = Callable[[Settings], HostFilter]
"""What an entry point of ``jetbridge.filters`` is: the filter with the options it needs."""


def merged(reasons: Sequence[Reason]) -> Reason:
    """One reason out of several: the rule of the first, their texts and hints joined."""
    first, *rest = reasons
    texts = list(dict.fromkeys(reason.text for reason in reasons))[:MOST_TEXTS]
    hints = list(dict.fromkeys(reason.hint for reason in reasons if reason.hint))[:MOST_TEXTS]
    return replace(first, text="; ".join(texts), hint="; ".join(hints) or None) if rest else first

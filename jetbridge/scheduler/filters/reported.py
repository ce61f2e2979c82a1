"""Whether a host can have allocations at all."""

from __future__ import annotations

from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.reasons import Reason


class PlacementFilter:
    """Always on and first where allocations are recorded: a host's agent has reported its resource providers."""

    name = "PlacementFilter"

    def sees(self, state: HostState) -> bool:
        return state.reported

    def check(self, state: HostState, spec: RequestSpec) -> Reason | None:
        if state.reported:
            return None
        return Reason(
            "placement.unreported",
            "the host is not in Placement yet",
            hint="its agent reports it after its start and tries again with each periodic pass; the agent's log says why it can't",
        )

"""CPUs, memory, disk and networks of a host."""

from __future__ import annotations

from jetbridge.model.capacity import capacity_refusals
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.reasons import Reason
from jetbridge.scheduler.filters.base import merged


class ResourceFilter:
    """Always on and first: it stands where Placement's CPUs, memory and disk would."""

    name = "ResourceFilter"

    def sees(self, state: HostState) -> None:
        return None

    def check(self, state: HostState, spec: RequestSpec) -> Reason | None:
        reasons = [*capacity_refusals(state, spec.flavor, spec.numa_topology)]
        missing = sorted(set(spec.networks) - state.networks)
        if missing:
            reasons.append(
                Reason(
                    "network",
                    f"the host has no network {', '.join(missing)}",
                    hint="define the network or bridge on the host, or use one that it has",
                )
            )
        return merged(reasons) if reasons else None

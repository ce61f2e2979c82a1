"""Whether the host's agent takes servers at all, and whether the server may go there."""

from __future__ import annotations

from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.reasons import Reason


class ComputeFilter:
    """The agent is enabled and alive; the host is in the wanted availability zone."""

    name = "ComputeFilter"

    def sees(self, state: HostState) -> None:
        return None

    def check(self, state: HostState, spec: RequestSpec) -> Reason | None:
        if spec.availability_zone not in (None, state.availability_zone):
            return Reason(
                "availability_zone",
                f"not in the availability zone {spec.availability_zone}",
                hint=f"the host is in the availability zone {state.availability_zone}",
            )
        if not state.enabled:
            return Reason(
                "service.disabled",
                f"disabled: {state.disabled_reason}" if state.disabled_reason else "disabled",
                hint="openstack compute service set --enable HOST nova-compute",
            )
        if not state.alive:
            return Reason(
                "service.down",
                "the compute service is down",
                hint="start its agent and look at its log; openstack compute service set --up HOST nova-compute when it was forced down; "
                "openstack compute service delete ID when the host is gone for good",
            )
        return None

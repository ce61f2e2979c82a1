"""The guest's cells on the host's, with its devices near enough."""

from __future__ import annotations

from collections.abc import Hashable

from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.numa.fit import fit_server
from jetbridge.numa.topology import NumaLimits
from jetbridge.pci.fit import Refusal
from jetbridge.reasons import Reason
from jetbridge.scheduler.filters.base import merged


class NUMATopologyFilter:
    """The same fit as the claim's; a server without a guest topology passes."""

    name = "NUMATopologyFilter"

    def __init__(self, packing: bool) -> None:
        self._packing = packing

    def sees(self, state: HostState) -> Hashable:
        return (state.look.devices, state.look.cells)

    def check(self, state: HostState, spec: RequestSpec) -> Reason | None:
        if spec.numa_topology is None:
            return None
        answer = fit_server(
            state.numa,
            spec.numa_topology,
            state.pools or (),
            spec.pci_requests,
            limits=numa_limits(state),
            packing=self._packing,
        )
        return merged(answer.reasons) if isinstance(answer, Refusal) else None


def numa_limits(state: HostState) -> NumaLimits:
    return NumaLimits(state.cpu_allocation_ratio, state.ram_allocation_ratio)

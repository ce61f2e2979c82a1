"""Devices for the server, wherever on the host they are."""

from __future__ import annotations

from collections.abc import Hashable

from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.pci.fit import Refusal, fit
from jetbridge.reasons import Reason
from jetbridge.scheduler.filters.base import merged


class PciPassthroughFilter:
    """All device requests of the server jointly, PF-VF dependencies included."""

    name = "PciPassthroughFilter"

    def sees(self, state: HostState) -> Hashable:
        return state.look.devices

    def check(self, state: HostState, spec: RequestSpec) -> Reason | None:
        if not spec.pci_requests:
            return None
        if not state.devices_known:
            return Reason(
                "pci.unknown",
                "the host's devices are unknown: its last discovery failed",
                hint="jetbridge hosts shows why; they are offered again when a discovery succeeds",
            )
        answer = fit(state.pools or (), spec.pci_requests)
        return merged(answer.reasons) if isinstance(answer, Refusal) else None

"""A host after one more server: a new value, the old one stays as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jetbridge.model.capacity import disk_gb
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.numa.fit import ServerFit, fit_server
from jetbridge.numa.usage import with_usage
from jetbridge.pci.device import VIRTUAL, DeviceType
from jetbridge.pci.fit import Choice
from jetbridge.pci.pool import Pool
from jetbridge.placement.groups import provider_choice
from jetbridge.scheduler.filters.numa import numa_limits

Providers = Mapping[str, Sequence[str]]
"""Those that Placement's choice says, by the requester id of the group they serve; empty: it says nothing."""

NO_CHOICE: Providers = {}


def consumed(state: HostState, spec: RequestSpec, packing: bool, providers: Providers = NO_CHOICE) -> HostState:
    """``state`` as it will look once ``spec``'s server has been claimed on it, with devices of ``providers``.

    What no enabled filter asked for and doesn't fit is left out: the claim decides it.
    """
    topology, pools = state.numa, state.pools
    fitted = fitted_on(state, spec, packing, providers)
    if fitted is not None:
        if topology is not None and fitted.guest is not None:
            topology = with_usage(topology, (fitted.guest,))
        if pools is not None:
            pools = without(pools, fitted.choice)
    return replace(
        state,
        vcpus_used=state.vcpus_used + spec.flavor.vcpus,
        memory_mb_used=state.memory_mb_used + spec.flavor.memory_mb,
        disk_gb_used=state.disk_gb_used + disk_gb(spec.flavor),
        running_servers=state.running_servers + 1,
        numa=topology,
        pools=pools,
    )


def without(pools: Sequence[Pool], choice: Choice) -> tuple[Pool, ...]:
    """The pools that are left, in their order: a PF that is taken takes its VFs along, a VF its PF."""
    taken = [take for takes in choice.takes.values() for take in takes]
    blocked_vfs = {take.pool.address for take in taken if take.pool.dev_type is DeviceType.PF}
    blocked_pfs = {take.pool.address for take in taken if take.pool.dev_type in VIRTUAL}
    left = []
    for pool in pools:
        if pool.dev_type in VIRTUAL and pool.address in blocked_vfs:
            continue
        if pool.dev_type is DeviceType.PF and pool.address in blocked_pfs:
            continue
        count = pool.count - sum(take.count for take in taken if take.pool == pool)
        if count > 0:
            left.append(pool if count == pool.count else replace(pool, count=count))
    return tuple(left)


def fitted_on(state: HostState, spec: RequestSpec, packing: bool, providers: Providers = NO_CHOICE) -> ServerFit | None:
    """Where on the host the server will lie and what it will be given, as far as is known now; None: it doesn't fit."""
    bound = provider_choice(spec.pci_requests, spec.groups, providers) if providers else None
    # Without NUMATopologyFilter the cells may not fit; the devices are counted all the same.
    for guest in (spec.numa_topology, None) if spec.numa_topology is not None else (None,):
        answer = fit_server(state.numa, guest, state.pools or (), spec.pci_requests, bound, numa_limits(state), packing)
        if isinstance(answer, ServerFit):
            return answer
    return None

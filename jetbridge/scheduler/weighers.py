"""Which of the hosts that can take a server is the best."""

from __future__ import annotations

from collections.abc import Sequence

from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.pci.pool import Pool
from jetbridge.pci.wanted import Wanted

MOST_COUNTED = 99
"""Hosts with more free devices than this are not told apart."""

Score = tuple[float, float]


def scores(states: Sequence[HostState], spec: RequestSpec, pci_weight_multiplier: float) -> list[Score]:
    """A score per host; the higher, the better.

    A server without devices is drawn to free memory and away from devices: the two are added. A server with devices goes
    where the fewest of their kind are free, so that hosts with many stay whole for servers that want many; free
    memory decides only between equals, or else it would undo that.
    """
    memory = normalised([float(_free_memory(state)) for state in states])
    devices = [pci_weight_multiplier * weight for weight in normalised(_device_weights(states, spec))]
    if spec.pci_requests:
        return list(zip(devices, memory, strict=True))
    return [(device + free, 0.0) for device, free in zip(devices, memory, strict=True)]


def normalised(values: Sequence[float]) -> list[float]:
    """Spread over 0 to 1; all 0 when they are equal."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low == high:
        return [0.0] * len(values)
    return [(value - low) / (high - low) for value in values]


def _free_memory(state: HostState) -> int:
    return int((state.memory_mb - state.reserved_memory_mb) * state.ram_allocation_ratio) - state.memory_mb_used


def _device_weights(states: Sequence[HostState], spec: RequestSpec) -> list[float]:
    """The fewer free devices, the higher: of the requested kinds, or of all kinds for a server without devices."""
    wanted = Wanted(spec.pci_requests)
    weights = []
    for state in states:
        pools: Sequence[Pool] = state.pools or ()
        counted = wanted.of(pools) if spec.pci_requests else pools
        weights.append(float(100 - min(sum(pool.count for pool in counted), MOST_COUNTED)))
    return weights

"""Which of the hosts that can take a server is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.pci.pool import Pool
from jetbridge.pci.wanted import Wanted

MOST_COUNTED = 99
"""Hosts with more free devices than this are not told apart."""

Score = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Weight:
    """What counts of a host: free devices of the requested kinds (of all kinds for a server without devices), and free MiB."""

    devices: int
    memory_mb: int


def weight(state: HostState, spec: RequestSpec, wanted: Wanted) -> Weight:
    """``wanted`` is that of the spec's requests."""
    pools: Sequence[Pool] = state.pools or ()
    counted = wanted.of(pools) if spec.pci_requests else pools
    free_mb = int((state.memory_mb - state.reserved_memory_mb) * state.ram_allocation_ratio) - state.memory_mb_used
    return Weight(min(sum(pool.count for pool in counted), MOST_COUNTED), free_mb)


def scores(weights: Sequence[Weight], *, with_devices: bool, pci_weight_multiplier: float) -> list[Score]:
    """A score per weight; the higher, the better.

    A server without devices is drawn to free memory and away from devices: the two are added. A server with devices goes
    where the fewest of their kind are free, so that hosts with many stay whole for servers that want many; free
    memory decides only between equals, or else it would undo that.
    """
    memory = normalised([float(one.memory_mb) for one in weights])
    few = normalised([float(-one.devices) for one in weights])
    devices = [pci_weight_multiplier * value for value in few]
    if with_devices:
        return list(zip(devices, memory, strict=True))
    return [(device + free, 0.0) for device, free in zip(devices, memory, strict=True)]


def normalised(values: Sequence[float]) -> list[float]:
    """Spread over 0 to 1; all 0 when they are equal."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low == high:
        return [0.0] * len(values)
    return [(value - low) / (high - low) for value in values]

"""Which filters are enabled, by name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import entry_points

from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration
from jetbridge.pci.words import nearest
from jetbridge.scheduler.filters.base import FilterFactory, HostFilter
from jetbridge.scheduler.filters.compute import ComputeFilter
from jetbridge.scheduler.filters.numa import NUMATopologyFilter
from jetbridge.scheduler.filters.pci import PciPassthroughFilter
from jetbridge.scheduler.filters.resource import ResourceFilter

logger = logging.getLogger(__name__)

ENTRY_POINTS = "jetbridge.filters"

OWN: Mapping[str, FilterFactory] = {
    "ComputeFilter": lambda settings: ComputeFilter(),
    "PciPassthroughFilter": lambda settings: PciPassthroughFilter(),
    "NUMATopologyFilter": lambda settings: NUMATopologyFilter(settings.packing_host_numa_cells_allocation_strategy),
}

NEED_POOLS = frozenset({"PciPassthroughFilter", "NUMATopologyFilter"})
"""Device pools are read when one of these is enabled, or devices are scheduled by Placement."""

# Filters that people's nova.conf names and that have no counterpart here: left out, not an error.
OTHERS = frozenset(
    {
        "AggregateImagePropertiesIsolation",
        "AggregateInstanceExtraSpecsFilter",
        "AggregateIoOpsFilter",
        "AggregateMultiTenancyIsolation",
        "AggregateNumInstancesFilter",
        "AggregateTypeAffinityFilter",
        "AllHostsFilter",
        "AvailabilityZoneFilter",
        "ComputeCapabilitiesFilter",
        "DifferentHostFilter",
        "ImagePropertiesFilter",
        "IoOpsFilter",
        "IsolatedHostsFilter",
        "JsonFilter",
        "MetricsFilter",
        "NumInstancesFilter",
        "RetryFilter",
        "SameHostFilter",
        "ServerGroupAffinityFilter",
        "ServerGroupAntiAffinityFilter",
        "SimpleCIDRAffinityFilter",
    }
)


def installed_filters() -> dict[str, FilterFactory]:
    """The filters that installed packages bring. Raises ``InvalidConfiguration`` when one can't be imported."""
    found = {}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            found[entry.name] = entry.load()
        except Exception as error:
            raise InvalidConfiguration(
                reason=f"the filter {entry.name} ({entry.value}) can't be loaded: {error}; repair or remove its package"
            ) from error
    return found


def load_filters(settings: Settings, installed: Mapping[str, FilterFactory]) -> tuple[HostFilter, ...]:
    """The filters of ``[filter_scheduler]enabled_filters`` in their order, ``ResourceFilter`` before them.

    ``installed`` adds to ours, and may replace one of the same name. Names that nobody has are warned about and left out.
    """
    known = {**OWN, **installed}
    filters: list[HostFilter] = [ResourceFilter()]
    for name in dict.fromkeys(settings.enabled_filters):
        if name in known:
            filters.append(known[name](settings))
        elif name in OTHERS:
            logger.warning("[filter_scheduler]enabled_filters: %s does not exist in Jetbridge and is left out", name)
        elif name != ResourceFilter.name:
            near = nearest(name, sorted(known))
            logger.warning(
                "[filter_scheduler]enabled_filters: unknown filter %r is left out; %s",
                name,
                f"did you mean {near}?" if near else f"known are {', '.join(sorted(known))}",
            )
    return tuple(filters)


def needs_pools(settings: Settings) -> bool:
    return settings.pci_in_placement or not NEED_POOLS.isdisjoint(settings.enabled_filters)

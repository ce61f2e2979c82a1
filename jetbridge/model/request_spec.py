"""What is to be scheduled, frozen before anything is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jetbridge.model.flavor import Flavor
from jetbridge.model.request_group import RequestGroup
from jetbridge.numa.topology import GuestTopology
from jetbridge.pci.request import PciRequest


@dataclass(frozen=True)
class RequestSpec:
    """One server's request. ``image_properties`` are the image's as text. ``force_host`` names the one
    host allowed (``--host``, ``--availability-zone nova:HOST``). ``hints`` are scheduler hints by name.
    ``groups`` are what is asked of Placement beside CPUs, memory and disk (they follow from the flavor).
    ``port_profiles``: the device profile of each port that takes its device from one, by the port's id."""

    instance_uuid: str
    project_id: str
    flavor: Flavor
    image_ref: str | None
    image_properties: Mapping[str, str] = field(default_factory=dict)
    pci_requests: tuple[PciRequest, ...] = ()
    numa_topology: GuestTopology | None = None
    availability_zone: str | None = None
    force_host: str | None = None
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    networks: tuple[str, ...] = ()
    groups: tuple[RequestGroup, ...] = ()
    port_profiles: Mapping[str, str] = field(default_factory=dict)

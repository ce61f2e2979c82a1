"""Networks and ports, as the Network API knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jetbridge.model.context import ADMIN_ID
from jetbridge.pci.port import PortWish, VnicType
from jetbridge.pci.request import NumaPolicy

DEVICE_OWNER = "compute:nova"
"""``device_owner`` of ports that servers have, by which clients tell them from others."""


@dataclass(frozen=True)
class Network:
    """``network_type`` is flat, vlan, vxlan, geneve or gre; None: a network that only hosts know. ``physical_network`` None: an overlay.

    ``kinds`` are what hosts have under this name: a libvirt ``network``, a host ``bridge``; normal ports are plugged there.
    """

    id: str
    name: str
    project_id: str = ADMIN_ID
    shared: bool = True
    network_type: str | None = None
    physical_network: str | None = None
    segmentation_id: int | None = None
    description: str = ""
    kinds: tuple[str, ...] = ()

    @property
    def vlan(self) -> int | None:
        """The VLAN that frames of a VF are to be tagged with."""
        return self.segmentation_id if self.network_type == "vlan" else None


@dataclass(frozen=True)
class Port:
    """A port. ``host`` and ``device_id`` (a server's id) are set while it is bound, ``profile`` then also says to which device;
    ``vif_type`` and ``vif_details`` say how it is plugged. ``qos``: it asks for bandwidth."""

    id: str
    network_id: str
    project_id: str
    mac: str
    name: str = ""
    vnic_type: VnicType = VnicType.NORMAL
    profile: Mapping[str, Any] = field(default_factory=dict)
    host: str | None = None
    device_id: str = ""
    device_owner: str = ""
    vif_type: str = "unbound"
    vif_details: Mapping[str, Any] = field(default_factory=dict)
    fixed_ips: tuple[str, ...] = ()
    numa_policy: NumaPolicy | None = None
    device_profile: str | None = None
    description: str = ""
    admin_state_up: bool = True
    qos: bool = False

    @property
    def status(self) -> str:
        return "ACTIVE" if self.host and self.admin_state_up else "DOWN"

    def wish(self, network: Network) -> PortWish:
        return PortWish(self.id, self.vnic_type, network.physical_network, self.profile, self.numa_policy)


@dataclass(frozen=True)
class Binding:
    """What a host says when it takes a port for a server. ``device`` are the keys of the profile about the port's device; ``mac``: that
    of a physical function, which the port takes over."""

    server_uuid: str
    host: str
    device: Mapping[str, Any] = field(default_factory=dict)
    mac: str | None = None


@dataclass(frozen=True)
class NewPort:
    """A port to be made for a server that asked for a network."""

    network_id: str
    project_id: str
    mac: str
    fixed_ips: tuple[str, ...] = ()

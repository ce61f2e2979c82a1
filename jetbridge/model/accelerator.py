"""Accelerators as values: device profiles, the devices an accelerator service owns, and requests for them (ARQs).

Names and states are those of the Accelerator API, v2 (https://docs.openstack.org/api-ref/accelerator/).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


class ArqState(enum.StrEnum):
    """Where an accelerator request stands."""

    INITIAL = "Initial"
    BIND_STARTED = "BindStarted"
    BOUND = "Bound"
    UNBOUND = "Unbound"
    BIND_FAILED = "BindFailed"
    UNBIND_FAILED = "UnbindFailed"
    DELETING = "Deleting"

    @property
    def resolved(self) -> bool:
        """Whether its binding has come to an end, good or bad."""
        return self in (ArqState.BOUND, ArqState.BIND_FAILED, ArqState.DELETING)


TRANSITIONS: Mapping[ArqState, frozenset[ArqState]] = {
    ArqState.BIND_STARTED: frozenset({ArqState.INITIAL, ArqState.UNBOUND}),
    ArqState.BOUND: frozenset({ArqState.BIND_STARTED}),
    ArqState.BIND_FAILED: frozenset({ArqState.BIND_STARTED}),
    ArqState.UNBOUND: frozenset(
        {ArqState.INITIAL, ArqState.UNBOUND, ArqState.BIND_STARTED, ArqState.BOUND, ArqState.BIND_FAILED}
    ),
}
"""From which states each state can be reached. A request is deleted from any."""


class AttachType(enum.StrEnum):
    """How a guest takes a device: a whole PCI function, or a mediated device of one."""

    PCI = "PCI"
    MDEV = "MDEV"


class AcceleratorCondition(enum.StrEnum):
    OK = "ok"
    UNKNOWN = "unknown"  # the last discovery failed: not offered, not freed
    LOST = "lost"  # gone from the host or from its configuration while a guest has it


@dataclass(frozen=True)
class DeviceProfile:
    """``groups`` as users wrote them: keys ``resources:CLASS``, ``trait:NAME`` and ``accel:...``."""

    uuid: str
    name: str
    groups: tuple[Mapping[str, str], ...]
    description: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True)
class AttachHandle:
    """One thing that one guest can be given. ``address`` is the PCI function's; of a mediated device its parent's, and ``uuid`` is
    the mediated device's own. ``position`` numbers the mediated devices of a parent. ``arq_uuid``: the one request that has it."""

    uuid: str
    attach_type: AttachType
    address: str
    info: Mapping[str, str]
    position: int = 0
    arq_uuid: str | None = None
    condition: AcceleratorCondition = AcceleratorCondition.OK
    id: int = 0
    accelerator_id: int = 0


@dataclass(frozen=True)
class Accelerator:
    """A card, or a function of one, that the accelerator service owns: one resource provider with one resource class.

    ``address`` is the card's (the physical function's when ``handles`` are virtual functions). ``name`` is its provider's, ``rp_uuid``
    that provider's once it is reported. ``device_uuid`` names it as a device, ``uuid`` as a deployable of the API.
    """

    uuid: str
    device_uuid: str
    compute_node_id: int
    hostname: str
    name: str
    address: str
    vendor_id: str
    product_id: str
    device_type: str
    resource_class: str
    traits: frozenset[str] = frozenset()
    enabled: bool = True
    rp_uuid: str | None = None
    handles: tuple[AttachHandle, ...] = ()
    id: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True)
class Arq:
    """An accelerator request. What it is bound to is None while it isn't. ``handle`` is what it was given."""

    uuid: str
    state: ArqState
    project_id: str
    device_profile_name: str
    device_profile_group_id: int
    group: Mapping[str, str] = field(default_factory=dict)
    hostname: str | None = None
    device_rp_uuid: str | None = None
    instance_uuid: str | None = None
    handle: AttachHandle | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True)
class ServerArq:
    """What we know of a server's accelerator request, whoever's service keeps it. ``arq_uuid`` None: it was about to be created.

    ``requester_id`` is that of its request group; ``port_id`` of the port that asked; ``event`` how its binding ended, as the service told;
    ``attach_type`` and ``attach_info`` what it gave, the first only as long as a guest may have it; ``identity`` the function found
    there (address and ids)."""

    instance_uuid: str
    build_id: int
    profile: str
    project_id: str
    requester_id: str = ""
    port_id: str | None = None
    arq_uuid: str | None = None
    hostname: str | None = None
    rp_uuid: str | None = None
    event: str | None = None
    attach_type: str | None = None
    attach_info: Mapping[str, str] = field(default_factory=dict)
    handle_uuid: str | None = None
    identity: str | None = None
    id: int = 0
    created_at: datetime | None = None

"""A server: the guest as its owner sees it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from jetbridge.model.flavor import Flavor
from jetbridge.pci.port import VnicType


class VmState(enum.StrEnum):
    BUILDING = "building"
    ACTIVE = "active"
    STOPPED = "stopped"
    ERROR = "error"
    DELETED = "deleted"


class TaskState(enum.StrEnum):
    SCHEDULING = "scheduling"
    SPAWNING = "spawning"
    POWERING_OFF = "powering-off"
    POWERING_ON = "powering-on"
    REBOOTING = "rebooting"
    REBOOTING_HARD = "rebooting_hard"
    DELETING = "deleting"


class PowerState(enum.IntEnum):
    """The numbers of the Compute API."""

    NOSTATE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6


@dataclass(frozen=True)
class NetworkRequest:
    """A NIC of a server: a row of ``virtual_interfaces``.

    ``network`` is the network's name, ``port_id`` None until its port is made. ``made``: the port was made for this server and
    goes with it. ``request_id`` is that of the port's device request. ``host`` is set while a host has the port bound, or may have;
    ``task`` while the NIC is being put in or taken out of a server that exists.
    """

    network: str
    mac: str
    tag: str | None = None
    network_id: str = ""
    port_id: str | None = None
    vnic_type: VnicType = VnicType.NORMAL
    request_id: str | None = None
    made: bool = True
    fixed_ips: tuple[str, ...] = ()
    host: str | None = None
    task: Literal["attach", "detach"] | None = None
    id: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Server:
    """A row of ``instances`` with what hangs on it. ``id`` numbers the domain: ``instance-%08x``."""

    id: int
    uuid: str
    display_name: str
    project_id: str
    user_id: str
    vm_state: VmState
    task_state: TaskState | None
    power_state: PowerState
    flavor: Flavor
    image_ref: str | None
    created_at: datetime
    updated_at: datetime | None = None
    launched_at: datetime | None = None
    terminated_at: datetime | None = None
    host: str | None = None
    node: str | None = None
    compute_node_id: int | None = None
    key_name: str | None = None
    user_data: str | None = None  # base64, as given
    config_drive: bool = False
    display_description: str | None = None
    hostname: str | None = None
    availability_zone: str | None = None
    reservation_id: str | None = None
    launch_index: int = 0
    locked: bool = False
    locked_reason: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    networks: tuple[NetworkRequest, ...] = ()
    request_id: str | None = None  # of the API request that made it
    deleted: int = 0

    @property
    def domain_name(self) -> str:
        return f"instance-{self.id:08x}"

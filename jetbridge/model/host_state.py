"""What the scheduler knows of one host, as a value."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

from jetbridge.numa.topology import HostTopology
from jetbridge.pci.pool import Pool


class Look:
    """All of a host that a decision may depend on: hosts that look alike get the same answer to the same request.

    ``devices`` is what device requests see, ``cells`` what guest topologies see besides, ``room`` the rest. Equal looks are
    equal values; the hash is made once, for a look is searched for with every request.
    """

    __slots__ = ("_hash", "cells", "devices", "room")

    def __init__(self, devices: Hashable, cells: Hashable, room: Hashable) -> None:
        self.devices = devices
        self.cells = cells
        self.room = room
        self._hash = hash((devices, cells, room))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Look):
            return NotImplemented
        return (self.room, self.devices, self.cells) == (other.room, other.devices, other.cells)


@dataclass(frozen=True)
class HostState:
    """A host at one ``generation``.

    ``vcpus``, ``memory_mb``, ``disk_gb`` are what the host has; ``*_used`` what its servers hold. ``numa`` already
    carries the usage of its servers; None: the host has no NUMA cells. ``pools`` is None when no
    enabled filter needs them (they are not read then).
    """

    compute_node_id: int
    host: str
    hypervisor_hostname: str
    generation: int
    vcpus: int
    memory_mb: int
    disk_gb: int
    vcpus_used: int
    memory_mb_used: int
    disk_gb_used: int
    running_servers: int
    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    disk_allocation_ratio: float
    reserved_memory_mb: int
    reserved_disk_gb: int
    enabled: bool
    alive: bool
    numa: HostTopology | None = None
    pools: tuple[Pool, ...] | None = None
    disabled_reason: str | None = None
    availability_zone: str = "nova"
    networks: frozenset[str] = frozenset()
    devices_known: bool = True  # False: the last discovery failed, so none of the host's devices is offered
    uuid: str = ""  # its own resource provider's, too
    reported: bool = True  # False: its resource providers are not in Placement yet, so no server can be placed on it

    @cached_property
    def look(self) -> Look:
        """Everything but who and where the host is, its generation, and the ids of its devices' providers."""
        pools = None if self.pools is None else tuple(pool.look for pool in self.pools)
        return Look(
            devices=(self.devices_known, pools),
            cells=(self.numa, self.cpu_allocation_ratio, self.ram_allocation_ratio),
            room=(
                self.vcpus,
                self.memory_mb,
                self.disk_gb,
                self.vcpus_used,
                self.memory_mb_used,
                self.disk_gb_used,
                self.running_servers,
                self.disk_allocation_ratio,
                self.reserved_memory_mb,
                self.reserved_disk_gb,
                self.enabled,
                self.alive,
                self.disabled_reason,
                self.availability_zone,
                self.networks,
                self.reported,
            ),
        )

    def share_look(self, look: Look) -> None:
        """Hold a look equal to the own one, which other hosts hold too: comparing is comparing identities then."""
        self.__dict__["look"] = look

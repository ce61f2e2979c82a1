"""What a host has of vGPUs, as values: parents and the types they offer, what exists on them, and what is ours."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

_PCI_NAME = re.compile(r"pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")


class Kind(enum.StrEnum):
    """How a vGPU reaches its guest: as a mediated device, or as a VF to which the vendor's driver gives a type."""

    MDEV = "mdev"
    VFIO = "vfio"


class State(enum.StrEnum):
    """Of a vGPU of ours. ``reserved``: written down, and made by now or not. ``ready``: it was seen to exist. ``held``: no server has
    it, and some guest runs with it, so that nobody may have it until that one lets go. ``removing``: nobody may have it any more, it exists
    or not. ``removed``: it doesn't."""

    RESERVED = "reserved"
    READY = "ready"
    HELD = "held"
    REMOVING = "removing"
    REMOVED = "removed"


@dataclass(frozen=True)
class Offer:
    """A type that a parent can carry. ``available``: how many can be made now; ``limit``: how many of it the whole card carries,
    None: not known."""

    type: str
    available: int
    name: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class Parent:
    """Something on which vGPUs are made. ``name`` is that of its node device, ``address`` its PCI address or a virtual parent's
    name; ``card`` and ``card_address`` are those of the physical function for a VF, else the same."""

    name: str
    address: str
    card: str
    card_address: str
    kind: Kind = Kind.MDEV
    offers: tuple[Offer, ...] = ()

    def offer(self, type_id: str) -> Offer | None:
        """By the whole name: nvidia-55 is not nvidia-558."""
        return next((offer for offer in self.offers if offer.type == type_id), None)


@dataclass(frozen=True)
class Instance:
    """A vGPU that exists on the host, whoever made it. ``uuid`` is empty for the type of a VF; ``active`` False: defined, but not
    there now."""

    parent: str
    type: str
    uuid: str = ""
    active: bool = True
    node_name: str = ""


@dataclass(frozen=True)
class HostVgpus:
    """One look at a host. ``parents`` in order of address, virtual ones last."""

    parents: tuple[Parent, ...] = ()
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True)
class Vgpu:
    """A vGPU of ours: what is written down about it. ``server`` None: free to be used again."""

    uuid: str
    kind: Kind
    card: str
    parent: str
    type: str
    resource_class: str
    server: str | None
    state: State = State.RESERVED

    @property
    def address(self) -> str | None:
        """PCI address of its parent."""
        return address_of(self.parent)

    @property
    def held_as(self) -> str:
        """What the document of a domain that has it calls it."""
        return self.uuid if self.kind is Kind.MDEV else self.address or ""

    def is_(self, instance: Instance) -> bool:
        """Whether what exists is this one. A VF has one type, so there the parent tells."""
        if self.kind is Kind.VFIO:
            return not instance.uuid and (instance.parent, instance.type) == (self.parent, self.type)
        return instance.uuid == self.uuid


def address_of(name: str) -> str | None:
    """PCI address of the function that a node device's name stands for: pci_0000_3b_00_0 is 0000:3b:00.0. None: not a function."""
    match = _PCI_NAME.fullmatch(name)
    return None if match is None else f"{match[1]}:{match[2]}:{match[3]}.{match[4]}"

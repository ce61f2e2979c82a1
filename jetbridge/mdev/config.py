"""Which vGPU types a host offers and on which of its cards: ``[devices]enabled_mdev_types`` and the ``[mdev_TYPE]`` sections."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jetbridge.errors import InvalidLibvirtMdevConfig
from jetbridge.mdev.values import Parent

DEFAULT_CLASS = "VGPU"
_PCI_ADDRESS = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


@dataclass(frozen=True)
class TypeOptions:
    """What ``[mdev_TYPE]`` says. ``device_addresses`` as written; ``max_instances`` counts over the whole host, None: no limit.
    ``display`` and ``ramfb`` give the guest a display by its vGPU, and one that works before a driver is loaded."""

    device_addresses: tuple[str, ...] = ()
    mdev_class: str = DEFAULT_CLASS
    max_instances: int | None = None
    display: bool = False
    ramfb: bool = False


@dataclass(frozen=True)
class VgpuType:
    """A type that is offered."""

    id: str
    resource_class: str = DEFAULT_CLASS
    max_instances: int | None = None


class HostFacts(Protocol):
    """What only the host knows."""

    def is_virtual_parent(self, name: str) -> bool:
        """Whether ``/sys/devices/virtual`` has it: ``mtty_mtty`` is ``mtty/mtty`` there."""
        ...

    def card_of(self, address: str) -> str:
        """The physical function of a VF; of anything else the address itself."""
        ...


@dataclass(frozen=True)
class VgpuConfig:
    """``types`` by id in the order of the option, without those that nothing can use. ``by_address`` are the addresses listed;
    ``default`` is the type of cards of which nothing is listed."""

    types: Mapping[str, VgpuType] = field(default_factory=dict)
    by_address: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    listed_cards: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    def type_of(self, parent: Parent) -> VgpuType | None:
        """The type that this parent is to carry: that of its own address, of its card's, or the default one."""
        for address in (parent.address, parent.card_address):
            if address in self.by_address:
                return self.types[self.by_address[address]]
        if self.default is None or parent.card_address in self.listed_cards:
            return None
        return self.types[self.default]


def read_config(enabled: Sequence[str], sections: Mapping[str, TypeOptions], facts: HostFacts) -> VgpuConfig:
    """Raises ``InvalidLibvirtMdevConfig`` naming type, address and fix."""
    types: dict[str, VgpuType] = {}
    by_address: dict[str, str] = {}
    default: str | None = None
    warnings: list[str] = []
    for name in dict.fromkeys(enabled):
        options = sections.get(name, TypeOptions())
        if options.ramfb and not options.display:
            raise InvalidLibvirtMdevConfig(reason=f"[mdev_{name}]ramfb = true needs display = true as well")
        if not options.device_addresses and default is not None:
            warnings.append(
                f"type {name} of [devices]enabled_mdev_types is not offered: it has no [mdev_{name}]device_addresses, and"
                f" {default} is the type of all cards that are listed nowhere; list the cards that shall carry {name}"
            )
            continue
        if not options.device_addresses:
            default = name
        for written in options.device_addresses:
            address = _address(name, written, facts)
            if address in by_address:
                raise InvalidLibvirtMdevConfig(
                    reason=f"address {address} is listed twice, in [mdev_{by_address[address]}]device_addresses and in"
                    f" [mdev_{name}]device_addresses: a card carries one type, take it out of one of them"
                )
            by_address[address] = name
        types[name] = VgpuType(name, options.mdev_class, options.max_instances)
    _check_classes(types, by_address, facts)
    for name in sections.keys() - set(enabled):
        warnings.append(f"section [mdev_{name}] has no effect: {name} is not in [devices]enabled_mdev_types")
    cards = frozenset(facts.card_of(address) for address in by_address)
    return VgpuConfig(types, by_address, default, cards, tuple(warnings))


def _address(name: str, written: str, facts: HostFacts) -> str:
    """Canonical. A name of the form of an address needn't exist: cards come and go."""
    if _PCI_ADDRESS.fullmatch(written):
        return written.lower()
    if facts.is_virtual_parent(written):
        return written
    raise InvalidLibvirtMdevConfig(
        reason=f"[mdev_{name}]device_addresses has the incorrect address {written!r}: write a PCI address such as 0000:3b:00.0, or"
        " the name of a virtual parent that exists, such as mtty_mtty"
    )


def _check_classes(types: Mapping[str, VgpuType], by_address: Mapping[str, str], facts: HostFacts) -> None:
    """A card is one provider: what it offers of several types can only be told apart by resource class."""
    seen: dict[tuple[str, str], str] = {}
    for address, name in by_address.items():
        card, resource_class = facts.card_of(address), types[name].resource_class
        other = seen.setdefault((card, resource_class), name)
        if other != name:
            raise InvalidLibvirtMdevConfig(
                reason=f"functions of card {card} are listed for the types {other} and {name}, both of resource class"
                f" {resource_class}, and a request could not tell them apart: give one of them an mdev_class of its own"
            )

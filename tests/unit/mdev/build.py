"""Hosts with vGPUs in short words, as the case files have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetbridge.mdev.capacity import Share, shares
from jetbridge.mdev.config import TypeOptions, VgpuConfig, read_config
from jetbridge.mdev.values import HostVgpus, Instance, Kind, Offer, Parent, State, Vgpu, address_of


@dataclass(frozen=True)
class Facts:
    virtual: frozenset[str] = frozenset()
    cards: Mapping[str, str] = field(default_factory=dict)

    def is_virtual_parent(self, name: str) -> bool:
        return name in self.virtual

    def card_of(self, address: str) -> str:
        return self.cards.get(address, address)


def config_of(case: Mapping[str, Any]) -> VgpuConfig:
    options = {name: dict(values) for name, values in case.get("sections", {}).items()}
    sections = {
        name: TypeOptions(**{**values, "device_addresses": tuple(values.get("device_addresses", ()))})
        for name, values in options.items()
    }
    cards = dict(case.get("vfs", {}))
    cards |= {parent.address: parent.card_address for parent in parents_of(case)}
    return read_config(case["enabled"], sections, Facts(frozenset(case.get("virtual", ())), cards))


def parent(text: str) -> Parent:
    place, *offers = text.split()
    kind = Kind.VFIO if "vfio" in offers else Kind.MDEV
    name, _, card = place.partition("@")
    found = []
    for offer in offers:
        if offer != "vfio":
            type_id, _, numbers = offer.partition("=")
            available, _, limit = numbers.partition("/")
            found.append(Offer(type_id, int(available), limit=int(limit) if limit else None))
    return Parent(
        name, address_of(name) or name, card or name, address_of(card or name) or card or name, kind, tuple(found)
    )


def parents_of(case: Mapping[str, Any]) -> tuple[Parent, ...]:
    found = [parent(text) for text in case.get("parents", ())]
    if card := case.get("vf_card"):
        stem = card["name"][: -len("_00_0")]
        for number in range(1, card["vfs"] + 1):
            found.append(parent(f"{stem}_{number >> 3:02x}_{number & 7}@{card['name']} {card['offer']}"))
    return tuple(found)


def vgpu(text: str) -> Vgpu:
    uuid, place, type_id, *words = text.split()
    name, _, card = place.partition("@")
    states = [State(word) for word in words if word in list(State)]
    servers = [word for word in words if word.startswith("s") and word not in list(State)]
    classes = [word.removeprefix("class=") for word in words if word.startswith("class=")]
    return Vgpu(
        uuid,
        Kind.VFIO if "vfio" in words else Kind.MDEV,
        card or name,
        name,
        type_id,
        classes[0] if classes else "VGPU",
        servers[0] if servers else None,
        states[0] if states else State.READY,
    )


def ours_of(case: Mapping[str, Any]) -> tuple[Vgpu, ...]:
    return tuple(vgpu(text) for text in case.get("ours", ()))


def host_of(case: Mapping[str, Any]) -> HostVgpus:
    instances = []
    for text in case.get("ours", ()):
        one = vgpu(text)
        if "absent" not in text.split():
            uuid = "" if one.kind is Kind.VFIO else one.uuid
            instances.append(Instance(one.parent, one.type, uuid, active="inactive" not in text.split()))
    parents = parents_of(case)
    vendor = {parent.name for parent in parents if parent.kind is Kind.VFIO}
    for number, text in enumerate(case.get("foreign", ())):
        name, type_id, *words = text.split()
        instances.append(
            Instance(name, type_id, "" if name in vendor else f"foreign-{number}", "inactive" not in words)
        )
    return HostVgpus(parents, tuple(instances))


def shares_of(case: Mapping[str, Any]) -> tuple[Share, ...]:
    return shares(config_of(case), host_of(case), ours_of(case), frozenset(case.get("given_elsewhere", ())))


def numbered(prefix: str) -> Sequence[str]:
    return [f"{prefix}-{number}" for number in range(1, 100)]

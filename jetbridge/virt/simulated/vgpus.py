"""What a simulated card still carries of vGPUs. A card is one thing however many VFs it has: when it is full, none of them
has room, and a function that carries one type has no room for another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from jetbridge.model.fleet import VgpuTypeSpec
from jetbridge.pci.device import DeviceType
from jetbridge.virt.nodedev import parse_node_device
from jetbridge.virt.simulated.hardware import Hardware, Part
from jetbridge.virt.simulated.state import Memory
from jetbridge.virt.vgpus import NO_TYPE, type_file


def available_types(hardware: Hardware, memory: Memory) -> Mapping[str, tuple[tuple[str, int], ...]]:
    """By node device name of the parents whose numbers aren't those at boot: pairs of type and number."""
    made: dict[str, Counter[str]] = {}
    for mdev in memory.mdevs.values():
        if mdev.active:
            made.setdefault(mdev.parent, Counter())[mdev.type] += 1
    if not made:
        return {}
    found = {}
    on_cards: dict[str, Counter[str]] = {}
    for part in hardware.parts.values():
        if part.node.name in made:
            on_cards.setdefault(card_of(part), Counter()).update(made[part.node.name])
    for part in hardware.parts.values():
        if part.mdev_types and card_of(part) in on_cards:
            found[part.node.name] = _left(part, made.get(part.node.name, Counter()), on_cards[card_of(part)])
    for name, types in made.items():
        if name not in found:
            found[name] = _left_of_real(hardware, name, types)
    return found


def card_of(part: Part) -> str:
    return part.pci.parent_addr or part.pci.address


def vendor_type(memory: Memory, address: str) -> str:
    """The number of the type that a VF carries; "0": none."""
    return memory.files.get(type_file(address), NO_TYPE).strip()


def creatable(hardware: Hardware, memory: Memory, part: Part) -> tuple[VgpuTypeSpec, ...]:
    """The vendor's types that can be given to a VF now."""
    if part.pci.dev_type is not DeviceType.VF or vendor_type(memory, part.pci.address) != NO_TYPE:
        return ()
    card = card_of(part)
    carried = Counter(
        vendor_type(memory, address)
        for address, other in hardware.parts.items()
        if other.vgpu_types and card_of(other) == card
    )
    return tuple(
        kind for kind in part.vgpu_types if kind.max_instance is None or carried[kind.number] < kind.max_instance
    )


def _left(part: Part, here: Counter[str], on_card: Counter[str]) -> tuple[tuple[str, int], ...]:
    left = []
    for kind in part.mdev_types:
        room = 0 if here.total() > here[kind.id] else max(0, kind.available - here[kind.id])
        if kind.max_instance is not None:
            room = min(room, max(0, kind.max_instance - on_card[kind.id]))
        left.append((kind.id, room))
    return tuple(left)


def _left_of_real(hardware: Hardware, name: str, made: Counter[str]) -> tuple[tuple[str, int], ...]:
    """A parent of which only its document is known: its types are taken for independent of each other."""
    documents = [*hardware.others, *(part.document for part in hardware.parts.values() if part.node.name == name)]
    node = next(node for node in map(parse_node_device, documents) if node.name == name)
    return tuple((kind.id, max(0, kind.available - made[kind.id])) for kind in node.mdev_types)

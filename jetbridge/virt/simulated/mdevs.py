"""The mediated devices of a simulated host: made, started and removed, as libvirt's node device driver does with mdevctl."""

from __future__ import annotations

import uuid as uuids

from jetbridge.virt.nodedev import NodeDevice, parse_node_device
from jetbridge.virt.simulated.documents import mdev_document
from jetbridge.virt.simulated.machine import SimulatedMachine
from jetbridge.virt.simulated.rules import Refused
from jetbridge.virt.simulated.state import MdevRecord, Memory
from jetbridge.virt.xml import child_text, parse_xml

_FIRST_GROUP = 100_000


def new(machine: SimulatedMachine, memory: Memory, xml: str) -> MdevRecord:
    """One that is defined, started, and started again with the host. Raises Refused."""
    try:
        root = parse_xml(xml)
    except ValueError as error:
        raise Refused(f"XML error: (node_device_definition) {error}") from error
    kind = root.find("capability[@type='mdev']/type")
    parent_name, type_id = child_text(root, "parent"), str(kind.get("id", "")) if kind is not None else ""
    parent = _parent_with_room(machine, parent_name or "", type_id)
    text = child_text(root, "capability[@type='mdev']/uuid") or str(uuids.uuid4())
    try:
        uuid = str(uuids.UUID(text))
    except ValueError as error:
        raise Refused(f"XML error: Unable to parse uuid '{text}'") from error
    if uuid in _uuids(machine, memory):
        raise Refused("internal error: Unable to start mediated device: Error: Device already exists")
    memory.last_group += 1
    document = mdev_document(
        uuid, type_id, parent.name, parent.path or "", _address(parent), _FIRST_GROUP + memory.last_group
    )
    return MdevRecord(parse_node_device(document).name, uuid, type_id, parent.name, document)


def start(machine: SimulatedMachine, memory: Memory, name: str) -> None:
    """Raises Refused."""
    record = _record(memory, name)
    if record.active:
        raise Refused("Requested operation is not valid: Device is already active")
    _parent_with_room(machine, record.parent, record.type)
    record.active = True


def stop(memory: Memory, name: str) -> None:
    """Raises Refused when a guest runs with it."""
    record = _record(memory, name)
    _check_unused(memory, record)
    record.active = False


def remove(memory: Memory, name: str) -> bool:
    """One that does not exist: nothing happens, and the answer is False. Raises Refused when a guest runs with it."""
    record = memory.mdevs.get(name)
    if record is None:
        return False
    _check_unused(memory, record)
    del memory.mdevs[name]
    return True


def _check_unused(memory: Memory, record: MdevRecord) -> None:
    if any(domain.running and record.uuid in domain.mdevs for domain in memory.domains.values()):
        raise Refused(f"internal error: Unable to destroy '{record.name}': device in use")


def active_uuids(machine: SimulatedMachine, memory: Memory) -> list[str]:
    return [*_real_uuids(machine), *(mdev.uuid for mdev in memory.mdevs.values() if mdev.active)]


def _uuids(machine: SimulatedMachine, memory: Memory) -> list[str]:
    return [*_real_uuids(machine), *(mdev.uuid for mdev in memory.mdevs.values())]


def _real_uuids(machine: SimulatedMachine) -> list[str]:
    return [node.mdev.uuid for text in machine.hardware.others if (node := parse_node_device(text)).mdev]


def _record(memory: Memory, name: str) -> MdevRecord:
    if name not in memory.mdevs:
        raise Refused(f"Node device not found: no node device with matching name '{name}'")
    return memory.mdevs[name]


def _parent_with_room(machine: SimulatedMachine, name: str, type_id: str) -> NodeDevice:
    nodes = {node.name: node for node in map(parse_node_device, machine.documents())}
    parent = nodes.get(name)
    if parent is None:
        raise Refused(f"unsupported configuration: invalid parent device '{name}'")
    failed, address = "internal error: Unable to start mediated device: Error:", _address(parent)
    if not parent.mdev_types:
        raise Refused(f"{failed} Unable to find parent device '{address}'")
    offered = next((offer for offer in parent.mdev_types if offer.id == type_id), None)
    if offered is None:
        raise Refused(f"{failed} Parent {address} does not support mdev type {type_id}")
    if offered.available < 1:
        raise Refused(f"{failed} No available instances of {type_id} on {address}")
    return parent


def _address(parent: NodeDevice) -> str:
    return parent.pci.address if parent.pci else (parent.path or parent.name).rsplit("/", 1)[-1]

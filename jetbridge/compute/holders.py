"""Who runs with which device, as the hypervisor has it, against who owns it by our tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from jetbridge.compute.host import AgentHost, about
from jetbridge.db import compute_nodes, interfaces, pci_devices
from jetbridge.db.connection import Connection
from jetbridge.errors import DomainNotFound, JetbridgeError
from jetbridge.pci.device import Condition, PciDevice, Status
from jetbridge.pci.port import VnicType
from jetbridge.virt.children import paths_of
from jetbridge.virt.connection import DomainInfo
from jetbridge.virt.guest import hostdevs_of, lent_paths, mdevs_of
from jetbridge.virt.nodedev import parse_node_device

logger = logging.getLogger(__name__)

Holders = Mapping[str, DomainInfo]
"""Address of a function to the running domain that has it, or its network interface or vDPA device; UUID of a mediated device, too."""


def holders_of(host: AgentHost, domains: Iterable[DomainInfo]) -> Holders:
    """Raises ``HypervisorError`` when the hypervisor doesn't answer."""
    held: dict[str, DomainInfo] = {}
    lent: dict[str, DomainInfo] = {}
    for info in domains:
        if info.state not in ("running", "paused"):
            continue
        try:
            xml = host.connection.domain_xml(info.name)
        except DomainNotFound:
            continue
        try:
            held.update(dict.fromkeys((*hostdevs_of(xml), *mdevs_of(xml)), info))
            lent.update(dict.fromkeys(lent_paths(xml), info))
        except JetbridgeError as error:
            logger.warning("Domain %s on host %s can't be read: %s", info.name, host.name, error)
    if lent:
        documents = [parse_node_device(document) for document in host.connection.node_devices()]
        behind = paths_of(documents, host.files)
        held.update({behind[path]: info for path, info in lent.items() if path in behind})
    return held


def note_holders(host: AgentHost, node_id: int, *, starting: bool = False) -> None:
    """Devices that run in a guest which isn't their owner's get the condition ``held``: they are offered to nobody until that guest
    has let go of them, and freed by nobody. ``starting``: say again what was known before."""
    with host.database.read() as conn:
        generation = compute_nodes.get(conn, node_id).generation
        devices = pci_devices.of_host(conn, node_id)
    if not devices:
        return
    domains = host.connection.domains()
    held = holders_of(host, domains)
    marked = marks(devices, held)

    def write(conn: Connection) -> bool:
        # What was read before the hypervisor was asked still counts: no claim and no free came between.
        if compute_nodes.lock(conn, node_id) != generation + 1:
            return False
        pci_devices.save(conn, marked, now=host.now())
        return True

    if marked and not host.database.write(write):
        return  # the next pass looks again
    news = {device.address: device for device in marked}
    for device in devices:
        now = news.get(device.address, device)
        if now.condition is Condition.HELD and (device.address in news or starting):
            _tell_held(host, now, held)
        elif device.address in news:
            logger.info("Device %s of host %s is let go, and can be given again", device.identity, host.name)
    if not marked:
        _tell_missing(host, devices, held, domains)


def marks(devices: Sequence[PciDevice], held: Holders) -> tuple[PciDevice, ...]:
    """The devices whose condition changes. A PF can't be given while a foreign guest runs with one of its VFs, nor the reverse."""
    foreign = {device.address for device in devices if _is_foreign(device, held)}
    cards = {device.parent_addr for device in devices if device.address in foreign and device.parent_addr}
    changed = []
    for device in devices:
        out_of_hand = device.address in foreign | cards or device.parent_addr in foreign
        if out_of_hand and device.condition is Condition.OK:
            changed.append(replace(device, condition=Condition.HELD))
        elif not out_of_hand and device.condition is Condition.HELD:
            changed.append(replace(device, condition=Condition.OK))
    return tuple(changed)


def _is_foreign(device: PciDevice, held: Holders) -> bool:
    holder = held.get(device.address)
    return holder is not None and holder.uuid != device.instance_uuid


def _tell_held(host: AgentHost, device: PciDevice, held: Holders) -> None:
    holder = held.get(device.address)
    owner = f"owned by server {device.instance_uuid}" if device.owned else "owned by nobody"
    runs = f"runs in domain {holder.name} ({holder.uuid})" if holder else "has a relative that runs in a foreign domain"
    logger.error(
        "Device %s of host %s is %s in our tables, but %s: it is given to nobody until that guest has let go of it; if it is"
        " yours, stop it or take the device out of [pci]device_spec",
        device.identity,
        host.name,
        owner,
        runs,
        extra=about(None, device.instance_uuid),
    )


def _tell_missing(host: AgentHost, devices: Sequence[PciDevice], held: Holders, domains: Iterable[DomainInfo]) -> None:
    """A guest of ours that runs without a device it was given: somebody took it out. A VF behind a forwarder never is in the guest."""
    running = {info.uuid: info for info in domains if info.state in ("running", "paused")}
    missing = [
        device
        for device in devices
        if device.status is Status.ALLOCATED and device.instance_uuid in running and device.address not in held
    ]
    if not missing:
        return
    with host.database.read() as conn:
        nics = [nic for of_server in interfaces.of_host(conn, host.name).values() for nic in of_server]
    forwarded = {nic.request_id for nic in nics if nic.vnic_type is VnicType.VIRTIO_FORWARDER}
    for device in missing:
        if device.request_id in forwarded:
            continue
        logger.error(
            "Device %s of host %s is owned by server %s, whose domain %s runs without it: it stays the server's; reboot the server"
            " hard to give it back",
            device.identity,
            host.name,
            device.instance_uuid,
            running[str(device.instance_uuid)].name,
            extra=about(None, device.instance_uuid),
        )

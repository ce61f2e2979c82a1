"""What a host gives to servers: claim, allocate, free. Each is one transaction that begins by locking the host."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.one_time_use import after_claim, after_release
from jetbridge.compute.vgpus import say as say_vgpus
from jetbridge.db import compute_nodes, consumers, pci_devices, request_specs, servers, vgpus
from jetbridge.db.compute_nodes import ComputeNode, Usage
from jetbridge.db.connection import Connection
from jetbridge.db.host_states import host_state
from jetbridge.errors import BuildAborted, ClaimLost, ComputeResourcesUnavailable, HostNotFound, ServerNotFound
from jetbridge.mdev.values import Vgpu
from jetbridge.model.capacity import capacity_refusals
from jetbridge.model.context import RequestContext
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.server import TaskState
from jetbridge.model.verdict import Selection
from jetbridge.numa.fit import ServerFit, fit_server
from jetbridge.numa.topology import GuestTopology, NumaLimits
from jetbridge.pci import device as life
from jetbridge.pci.device import PciDevice
from jetbridge.pci.device_spec import DeviceSpec
from jetbridge.pci.fit import AffinityCells, Refusal, fit, pick_devices
from jetbridge.pci.pool import pools_of
from jetbridge.pci.request import PciRequest
from jetbridge.pci.sync import after_free
from jetbridge.placement.groups import provider_choice

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Claim:
    """What a server was given. ``topology`` is the fitted one."""

    devices: tuple[PciDevice, ...]
    topology: GuestTopology | None
    vgpus: tuple[Vgpu, ...] = ()


@dataclass(frozen=True)
class _Room:
    """A locked host as the claim sees it."""

    node: ComputeNode
    before: int  # the generation before the lock
    usage: Usage
    guests: tuple[GuestTopology, ...]
    devices: tuple[PciDevice, ...]


def claim(
    host: AgentHost,
    context: RequestContext,
    server_uuid: str,
    selection: Selection,
    reserve: Callable[[Connection], tuple[Vgpu, ...]] = lambda conn: (),
) -> Claim:
    """Give the server its devices, CPUs, memory and disk, and place it on the host, all or nothing. ``reserve`` gives it its vGPUs
    inside the same transaction.

    Raises ``ClaimLost`` when it doesn't fit and the host has moved since it was selected, ``ComputeResourcesUnavailable`` when
    it doesn't fit although nothing moved or the host's devices are unknown, ``BuildAborted`` when the server is
    gone, being deleted, or placed already.
    """

    def take(conn: Connection) -> Claim:
        room = _lock(conn, selection.compute_node_id)
        _check_waiting(conn, server_uuid)
        spec = request_specs.get(conn, server_uuid)
        fitted = _fit(room, spec, selection, host.settings.packing_host_numa_cells_allocation_strategy)
        chosen = pick_devices(room.devices, fitted.choice)
        devices = {device.address: device for device in room.devices}
        changed: dict[str, PciDevice] = {}
        for request_id, wanted in chosen.items():
            for device in wanted:
                moved = life.claim(devices, device.address, server_uuid, request_id)
                moved[device.address] = after_claim(moved[device.address])
                devices.update(moved)
                changed.update(moved)
        pci_devices.save(conn, changed.values(), now=host.now())
        reserved = reserve(conn)
        servers.place(conn, server_uuid, room.node.host, room.node.hypervisor_hostname, room.node.id, now=host.now())
        servers.set_numa_topology(conn, server_uuid, fitted.guest)
        mine = tuple(devices[device.address] for wanted in chosen.values() for device in wanted)
        return Claim(mine, fitted.guest, reserved)

    claimed = host.database.write(take)
    _say(host, context, "Claimed", claimed.devices, server_uuid)
    say_vgpus(host, context, "Reserved", claimed.vgpus, server_uuid)
    if claimed.topology is not None:
        for device in claimed.devices:
            if device.numa_node is None:
                logger.warning(
                    "Device %s of host %s has no NUMA node, and server %s has a NUMA topology: they may be far apart",
                    device.address,
                    host.name,
                    server_uuid,
                    extra=about(context, server_uuid),
                )
    return claimed


def allocate(host: AgentHost, context: RequestContext, server_uuid: str, compute_node_id: int) -> tuple[PciDevice, ...]:
    """The guest runs: what it claimed is allocated now. What is allocated already stays so."""

    def settle(conn: Connection) -> tuple[PciDevice, ...]:
        compute_nodes.lock(conn, compute_node_id)
        devices = _by_address(pci_devices.of_host(conn, compute_node_id))
        changed: dict[str, PciDevice] = {}
        mine = [device for device in devices.values() if device.instance_uuid == server_uuid]
        for device in mine:
            if device.status is not life.Status.ALLOCATED:
                moved = life.allocate(devices, device.address, server_uuid)
                devices.update(moved)
                changed.update(moved)
        pci_devices.save(conn, changed.values(), now=host.now())
        return tuple(devices[device.address] for device in mine)

    devices = host.database.write(settle)
    _say(host, context, "Allocated", devices, server_uuid)
    return devices


def release(host: AgentHost, context: RequestContext | None, server_uuid: str, compute_node_id: int) -> None:
    """Undo a claim: the server holds nothing of the host any more and waits for another. Nothing held: nothing happens."""
    specs = host.specs.current()

    def give_back(conn: Connection) -> tuple[PciDevice, ...]:
        compute_nodes.lock(conn, compute_node_id)
        freed = _free_of_server(host, conn, server_uuid, compute_node_id, specs)
        vgpus.release(conn, compute_node_id, server_uuid, now=host.now())
        try:
            server = servers.get(conn, server_uuid)
        except ServerNotFound:
            return freed
        if server.compute_node_id == compute_node_id:
            servers.unplace(conn, server_uuid, now=host.now())
            servers.set_numa_topology(conn, server_uuid, request_specs.get(conn, server_uuid).numa_topology)
        return freed

    try:
        freed = host.database.write(give_back)
    except HostNotFound:
        return  # it left the fleet, which it does only without servers
    _say(host, context, "Freed", freed, server_uuid)


def leave(
    host: AgentHost,
    context: RequestContext | None,
    server_uuid: str,
    compute_node_id: int,
    *,
    deallocated: bool = False,
) -> None:
    """The server's guest is gone: free its devices and delete its row, in one transaction. ``deallocated``: it has no allocation
    in Placement any more."""
    specs = host.specs.current()

    def give_back(conn: Connection) -> tuple[PciDevice, ...]:
        compute_nodes.lock(conn, compute_node_id)
        freed = _free_of_server(host, conn, server_uuid, compute_node_id, specs)
        vgpus.release(conn, compute_node_id, server_uuid, now=host.now())
        servers.soft_delete(conn, server_uuid, now=host.now())
        if deallocated:
            consumers.forget(conn, server_uuid)
        return freed

    _say(host, context, "Freed", host.database.write(give_back), server_uuid)


def claim_more(
    host: AgentHost, context: RequestContext, server_uuid: str, compute_node_id: int, request: PciRequest
) -> PciDevice:
    """Give a server that is on the host already one device more, near to where its guest lies. Raises
    ``ComputeResourcesUnavailable`` when there is none, or the host's devices are unknown."""

    def take(conn: Connection) -> PciDevice:
        room = _lock(conn, compute_node_id)
        _check_known(room)
        cells = _cells_of(room, servers.numa_topology(conn, server_uuid))
        choice = fit(pools_of(room.devices), (request,), cells)
        if isinstance(choice, Refusal):
            text = "; ".join(reason.text for reason in choice.reasons)
            raise ComputeResourcesUnavailable(reason=f"on host {room.node.host}: {text}")
        (device,) = pick_devices(room.devices, choice)[request.request_id]
        moved = life.claim(_by_address(room.devices), device.address, server_uuid, request.request_id)
        pci_devices.save(conn, moved.values(), now=host.now())
        return moved[device.address]

    claimed = host.database.write(take)
    _say(host, context, "Claimed", (claimed,), server_uuid)
    return claimed


def free_request(
    host: AgentHost, context: RequestContext | None, server_uuid: str, node_id: int, request_id: str
) -> None:
    """The server gives back what it has for one request, and doesn't have the request any more. Again: nothing happens."""
    specs = host.specs.current()

    def give_back(conn: Connection) -> tuple[PciDevice, ...]:
        compute_nodes.lock(conn, node_id)
        devices = _by_address(pci_devices.of_host(conn, node_id))
        mine = [
            device
            for device in devices.values()
            if device.owned and (device.instance_uuid, device.request_id) == (server_uuid, request_id)
        ]
        _free(host, conn, devices, mine, specs)
        spec = request_specs.get(conn, server_uuid)
        rest = tuple(request for request in spec.pci_requests if request.request_id != request_id)
        if rest != spec.pci_requests:
            set_requests(conn, spec, rest)
        return tuple(mine)

    _say(host, context, "Freed", host.database.write(give_back), server_uuid)


def set_requests(conn: Connection, spec: RequestSpec, requests: tuple[PciRequest, ...]) -> None:
    """What the server asks for from now on, wherever it stands."""
    request_specs.save(conn, replace(spec, pci_requests=requests))
    servers.set_pci_requests(conn, spec.instance_uuid, requests)


def free_strays(host: AgentHost, compute_node_id: int, strays: Iterable[PciDevice]) -> tuple[PciDevice, ...]:
    """Free devices whose owner has no right to them, except those that changed hands since they were seen."""
    specs = host.specs.current()
    seen = {device.address: device for device in strays}

    def give_back(conn: Connection) -> tuple[PciDevice, ...]:
        compute_nodes.lock(conn, compute_node_id)
        devices = _by_address(pci_devices.of_host(conn, compute_node_id))
        still = [
            device
            for address, before in seen.items()
            if (device := devices.get(address)) is not None
            and device.owned
            and (device.instance_uuid, device.status, device.request_id)
            == (before.instance_uuid, before.status, before.request_id)
        ]
        _free(host, conn, devices, still, specs)
        return tuple(still)

    freed = host.database.write(give_back)
    for device in freed:
        _say(host, None, "Freed", (device,), str(device.instance_uuid))
    return freed


def _lock(conn: Connection, compute_node_id: int) -> _Room:
    generation = compute_nodes.lock(conn, compute_node_id)
    node = compute_nodes.get(conn, compute_node_id)
    return _Room(
        node=node,
        before=generation - 1,
        usage=compute_nodes.usage(conn, [node.id]).get(node.id, Usage()),
        guests=compute_nodes.guest_topologies(conn, [node.id]).get(node.id, ()),
        devices=tuple(pci_devices.of_host(conn, node.id)),
    )


def _check_waiting(conn: Connection, server_uuid: str) -> None:
    try:
        server = servers.get(conn, server_uuid)
    except ServerNotFound:
        raise BuildAborted(server=server_uuid, reason="it was deleted") from None
    if server.task_state is TaskState.DELETING:
        raise BuildAborted(server=server_uuid, reason="it is being deleted")
    if server.compute_node_id is not None:
        raise BuildAborted(server=server_uuid, reason=f"it is on host {server.host} already")


def _check_known(room: _Room) -> None:
    if room.node.probe_error is not None:
        raise ComputeResourcesUnavailable(
            reason=f"the devices of host {room.node.host} are unknown, discovery failed: {room.node.probe_error}"
        )


def _cells_of(room: _Room, topology: GuestTopology | None) -> AffinityCells | None:
    """Where a placed guest lies; None: it has no topology."""
    if topology is None or room.node.numa is None:
        return None
    chosen = frozenset(cell.host_cell for cell in topology.cells if cell.host_cell is not None)
    return AffinityCells(chosen, {cell.id: cell.socket for cell in room.node.numa.cells})


def _fit(room: _Room, spec: RequestSpec, selection: Selection, packing: bool) -> ServerFit:
    """Fit again, with the functions the scheduler used, on what is true now."""
    node = room.node
    if spec.pci_requests:
        _check_known(room)
    state = host_state(node, room.usage, room.guests, frozenset(), pools_of(room.devices))
    fitted = fit_server(
        state.numa,
        spec.numa_topology,
        state.pools or (),
        spec.pci_requests,
        provider_choice(spec.pci_requests, spec.groups, selection.providers),
        NumaLimits(node.cpu_allocation_ratio, node.ram_allocation_ratio),
        packing,
    )
    reasons = capacity_refusals(state, spec.flavor, spec.numa_topology)
    if isinstance(fitted, Refusal):
        reasons += fitted.reasons
    elif not reasons:
        return fitted
    text = f"on host {node.host}: " + "; ".join(reason.text for reason in reasons)
    if room.before != selection.generation:
        raise ClaimLost(reason=text)
    raise ComputeResourcesUnavailable(reason=text)


def _free_of_server(
    host: AgentHost, conn: Connection, server_uuid: str, compute_node_id: int, specs: Sequence[DeviceSpec]
) -> tuple[PciDevice, ...]:
    devices = _by_address(pci_devices.of_host(conn, compute_node_id))
    mine = [device for device in devices.values() if device.instance_uuid == server_uuid and device.owned]
    _free(host, conn, devices, mine, specs)
    return tuple(mine)


def _free(
    host: AgentHost,
    conn: Connection,
    devices: Mapping[str, PciDevice],
    owned: Sequence[PciDevice],
    specs: Sequence[DeviceSpec],
) -> None:
    """Free ``owned`` out of the host's ``devices``, and apply what the host reported of them meanwhile. The host is locked."""
    current = dict(devices)
    for device in owned:
        current.update(life.free(current, device.address, device.instance_uuid))
    current.update(after_free(current, [device.address for device in owned], specs))
    for device in owned:
        current[device.address] = after_release(
            current[device.address],
            cleaner=host.settings.pci_cleaner is not None,
            in_placement=host.settings.pci_in_placement,
            server=device.instance_uuid,
        )
    changed = [device for address, device in current.items() if device != devices[address]]
    pci_devices.save(conn, changed, now=host.now())


def _by_address(devices: Iterable[PciDevice]) -> dict[str, PciDevice]:
    return {device.address: device for device in devices}


def _say(
    host: AgentHost, context: RequestContext | None, what: str, devices: Sequence[PciDevice], server_uuid: str
) -> None:
    """One line per claim, allocate and free, for people who grep."""
    if devices:
        logger.info(
            "%s %s on host %s for server %s",
            what,
            ", ".join(device.identity for device in devices),
            host.name,
            server_uuid,
            extra=about(context, server_uuid),
        )

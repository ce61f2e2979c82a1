"""A NIC put into a server that exists, and taken out: the steps, their undo, and what is left to do after a crash.

The NIC's row is the record: it says ``attach`` or ``detach`` until the last step, so that whoever finds it so can take the NIC out by
the same three actions, each of which may find its work done already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from jetbridge.compute import nics, tracker
from jetbridge.compute.host import AgentHost, about
from jetbridge.db import builds, compute_nodes, interfaces, pci_devices, request_specs, servers
from jetbridge.db.connection import Connection
from jetbridge.errors import (
    AttachInterfaceNotSupported,
    ComputeResourcesUnavailable,
    DomainNotFound,
    ForbiddenPortsWithAccelerator,
    InterfaceAttachFailed,
    InterfaceAttachPciClaimFailed,
    JetbridgeError,
    NotFound,
    PciDeviceDetachFailed,
    ServerInvalidState,
    in_words,
)
from jetbridge.model.context import RequestContext
from jetbridge.model.server import NetworkRequest, Server, VmState
from jetbridge.network.embedded import mac_address
from jetbridge.network.nics import Chosen, Wish, check_mac, choose, nic_of, request_of
from jetbridge.pci import device as life
from jetbridge.pci.device import PciDevice
from jetbridge.pci.flavor import flavor_policy
from jetbridge.pci.port import ACCELERATOR_VNICS, VnicType
from jetbridge.pci.request import PciRequest
from jetbridge.steps.runtime import Step, StepFailed, run_steps
from jetbridge.virt.guest import GuestNic, attached_xml, nic_xml

logger = logging.getLogger(__name__)

ATTACH_EVENT = "compute_attach_interface"
DETACH_EVENT = "compute_detach_interface"

UNPLUG_SECONDS = 20.0
"""How long a guest may take to let go of a device."""

_LOOK_AGAIN = 0.2  # libvirt tells by no event that we get


@dataclass(frozen=True)
class NicContext:
    """What the steps know. After a crash it is made again from the NIC's row alone."""

    host: AgentHost
    context: RequestContext | None
    server: Server
    nic: NetworkRequest
    request: PciRequest | None = None
    guest_nic: GuestNic | None = None

    @property
    def node_id(self) -> int:
        assert self.server.compute_node_id is not None
        return self.server.compute_node_id


# --- the three ways out, each for an attach that failed, a detach, and a crash in either ---


def _unplug(work: NicContext) -> None:
    """The guest doesn't have the NIC afterwards. Raises ``PciDeviceDetachFailed`` where it doesn't let go in time."""
    deadline = time.monotonic() + UNPLUG_SECONDS
    _take_out(work)
    while _element(work) is not None:
        if time.monotonic() > deadline:
            raise PciDeviceDetachFailed(
                device=f"{work.nic.vnic_type} NIC {work.nic.mac}",
                reason=f"the guest did not let go of it in {UNPLUG_SECONDS:g} s",
            )
        time.sleep(_LOOK_AGAIN)
    _take_out(work, defined=True)  # only now: a guest that keeps the NIC finds it again when it starts anew


def _take_out(work: NicContext, *, defined: bool = False) -> None:
    """Of the guest, or of its definition; a NIC that isn't there: nothing happens."""
    host, name, element = work.host, work.server.domain_name, _element(work, defined=defined)
    if element is not None:
        with host.library(work.context, "detach_device", work.server.uuid, domain=name):
            host.connection.detach_device(name, element, defined=defined)


def _release(work: NicContext) -> None:
    _check_unplugged(work)
    row = _row(work)
    if row is not None:
        nics.release_ports(work.host, work.context, work.server.uuid, [row])


def _forget(work: NicContext) -> None:
    """Device, request and row of the NIC go."""
    _check_unplugged(work)
    if work.nic.request_id is not None:
        tracker.free_request(work.host, work.context, work.server.uuid, work.node_id, work.nic.request_id)
    work.host.database.write(lambda conn: interfaces.delete(conn, work.nic.id))


def _step(name: str, action: Callable[[NicContext], None]) -> Step[NicContext]:
    def do(work: NicContext) -> NicContext:
        action(work)
        return work

    return Step(name, do)


DETACH_STEPS = (_step("unplug", _unplug), _step("ports", _release), _step("free", _forget))


# --- the way in ---


def _claim(work: NicContext) -> NicContext:
    if work.request is not None:
        assert work.context is not None
        tracker.claim_more(work.host, work.context, work.server.uuid, work.node_id, work.request)
    return work


def _bind(work: NicContext) -> NicContext:
    device = _device(work)
    function = nics.function_of(work.host, work.nic, device) if device else None
    bound = nics.bind_port(work.host, work.context, work.server, work.nic, function)
    row = _row(work)
    assert row is not None
    return replace(work, nic=row, guest_nic=bound)


def _plug(work: NicContext) -> NicContext:
    assert work.guest_nic is not None
    host, name = work.host, work.server.domain_name
    with host.database.read() as conn:
        properties = request_specs.get(conn, work.server.uuid).image_properties
    xml = nic_xml(work.guest_nic, properties.get("hw_vif_model", "virtio"))
    with host.library(work.context, "attach_device", work.server.uuid, domain=name):
        host.connection.attach_device(name, xml)
    return work


def _keep(work: NicContext) -> NicContext:
    """The device is allocated, the request the server's, the NIC one of its NICs."""
    host, uuid, request = work.host, work.server.uuid, work.request

    def write(conn: Connection) -> None:
        compute_nodes.lock(conn, work.node_id)
        if request is not None:
            devices = {device.address: device for device in pci_devices.of_host(conn, work.node_id)}
            device = next(each for each in devices.values() if each.request_id == request.request_id)
            pci_devices.save(conn, life.allocate(devices, device.address, uuid).values(), now=host.now())
            spec = request_specs.get(conn, uuid)
            tracker.set_requests(conn, spec, (*spec.pci_requests, request))
        interfaces.update(conn, work.nic.id, task=None, now=host.now())

    host.database.write(write)
    return work


ATTACH_STEPS: tuple[Step[NicContext], ...] = (
    Step("claim", _claim, _forget),
    Step("ports", _bind, _release),
    Step("plug", _plug, _unplug),
    Step("keep", _keep),
)


def attach_interface(host: AgentHost, context: RequestContext, server: Server, wish: Wish | None) -> NetworkRequest:
    """Put a NIC into the server; ``wish`` None: on the one network there is. Answers when it is in, with full undo otherwise. The server's lock is
    held by the caller.

    Raises ``InterfaceAttachPciClaimFailed``, ``InterfaceAttachFailed``, ``AttachInterfaceNotSupported``, ``ForbiddenPortsWithAccelerator``,
    ``ServerInvalidState``, ``Invalid``, and what ``choose`` raises.
    """
    (chosen,) = choose(host.ports, context, "auto" if wish is None else [wish])
    if chosen.vnic_type is VnicType.VIRTIO_FORWARDER:
        raise AttachInterfaceNotSupported(
            server=server.uuid,
            reason="a running guest can't begin to share its memory with the forwarder; create the server with the port",
        )
    if chosen.port is not None and chosen.vnic_type in ACCELERATOR_VNICS:
        raise ForbiddenPortsWithAccelerator(
            action="attach_interface", server=server.uuid, port=chosen.port.id, fix="create the server with the port"
        )
    nic, request, build = _note_attach(host, server, chosen)
    start = NicContext(host, context, server, nic, request)
    try:
        run_steps(
            ATTACH_STEPS,
            start,
            record=lambda step: _record(host, build, step),
            recorded=ATTACH_STEPS[0].name,
            observe=host.observe,
        )
    except StepFailed as failed:
        reason = str(failed)
        host.database.write(lambda conn: builds.fail(conn, build, reason, now=host.now()))
        raise _as_asked(server, failed) from failed
    host.database.write(lambda conn: builds.finish(conn, build, now=host.now()))
    row = _row(start)
    assert row is not None
    logger.info(
        "Port %s is in server %s on host %s", row.port_id, server.uuid, host.name, extra=about(context, server.uuid)
    )
    return row


def detach_interface(host: AgentHost, context: RequestContext, server: Server, port_id: str) -> None:
    """Take a NIC out of the server. A guest that doesn't let go keeps it. The server's lock is held by the caller."""
    nic, build = _note_detach(host, server, port_id)
    work = NicContext(host, context, server, nic)
    try:
        run_steps(
            DETACH_STEPS,
            work,
            record=lambda step: _record(host, build, step),
            recorded=DETACH_STEPS[0].name,
            observe=host.observe,
        )
    except StepFailed as failed:
        reason, stays = str(failed), failed.step == DETACH_STEPS[0].name

        def fail(conn: Connection) -> None:
            builds.fail(conn, build, reason, now=host.now())
            if stays:
                interfaces.update(conn, nic.id, task=None, now=host.now())

        host.database.write(fail)
        raise failed.cause from failed
    host.database.write(lambda conn: builds.finish(conn, build, now=host.now()))
    logger.info(
        "Port %s is out of server %s on host %s", port_id, server.uuid, host.name, extra=about(context, server.uuid)
    )


def take_out_lost(host: AgentHost, server: Server) -> bool:
    """Finish what processes that are gone left of NICs being put in or taken out: they are out afterwards. Answers whether there was
    any. The server's lock is held by the caller."""
    with host.database.read() as conn:
        lost = [nic for nic in interfaces.of_server(conn, server.uuid) if nic.task is not None]
    for nic in lost:
        logger.warning(
            "The %s of NIC %s (port %s) of server %s was lost: it is taken out",
            nic.task,
            nic.mac,
            nic.port_id,
            server.uuid,
            extra=about(None, server.uuid),
        )
        work = NicContext(host, None, server, nic)
        for step in DETACH_STEPS:
            step.do(work)
    return bool(lost)


def _note_attach(host: AgentHost, server: Server, chosen: Chosen) -> tuple[NetworkRequest, PciRequest | None, int]:
    def write(conn: Connection) -> tuple[NetworkRequest, PciRequest | None, int]:
        _check_idle(conn, server, "attach_interface")
        if chosen.port is not None:
            check_mac(chosen.port, {nic.mac: nic.port_id for nic in interfaces.of_server(conn, server.uuid)})
        spec = request_specs.get(conn, server.uuid)
        policy = flavor_policy(spec.flavor.extra_specs, spec.image_properties)
        request = request_of(chosen, policy, host.new_id)
        nic = replace(nic_of(chosen, mac_address(f"{server.uuid}-{host.new_id()}"), request), task="attach")
        (noted,) = interfaces.add(conn, server.uuid, [nic], now=host.now())
        build = builds.start(
            conn, server.uuid, host.owner, kind="attach", host=host.name, step=ATTACH_STEPS[0].name, now=host.now()
        )
        return noted, request, build.id

    return host.database.write(write)


def _note_detach(host: AgentHost, server: Server, port_id: str) -> tuple[NetworkRequest, int]:
    def write(conn: Connection) -> tuple[NetworkRequest, int]:
        _check_idle(conn, server, "detach_interface")
        nic = next((nic for nic in interfaces.of_server(conn, server.uuid) if nic.port_id == port_id), None)
        if nic is None or nic.task is not None:
            raise NotFound(f"Port {port_id} is not a port of server {server.uuid}.")
        interfaces.update(conn, nic.id, task="detach", now=host.now())
        build = builds.start(
            conn, server.uuid, host.owner, kind="detach", host=host.name, step=DETACH_STEPS[0].name, now=host.now()
        )
        return nic, build.id

    return host.database.write(write)


def _check_idle(conn: Connection, server: Server, action: str) -> None:
    now = servers.get(conn, server.uuid)
    if now.task_state is not None:
        raise ServerInvalidState(action=action, server=server.uuid, attr="task_state", state=str(now.task_state))
    if now.vm_state not in (VmState.ACTIVE, VmState.STOPPED) or now.compute_node_id != server.compute_node_id:
        raise ServerInvalidState(action=action, server=server.uuid, attr="vm_state", state=str(now.vm_state))


def _record(host: AgentHost, build_id: int, step: str) -> None:
    host.database.write(lambda conn: builds.set_step(conn, build_id, step, now=host.now()))


def _as_asked(server: Server, failed: StepFailed) -> JetbridgeError:
    """The error for the caller, who waits for it."""
    cause = failed.cause
    reason = in_words(cause)
    if isinstance(cause, ComputeResourcesUnavailable):
        return InterfaceAttachPciClaimFailed(server=server.uuid, reason=str(cause.facts.get("reason", reason)))
    if isinstance(cause, JetbridgeError) and cause.http_status < 500:
        return cause
    return InterfaceAttachFailed(server=server.uuid, reason=reason)


def _device(work: NicContext) -> PciDevice | None:
    if work.nic.request_id is None:
        return None
    with work.host.database.read() as conn:
        devices = pci_devices.of_instance(conn, work.server.uuid)
    return next((device for device in devices if device.request_id == work.nic.request_id), None)


def _row(work: NicContext) -> NetworkRequest | None:
    """The NIC as it stands in the table now."""
    with work.host.database.read() as conn:
        return next((nic for nic in interfaces.of_server(conn, work.server.uuid) if nic.id == work.nic.id), None)


def _element(work: NicContext, *, defined: bool = False) -> str | None:
    """The NIC in the domain's XML, or in its definition; None: it isn't there."""
    row, device = _row(work) or work.nic, _device(work)
    try:
        xml = work.host.connection.domain_xml(work.server.domain_name, defined=defined)
    except DomainNotFound:
        return None
    return attached_xml(xml, row.mac, device.address if device else None)


def _check_unplugged(work: NicContext) -> None:
    """What a guest still has is not given to others."""
    if _element(work) is not None or _element(work, defined=True) is not None:
        raise PciDeviceDetachFailed(device=f"{work.nic.vnic_type} NIC {work.nic.mac}", reason="the guest still has it")

"""The vGPUs of servers: reserved in the claim, made before the guest is defined, made again when they got lost, and let go.

Everything is written down before it is done, under a UUID of our choice: so whatever exists under it is ours, whenever a process
died. What isn't written down is somebody else's, and never touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.vgpu_cards import current_shares, look, provider_name
from jetbridge.db import compute_nodes, providers, request_specs, vgpus
from jetbridge.db.connection import Connection
from jetbridge.errors import ComputeResourcesUnavailable, HypervisorError, InvalidLibvirtMdevConfig
from jetbridge.mdev.choice import Wanted, choose
from jetbridge.mdev.config import DEFAULT_CLASS
from jetbridge.mdev.values import HostVgpus, Instance, Kind, State, Vgpu
from jetbridge.model.context import RequestContext
from jetbridge.model.request_group import RequestGroup
from jetbridge.model.verdict import Selection
from jetbridge.placement.groups import flavor_groups
from jetbridge.virt.guest import GuestVgpu
from jetbridge.virt.node_xml import mdev_xml
from jetbridge.virt.vgpus import NO_TYPE, current_type, type_file, vendor_number

logger = logging.getLogger(__name__)

ALIVE = (State.RESERVED, State.READY)


Reservation = Callable[[Connection], tuple[Vgpu, ...]]


def reservation(host: AgentHost, context: RequestContext, server_uuid: str, selection: Selection) -> Reservation:
    """What the claim has to do inside its transaction, for vGPUs that Placement has given to the server. Raises ``ProbeFailed``, and
    the errors of Placement."""
    return reserving(
        host, context, server_uuid, selection.compute_node_id, _wanted(host, context, server_uuid, selection)
    )


def reserving(
    host: AgentHost, context: RequestContext, server_uuid: str, node_id: int, wanted: Sequence[Wanted]
) -> Reservation:
    """The host is asked now; the tables are inside the transaction, so that no two servers get the same. Raises ``ProbeFailed``; the
    reservation itself raises ``ComputeResourcesUnavailable``."""
    if not wanted:
        return lambda conn: ()
    seen = look(host, context, server_uuid)

    def reserve(conn: Connection) -> tuple[Vgpu, ...]:
        chosen: list[Vgpu] = []
        for one in wanted:
            found = current_shares(host, conn, node_id, seen)
            mine = choose(one, found, vgpus.of_node(conn, node_id), server_uuid, host.new_id)
            vgpus.save(conn, node_id, mine, now=host.now())
            chosen += mine
        return tuple(chosen)

    return reserve


def _wanted(host: AgentHost, context: RequestContext, server_uuid: str, selection: Selection) -> tuple[Wanted, ...]:
    """The server's allocation of cards of this host, by card and class. Raises ``ComputeResourcesUnavailable`` when something that is
    no card is to serve a vGPU: its guest would run without one."""
    chosen = {uuid for uuids in selection.providers.values() for uuid in uuids}
    if not chosen or host.placement is None:
        return ()
    with host.database.read() as conn:
        node = compute_nodes.get(conn, selection.compute_node_id)
        known = providers.of_node(conn, node.id)
        asked = _asked(host, flavor_groups(request_specs.get(conn, server_uuid).flavor.extra_specs), selection)
    cards = {record.uuid: record.name for record in known if record.kind == providers.VGPU_CARD}
    strange = {uuid: classes for uuid, classes in asked.items() if uuid not in cards}
    if not strange and not chosen & cards.keys():
        return ()
    held = host.placement.by(host.source, context, server_uuid).allocations(server_uuid).by_provider
    for uuid, classes in strange.items():
        if given := sorted(classes & held.get(uuid, {}).keys()):
            name = next((record.name for record in known if record.uuid == uuid), uuid)
            raise ComputeResourcesUnavailable(
                reason=f"Placement gave {', '.join(given)} of provider {name}, which is no card of host {host.name} that carries vGPUs: take"
                " that inventory away (`openstack resource provider inventory delete`)"
            )
    prefix = provider_name(node, "")
    return tuple(
        Wanted(cards[uuid].removeprefix(prefix), name, amount)
        for uuid, resources in held.items()
        if uuid in cards
        for name, amount in sorted(resources.items())
        if amount > 0
    )


def _asked(host: AgentHost, groups: Iterable[RequestGroup], selection: Selection) -> dict[str, frozenset[str]]:
    """The classes of vGPUs that the flavor asks for, by the provider that was chosen for them."""
    options = host.settings.mdev_types
    kinds = {DEFAULT_CLASS, *(options[name].mdev_class for name in host.settings.enabled_mdev_types if name in options)}
    asked: dict[str, frozenset[str]] = {}
    for group in groups:
        for uuid in selection.providers.get(group.requester_id, ()):
            if classes := kinds & group.resources.keys():
                asked[uuid] = asked.get(uuid, frozenset()) | classes
    return asked


def make(host: AgentHost, context: RequestContext | None, server_uuid: str) -> tuple[Vgpu, ...]:
    """The server's vGPUs exist from now on, whether they never did or got lost, and are answered in the guest's order.

    Raises ``ProbeFailed`` and ``HypervisorError``; ``InvalidLibvirtMdevConfig`` when several things have the UUID of one.
    """
    with host.database.read() as conn:
        mine = vgpus.of_server(conn, server_uuid)
    if mine:
        seen = look(host, context, server_uuid)
        for vgpu in mine:
            _make(host, context, seen, vgpu)
        _note(host, mine, State.READY, before=ALIVE)
    return mine


def unmake(host: AgentHost, context: RequestContext | None, server_uuid: str) -> None:
    """Take the vendor's types from the server's VFs, whose guest is gone. Mediated devices stay for the next server."""
    with host.database.read() as conn:
        mine = [vgpu for vgpu in vgpus.of_server(conn, server_uuid) if vgpu.kind is Kind.VFIO]
    for vgpu in mine:
        _clear(host, context, vgpu)
    _note(host, mine, State.REMOVED, before=tuple(State))


def let_go(host: AgentHost, context: RequestContext | None, server_uuid: str, node_id: int) -> None:
    """The server, whose guest is gone, has no vGPUs any more. Before its allocation in Placement goes: whoever finds room there
    finds some here."""
    unmake(host, context, server_uuid)

    def release(conn: Connection) -> tuple[Vgpu, ...]:
        if not vgpus.of_server(conn, server_uuid):
            return ()
        compute_nodes.lock(conn, node_id)
        return vgpus.release(conn, node_id, server_uuid, now=host.now())

    say(host, context, "Freed", host.database.write(release), server_uuid)


def guest_vgpus(host: AgentHost, server_uuid: str) -> tuple[GuestVgpu, ...]:
    """As the guest's document names them."""
    with host.database.read() as conn:
        mine = vgpus.of_server(conn, server_uuid)
    options = host.settings.mdev_types
    return tuple(
        GuestVgpu(address=vgpu.address)
        if vgpu.kind is Kind.VFIO
        else GuestVgpu(
            uuid=vgpu.uuid,
            display=vgpu.type in options and options[vgpu.type].display,
            ramfb=vgpu.type in options and options[vgpu.type].ramfb,
        )
        for vgpu in mine
    )


def say(host: AgentHost, context: RequestContext | None, what: str, mine: Sequence[Vgpu], server: str) -> None:
    if mine:
        names = ", ".join(f"{vgpu.type} {vgpu.uuid} on {vgpu.parent}" for vgpu in mine)
        logger.info("%s %s of host %s for server %s", what, names, host.name, server, extra=about(context, server))


# --- one vGPU ---


def instance_of(host: AgentHost, seen: HostVgpus, vgpu: Vgpu) -> Instance | None:
    """Raises ``InvalidLibvirtMdevConfig`` when the UUID is there more than once."""
    found = [instance for instance in seen.instances if vgpu.is_(instance)]
    if len(found) > 1:
        places = ", ".join(instance.node_name for instance in found)
        raise InvalidLibvirtMdevConfig(
            reason=f"host {host.name} has mediated device {vgpu.uuid} several times ({places}), and UUIDs must be unique: undefine the wrong"
            " ones with `virsh nodedev-undefine`"
        )
    return found[0] if found else None


def _make(host: AgentHost, context: RequestContext | None, seen: HostVgpus, vgpu: Vgpu) -> None:
    if vgpu.kind is Kind.VFIO:
        _set_type(host, context, vgpu)
        return
    instance = instance_of(host, seen, vgpu)
    if instance is None:
        with host.library(context, "create_mdev", vgpu.server, parent=vgpu.parent, type=vgpu.type, uuid=vgpu.uuid):
            host.connection.create_mdev(mdev_xml(vgpu.uuid, vgpu.parent, vgpu.type))
        logger.info("Made mediated device %s (%s) on %s of host %s", vgpu.uuid, vgpu.type, vgpu.parent, host.name)
    elif not instance.active:
        with host.library(context, "start_mdev", vgpu.server, device=instance.node_name):
            host.connection.start_mdev(instance.node_name)
        logger.info("Started mediated device %s on %s of host %s again", vgpu.uuid, vgpu.parent, host.name)


def _set_type(host: AgentHost, context: RequestContext | None, vgpu: Vgpu) -> None:
    address = _vf(host, vgpu)
    carried = current_type(address, host.files)
    if carried == vgpu.type:
        return
    if carried is not None:
        raise HypervisorError(
            operation=f"giving type {vgpu.type} to {address}",
            host=host.name,
            reason=f"it carries {carried}, which somebody else gave it: take it away with `echo 0 >{type_file(address)}`",
        )
    with host.library(context, "set_vgpu_type", vgpu.server, device=address, type=vgpu.type):
        host.files.write_text(type_file(address), vendor_number(vgpu.type))
    logger.info("Gave type %s to %s of host %s", vgpu.type, address, host.name)


def _clear(host: AgentHost, context: RequestContext | None, vgpu: Vgpu) -> None:
    """Only what carries our type: a VF that was given another one meanwhile is somebody else's."""
    address = _vf(host, vgpu)
    if current_type(address, host.files) == vgpu.type:
        with host.library(context, "clear_vgpu_type", vgpu.server, device=address):
            host.files.write_text(type_file(address), NO_TYPE)
        logger.info("Took type %s from %s of host %s", vgpu.type, address, host.name)


def _vf(host: AgentHost, vgpu: Vgpu) -> str:
    if vgpu.address is None:
        raise HypervisorError(
            operation=f"finding {vgpu.parent}", host=host.name, reason="its name is not that of a PCI function"
        )
    return vgpu.address


def _note(host: AgentHost, mine: Iterable[Vgpu], state: State, *, before: Sequence[State]) -> None:
    changed = [vgpu.uuid for vgpu in mine if vgpu.state is not state]
    if changed:
        host.database.write(lambda conn: vgpus.set_state(conn, changed, state, before=before, now=host.now()))


def take_down(host: AgentHost, seen: HostVgpus, vgpu: Vgpu) -> None:
    """One of ours that nobody has and nobody is to have."""
    if vgpu.kind is Kind.VFIO:
        _clear(host, None, vgpu)
        return
    instance = instance_of(host, seen, vgpu)
    if instance is not None:
        with host.library(None, "destroy_mdev", device=instance.node_name):
            host.connection.destroy_mdev(instance.node_name)
        logger.info("Removed mediated device %s (%s) on %s of host %s", vgpu.uuid, vgpu.type, vgpu.parent, host.name)

"""From the body of ``POST /servers`` to rows: everything that can be refused is refused here, before anything is kept.

Device requests are made once: the same ids stand in the request spec, on the instance and on the devices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from jetbridge.api.call import Call
from jetbridge.api.extra_specs import warn_of_misspelt
from jetbridge.api.flavors import visible
from jetbridge.api.server_profiles import port_groups, port_profiles, profile_groups
from jetbridge.api.server_requests import (
    CreateServer,
    NetworkItem,
    NewServer,
    check_new_server,
    counts,
    image_id,
)
from jetbridge.api.server_views import ZONE
from jetbridge.db import actions, compute_nodes, keypairs, request_specs, servers
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.errors import HostNotFound, Invalid, NotFound
from jetbridge.image.access import require_use
from jetbridge.model.flavor import Flavor
from jetbridge.model.image import Image, ImageStatus
from jetbridge.model.request_group import RequestGroup
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.server import PowerState, Server, TaskState, VmState
from jetbridge.network.embedded import mac_address
from jetbridge.network.nics import Chosen, Requested, Wish, choose, nic_of, request_of
from jetbridge.numa.request import guest_topology
from jetbridge.numa.topology import GuestTopology
from jetbridge.pci.flavor import flavor_policy, requests_from_flavor
from jetbridge.pci.port import VnicType
from jetbridge.pci.request import PciRequest
from jetbridge.placement.groups import flavor_groups, pci_groups

GIB = 1024**3


@dataclass(frozen=True)
class Placement:
    """Where the caller wants the server: a zone, one host, both or neither."""

    zone: str | None = None
    host: str | None = None


@dataclass(frozen=True)
class Plan:
    """What every server of one request shares."""

    new: NewServer
    flavor: Flavor
    image: Image
    nics: tuple[Chosen, ...]
    placement: Placement
    keypair: dict[str, str] | None
    topology: GuestTopology | None
    hints: dict[str, tuple[str, ...]]
    groups: tuple[RequestGroup, ...]
    reservation_id: str
    now: datetime


def plan(call: Call, body: CreateServer) -> Plan:
    """Raises ``Invalid``, ``NotFound``, ``Forbidden``: nothing has been changed then."""
    new = body.server
    check_new_server(new, call.version)
    hints = body.scheduler_hints()
    placement = _placement(call, new)
    image = _image(call, image_id(new))
    flavor = _flavor(call, new.flavorRef)
    check_size(flavor, image)
    nics = _nics(call, new)
    return Plan(
        new=new,
        flavor=flavor,
        image=image,
        nics=nics,
        placement=placement,
        keypair=_keypair(call, new.key_name),
        topology=guest_topology(flavor.vcpus, flavor.memory_mb, flavor.extra_specs, image.properties),
        hints=hints,
        groups=(*flavor_groups(flavor.extra_specs), *profile_groups(call, flavor), *port_groups(call, nics)),
        reservation_id=f"r-{call.services.new_id().replace('-', '')[:8]}",
        now=utcnow(),
    )


def create(call: Call, planned: Plan) -> tuple[Server, ...]:
    """Rows of all servers in one transaction, in launch order; nothing is scheduled yet. Raises ``Invalid`` for an alias
    that isn't defined, ``Forbidden`` where the image contradicts the flavor: nothing is kept then."""
    _, count = counts(planned.new)
    drafts = []
    for index in range(count):
        requests = requests_from_flavor(
            planned.flavor.extra_specs, planned.image.properties, call.services.aliases, call.services.new_id
        )
        devices = pci_groups(requests) if call.services.settings.pci_in_placement else ()
        of_nics = _requests_of_nics(call, planned)
        asked = requests + tuple(request for request in of_nics if request is not None)
        drafts.append((_server(call, planned, index, count, of_nics), asked, devices))
    made = call.services.database.write(lambda conn: tuple(_keep(call, conn, planned, *draft) for draft in drafts))
    warn_of_misspelt(planned.flavor.name, planned.flavor.extra_specs, call.context.request_id, made[0].uuid)
    return made


def _keep(
    call: Call,
    conn: Connection,
    planned: Plan,
    draft: Server,
    requests: tuple[PciRequest, ...],
    devices: tuple[RequestGroup, ...],
) -> Server:
    server = servers.create(conn, draft, pci_requests=requests, numa_topology=planned.topology, keypair=planned.keypair)
    request_specs.create(
        conn,
        RequestSpec(
            instance_uuid=server.uuid,
            project_id=server.project_id,
            flavor=planned.flavor,
            image_ref=planned.image.id,
            image_properties=planned.image.properties,
            pci_requests=requests,
            numa_topology=planned.topology,
            availability_zone=planned.placement.zone,
            force_host=planned.placement.host,
            hints=planned.hints,
            networks=_of_hosts(call, planned.nics),
            groups=(*planned.groups, *devices),
            port_profiles=port_profiles(planned.nics),
        ),
        now=planned.now,
    )
    actions.start(
        conn,
        server.uuid,
        "create",
        call.context.request_id,
        user_id=call.context.user,
        project_id=call.context.project,
        now=planned.now,
    )
    return server


def _requests_of_nics(call: Call, planned: Plan) -> tuple[PciRequest | None, ...]:
    policy = flavor_policy(planned.flavor.extra_specs, planned.image.properties)
    return tuple(request_of(nic, policy, call.services.new_id) for nic in planned.nics)


def _server(call: Call, planned: Plan, index: int, count: int, requests: Sequence[PciRequest | None]) -> Server:
    new = planned.new
    uuid = call.services.new_id()
    name = new.name if count == 1 else _numbered(new.name, index + 1)
    return Server(
        id=0,
        uuid=uuid,
        display_name=name,
        display_description=new.description,
        hostname=new.hostname or hostname_of(name, uuid),
        project_id=call.context.project,
        user_id=call.context.user,
        vm_state=VmState.BUILDING,
        task_state=TaskState.SCHEDULING,
        power_state=PowerState.NOSTATE,
        flavor=planned.flavor,
        image_ref=planned.image.id,
        created_at=planned.now,
        key_name=new.key_name,
        user_data=new.user_data,
        config_drive=new.config_drive,
        availability_zone=planned.placement.zone,
        reservation_id=planned.reservation_id,
        launch_index=index,
        metadata=new.metadata,
        tags=new.tags,
        networks=tuple(
            nic_of(nic, mac_address(f"{uuid}-{number}"), request)
            for number, (nic, request) in enumerate(zip(planned.nics, requests, strict=True))
        ),
        request_id=call.context.request_id,
    )


def _numbered(name: str, number: int) -> str:
    suffix = f"-{number}"
    return name[: 255 - len(suffix)] + suffix


def hostname_of(name: str, uuid: str) -> str:
    """A host name made from a server's name."""
    text = re.sub(r"[^a-z0-9.-]", "", re.sub(r"[ _.]", "-", name.lower()))
    return text.strip("-.")[:63].strip("-.") or f"server-{uuid}"


def _flavor(call: Call, flavorid: str) -> Flavor:
    try:
        return visible(call, flavorid)
    except NotFound:
        raise Invalid(f"Flavor {flavorid} could not be found: give the id of a flavor as flavorRef.") from None


def _image(call: Call, key: str) -> Image:
    try:
        image = call.services.images.get(key)
        require_use(call.context, image)
    except NotFound:
        raise Invalid(f"Image {key} could not be found: give the id of an image as imageRef.") from None
    if image.status is not ImageStatus.ACTIVE:
        raise Invalid(f"Image {key} is not active: its status is {image.status}. Upload its data first.")
    return image


def check_size(flavor: Flavor, image: Image) -> None:
    """Raises ``Invalid`` when the image needs more than the flavor has. A root disk of 0 is as large as the image."""
    if flavor.memory_mb < image.min_ram:
        raise Invalid(
            f"Flavor's memory is too small for requested image: flavor {flavor.name} has {flavor.memory_mb} MiB, image"
            f" {image.id} needs min_ram={image.min_ram}."
        )
    if flavor.root_gb == 0:
        return
    if flavor.root_gb < image.min_disk:
        raise Invalid(
            f"Flavor's disk is too small for requested image: flavor {flavor.name} has {flavor.root_gb} GiB, image"
            f" {image.id} needs min_disk={image.min_disk}."
        )
    size = max(image.size or 0, image.virtual_size or 0)
    if flavor.root_gb * GIB < size:
        raise Invalid(
            f"Flavor's disk is too small for requested image: flavor {flavor.name} has {flavor.root_gb * GIB} bytes,"
            f" image {image.id} is {size} bytes."
        )


def _nics(call: Call, new: NewServer) -> tuple[Chosen, ...]:
    if isinstance(new.networks, str):
        return _choose(call, new.networks)
    if new.networks:
        return _choose(call, [wish_of(item) for item in _distinct(new.networks)])
    # Up to 2.36 nothing, or an empty list, meant: whatever there is.
    try:
        return _choose(call, "auto")
    except Invalid:
        return ()


def _choose(call: Call, requested: Requested) -> tuple[Chosen, ...]:
    try:
        return choose(call.services.ports, call.context, requested)
    except NotFound as error:
        raise Invalid(
            f"{error.message} Name a network or port that `openstack network list` or `port list` shows."
        ) from None


def _of_hosts(call: Call, nics: Sequence[Chosen]) -> tuple[str, ...]:
    """Networks that a host must have itself. A Network service elsewhere wires all hosts."""
    if call.services.neutron is not None:
        return ()
    return tuple(nic.network.name for nic in nics if nic.vnic_type is VnicType.NORMAL)


def wish_of(item: NetworkItem) -> Wish:
    return Wish(item.uuid, item.port, item.tag, (item.fixed_ip,) if item.fixed_ip else ())


def _distinct(items: Sequence[NetworkItem]) -> Sequence[NetworkItem]:
    tags = [item.tag for item in items if item.tag is not None]
    if len(set(tags)) != len(tags):
        raise Invalid("Invalid input for field/attribute networks. The tags are not unique: name each once.")
    return items


def _keypair(call: Call, name: str | None) -> dict[str, str] | None:
    if name is None:
        return None
    with call.services.database.read() as conn:
        try:
            pair = keypairs.get(conn, call.context.user, name)
        except NotFound:
            raise Invalid(f"Invalid key_name provided: {name!r} is not a key pair of this user.") from None
    return {"name": pair.name, "public_key": pair.public_key, "type": pair.type, "fingerprint": pair.fingerprint}


def _placement(call: Call, new: NewServer) -> Placement:
    zone, _, rest = (new.availability_zone or "").partition(":")
    host, _, node = rest.partition(":")
    if zone not in ("", ZONE):
        raise Invalid(f"The requested availability zone is not available: {zone!r}. The only one is {ZONE}.")
    if rest:
        call.require("os_compute_api:servers:create:forced_host")
    elif new.host or new.hypervisor_hostname:
        call.require("os_compute_api:compute:servers:create:requested_destination")
        host, node = new.host or "", new.hypervisor_hostname or ""
    return Placement(zone or None, _host(call, host, node) if host or node else None)


def _host(call: Call, host: str, node: str) -> str:
    """The host that both name. Raises ``Invalid``."""
    with call.services.database.read() as conn:
        if host:
            try:
                found = compute_nodes.of_host(conn, host)
            except HostNotFound as error:
                raise Invalid(error.message) from None
            matches = [found]
        else:
            matches = compute_nodes.listing(conn)
    named = [match for match in matches if not node or match.hypervisor_hostname == node]
    if not named:
        where = f" on host {host}" if host else ""
        raise Invalid(f"Compute host {node} could not be found{where}: name an existing hypervisor_hostname.")
    return named[0].host

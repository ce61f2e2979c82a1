"""The embedded accelerator service: device profiles, requests (ARQs) and who has which attach handle.

A request's life: Initial -> BindStarted -> Bound or BindFailed -> Unbound -> gone. Binding and giving back lock the host, as claims of
PCI devices do: so that a card and its virtual functions are given once, whichever way they are asked for (docs/models.md, Accelerators).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jetbridge.accelerator.profile import check_profile, devices_of
from jetbridge.db import accelerators, arqs, compute_nodes, device_profiles, pci_devices, server_arqs
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import Conflict, Forbidden, HostNotFound, Invalid, NotFound
from jetbridge.model.accelerator import (
    Accelerator,
    AcceleratorCondition,
    Arq,
    ArqState,
    AttachHandle,
    DeviceProfile,
)
from jetbridge.model.context import RequestContext

logger = logging.getLogger(__name__)

SERVICE_ROLE = "service"
"""Who may bind, unbind, and delete what is bound: services that act for a server's owner."""

COMPLETED, FAILED = "completed", "failed"


@dataclass(frozen=True)
class Binding:
    """Where a request is to be bound. ``project_id``: the server's owner, whose the request is from then on; None: it stays whose it is."""

    hostname: str
    device_rp_uuid: str
    instance_uuid: str
    project_id: str | None = None


@dataclass(frozen=True)
class BoundEvent:
    """How the binding of a request for a server ended: completed or failed."""

    instance_uuid: str
    arq_uuid: str
    status: str


Notify = Callable[[RequestContext, Sequence[BoundEvent]], None]
"""Tells the Compute service how bindings ended."""


class AcceleratorService:
    """Every method takes who asks, and answers or raises as the Accelerator API does."""

    def __init__(self, database: Database, notify: Notify, new_id: Callable[[], str]) -> None:
        self._database = database
        self._notify = notify
        self._new_id = new_id

    # --- device profiles: an administrator's, everybody's to use ---

    def create_profile(
        self,
        context: RequestContext,
        name: str,
        groups: Sequence[Mapping[str, str]],
        description: str | None = None,
        uuid: str | None = None,
    ) -> DeviceProfile:
        """Raises ``Forbidden``, ``Invalid``, ``Conflict``."""
        _require_admin(context, "create a device profile")
        profile = DeviceProfile(uuid or self._new_id(), name, check_profile(name, groups), description)
        return self._database.write(lambda conn: device_profiles.create(conn, profile))

    def profiles(self, names: Sequence[str] | None = None) -> tuple[DeviceProfile, ...]:
        with self._database.read() as conn:
            return device_profiles.listing(conn, names)

    def profile(self, key: str) -> DeviceProfile:
        """By UUID or name. Raises ``NotFound``."""
        with self._database.read() as conn:
            return device_profiles.get(conn, key)

    def delete_profiles(self, context: RequestContext, keys: Sequence[str]) -> None:
        """All or none. Raises ``Forbidden``, ``NotFound``, and ``Conflict`` while a request made of one is there."""
        _require_admin(context, "delete a device profile")

        def write(conn: Connection) -> None:
            for key in keys:
                profile = device_profiles.get(conn, key)
                users = [arq for arq in arqs.listing(conn) if arq.device_profile_name == profile.name]
                if users:
                    raise Conflict(
                        f"Device profile {profile.name} is used by accelerator request {users[0].uuid}: delete its server, or it, first"
                    )
                device_profiles.delete(conn, key)

        self._database.write(write)

    # --- devices ---

    def devices(self, **properties: str | None) -> tuple[Accelerator, ...]:
        """Those that have each of ``hostname``, ``device_type`` and ``vendor`` given."""
        with self._database.read() as conn:
            return accelerators.listing(conn, **properties)

    def device(self, uuid: str) -> Accelerator:
        """Raises ``NotFound``."""
        with self._database.read() as conn:
            return accelerators.get(conn, uuid)

    def enable(self, context: RequestContext, uuid: str, enabled: bool) -> None:
        """One that is not enabled is bound no more; what is bound stays. Raises ``Forbidden``, ``NotFound``."""
        _require_admin(context, "enable or disable a device")

        def write(conn: Connection) -> None:
            accelerators.set_enabled(conn, accelerators.get(conn, uuid).id, enabled)

        self._database.write(write)

    # --- requests ---

    def create(self, context: RequestContext, profile_name: str, group_id: int | None = None) -> tuple[Arq, ...]:
        """One request per device that the profile asks for, or its group ``group_id``; all belong to the caller's project. Raises
        ``NotFound``, ``Invalid``."""
        profile = self.profile(profile_name)
        if group_id is not None and not 0 <= group_id < len(profile.groups):
            raise Invalid(
                f"device_profile_group_id={group_id}: profile {profile.name} has groups 0 to {len(profile.groups) - 1}"
            )
        wanted = [
            Arq(self._new_id(), ArqState.INITIAL, context.project, profile.name, index, group)
            for index, group in enumerate(profile.groups)
            if group_id in (None, index)
            for _ in range(devices_of(group))
        ]
        return self._database.write(lambda conn: arqs.create(conn, wanted))

    def list(
        self, context: RequestContext, instance_uuid: str | None = None, *, only_resolved: bool = False
    ) -> tuple[Arq, ...]:
        states = [state for state in ArqState if state.resolved] if only_resolved else None
        with self._database.read() as conn:
            return arqs.listing(conn, project_id=_sees(context), instance_uuid=instance_uuid, states=states)

    def get(self, context: RequestContext, uuid: str) -> Arq:
        """Raises ``NotFound``, also for another project's."""
        with self._database.read() as conn:
            return arqs.get(conn, uuid, project_id=_sees(context))

    def bind(self, context: RequestContext, bindings: Mapping[str, Binding | None]) -> None:
        """Bind requests, by UUID, or unbind those with None; how each binding ended is told to the Compute service, once all have. What
        can't be bound is BindFailed. Raises ``Forbidden``, ``NotFound``, ``Conflict``: nothing is changed then."""
        _require_service(context, "bind or unbind an accelerator request")

        def write(conn: Connection) -> dict[str, str | None]:
            _start(conn, bindings)
            for uuid, binding in bindings.items():
                if binding is None:
                    _unbind(conn, uuid)
            return {uuid: _take(conn, uuid) for uuid, binding in bindings.items() if binding is not None}

        events = []
        for uuid, why in self._database.write(write).items():
            binding = bindings[uuid]
            assert binding is not None
            events.append(BoundEvent(binding.instance_uuid, uuid, COMPLETED if why is None else FAILED))
            if why is not None:
                logger.warning(
                    "[%s] Accelerator request %s can't be bound for server %s on host %s: %s",
                    context.request_id,
                    uuid,
                    binding.instance_uuid,
                    binding.hostname,
                    why,
                )
        if events:
            self._notify(context, events)

    def delete(self, context: RequestContext, uuids: Sequence[str]) -> None:
        """Delete requests; those that are there are deleted even if others aren't. Raises ``NotFound`` for those at the end, and
        ``Forbidden`` for one that is bound, unless a service asks, ``Conflict`` while a guest may have it (nothing is deleted then)."""
        with self._database.read() as conn:
            for uuid in uuids:
                _check_delete(conn, context, uuid)
        missing = [
            uuid
            for uuid in uuids
            if not self._database.write(lambda conn, uuid=uuid: _delete(conn, uuid, context))  # type: ignore[misc]
        ]
        if missing:
            raise NotFound(noun="Accelerator request", key=", ".join(missing))

    def delete_of_server(self, context: RequestContext, instance_uuid: str) -> None:
        """All requests of a server; none: nothing happens. Raises ``Forbidden``, and ``Conflict`` while its guest may have one of them."""
        _require_service(context, "delete a server's accelerator requests")
        with self._database.read() as conn:
            mine = arqs.listing(conn, instance_uuid=instance_uuid)
            for arq in mine:
                _check_delete(conn, context, arq.uuid)
        for arq in mine:
            self._database.write(lambda conn, arq=arq: _delete(conn, arq.uuid, context))  # type: ignore[misc]


# --- who may do what ---


def _sees(context: RequestContext) -> str | None:
    """The project whose requests the caller sees; None: all."""
    return None if context.is_admin or SERVICE_ROLE in context.roles else context.project


def _require_admin(context: RequestContext, what: str) -> None:
    if not context.is_admin:
        raise Forbidden(f"Policy doesn't allow to {what}: it needs the role admin.")


def _require_service(context: RequestContext, what: str) -> None:
    if SERVICE_ROLE not in context.roles:
        raise Forbidden(f"Policy doesn't allow to {what}: it needs the role {SERVICE_ROLE}, use the Compute API.")


def _check_delete(conn: Connection, context: RequestContext, uuid: str) -> Arq | None:
    """The request, if the caller sees it and may delete it now. Raises ``Forbidden``, ``Conflict``."""
    try:
        arq = arqs.get(conn, uuid, project_id=_sees(context))
    except NotFound:
        return None
    if arq.instance_uuid is not None:
        _require_service(context, f"delete accelerator request {uuid}, which server {arq.instance_uuid} has")
        _refuse_in_use(conn, uuid)
    return arq


def _refuse_in_use(conn: Connection, uuid: str) -> None:
    """Whoever asks, and whatever roles: a device whose guest may run is nobody else's. What somebody bound to a server by hand is not in
    its guest. Raises ``Conflict``."""
    server = server_arqs.guest_of(conn, uuid)
    if server is not None:
        raise Conflict(f"Server {server} has its accelerator requests as long as it is there: delete the server")


# --- binding, inside one transaction ---


def _start(conn: Connection, bindings: Mapping[str, Binding | None]) -> None:
    """All requests are there and can be bound; they say where."""
    servers = {binding.instance_uuid for binding in bindings.values() if binding is not None}
    for server in servers:
        others = [arq for arq in arqs.listing(conn, instance_uuid=server) if arq.uuid not in bindings]
        if others:
            raise Conflict(
                f"Server {server} has accelerator request {others[0].uuid} already: all of a server's are bound at once"
            )
    for uuid, binding in bindings.items():
        arq = arqs.get(conn, uuid)
        if binding is None:
            _lock_host(conn, arq)
            _refuse_in_use(conn, uuid)
            continue
        started = arqs.change(
            conn,
            uuid,
            ArqState.BIND_STARTED,
            hostname=binding.hostname,
            device_rp_uuid=binding.device_rp_uuid,
            instance_uuid=binding.instance_uuid,
            project_id=binding.project_id or arq.project_id,
        )
        if not started:
            raise Conflict(f"Accelerator request {uuid} is {arq.state}: only one that isn't bound can be bound")


def _take(conn: Connection, uuid: str) -> str | None:
    """Give a request whose binding has begun a handle, or say why there is none for it."""
    arq = arqs.get(conn, uuid)
    if arq.state is not ArqState.BIND_STARTED or arq.device_rp_uuid is None or arq.hostname is None:
        return f"it is {arq.state} by now"
    accelerator = accelerators.by_provider(conn, arq.device_rp_uuid)
    if accelerator is None or accelerator.hostname != arq.hostname:
        arqs.change(conn, uuid, ArqState.BIND_FAILED)
        return f"resource provider {arq.device_rp_uuid} is no accelerator of host {arq.hostname}"
    try:
        compute_nodes.lock(conn, accelerator.compute_node_id)
    except HostNotFound:
        arqs.change(conn, uuid, ArqState.BIND_FAILED)
        return f"host {arq.hostname} is gone"
    # Only now is what is read what others left.
    accelerator = accelerators.get(conn, accelerator.uuid)
    free, why = _free_handles(conn, accelerator)
    for handle in free:
        if accelerators.take(conn, handle.id, uuid):
            arqs.change(conn, uuid, ArqState.BOUND)
            accelerators.mark_relatives(conn, accelerator.compute_node_id)
            return None
    arqs.change(conn, uuid, ArqState.BIND_FAILED)
    return why or f"all of {accelerator.name} is taken"


def _free_handles(conn: Connection, accelerator: Accelerator) -> tuple[list[AttachHandle], str | None]:
    """Those that could be given now, and why others that nobody has can't."""
    if not accelerator.enabled:
        return [], f"{accelerator.name} is disabled"
    devices = pci_devices.of_host(conn, accelerator.compute_node_id)
    free, why = [], None
    for handle in accelerator.handles:
        if handle.arq_uuid is not None:
            continue
        if handle.condition is not AcceleratorCondition.OK:
            why = f"the state of {handle.address} is {handle.condition}"
            continue
        owner = accelerators.owned_relative(devices, accelerator, handle.address)
        if owner is not None:
            why = f"{handle.address} can't be given while server {owner.instance_uuid} has {owner.address}, of the same card"
            continue
        free.append(handle)
    return free, why


def _unbind(conn: Connection, uuid: str) -> None:
    arq = arqs.get(conn, uuid)
    _give_back(conn, arq, _lock_host(conn, arq))
    arqs.change(conn, uuid, ArqState.UNBOUND, hostname=None, device_rp_uuid=None, instance_uuid=None)


def _delete(conn: Connection, uuid: str, context: RequestContext) -> bool:
    """False: there is none. Since it was looked at it may have been bound, and put into a guest: it is asked again."""
    arq = _check_delete(conn, context, uuid)
    if arq is None:
        return False
    host = _lock_host(conn, arq)
    _refuse_in_use(conn, uuid)
    _give_back(conn, arq, host)
    return arqs.delete(conn, uuid)


def _lock_host(conn: Connection, arq: Arq) -> int | None:
    """The id of the host that has the request's handle, locked: whether a guest gets it is decided before or after, not meanwhile."""
    if arq.handle is None:
        return None
    for each in accelerators.listing(conn, hostname=arq.hostname):
        if each.id == arq.handle.accelerator_id:
            compute_nodes.lock(conn, each.compute_node_id)
            return each.compute_node_id
    return None


def _give_back(conn: Connection, arq: Arq, host: int | None) -> None:
    """``host``: as ``_lock_host`` answered."""
    if arq.handle is None:
        return
    accelerators.give_back(conn, arq.uuid, now=utcnow())
    if host is not None:
        accelerators.mark_relatives(conn, host)

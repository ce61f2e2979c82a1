"""Stop, start and reboot of a server. Its devices stay its own while it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from jetbridge.compute import domain, nics, vgpus
from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.record import UNDELETED, action_event, operation_failed
from jetbridge.db import servers
from jetbridge.db.connection import Connection
from jetbridge.errors import DeviceIdentityMismatch
from jetbridge.model.context import RequestContext
from jetbridge.model.server import PowerState, Server, VmState
from jetbridge.virt.connection import DomainInfo

logger = logging.getLogger(__name__)

START_TRIES = 2
"""How often a guest that ran before is started: its own devices may still be held by what it was."""

STATES = {
    "running": (VmState.ACTIVE, PowerState.RUNNING),
    "paused": (VmState.ACTIVE, PowerState.PAUSED),
    "shutoff": (VmState.STOPPED, PowerState.SHUTDOWN),
    "crashed": (VmState.STOPPED, PowerState.CRASHED),
}


class StopWaits:
    """Who waits for which domain to stop: events of the hypervisor wake them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waits: dict[str, threading.Event] = {}

    def expect(self, name: str) -> threading.Event:
        with self._guard:
            return self._waits.setdefault(name, threading.Event())

    def forget(self, name: str) -> None:
        with self._guard:
            self._waits.pop(name, None)

    def stopped(self, name: str) -> None:
        with self._guard:
            wait = self._waits.get(name)
        if wait is not None:
            wait.set()


def stop_server(host: AgentHost, context: RequestContext, server: Server, waits: StopWaits) -> None:
    """Ask the guest to power off; pull the plug when it doesn't in time."""

    def stop() -> None:
        _shut_down(host, context, server, waits)

    _run(host, context, server, "compute_stop_instance", stop)


def start_server(host: AgentHost, context: RequestContext, server: Server) -> None:
    """Start a stopped server on the devices it owns, if they still are what it owns."""

    def start() -> None:
        if _state_of(host, server) != "running":
            domain.verify_devices(host, context, server)
            vgpus.make(host, context, server.uuid)
            domain.start_domain(host, context, server, tries=START_TRIES)

    _run(host, context, server, "compute_start_instance", start)


def reboot_server(host: AgentHost, context: RequestContext, server: Server, waits: StopWaits, *, hard: bool) -> None:
    """Soft: the guest restarts itself. Hard, or a guest that doesn't run: plug pulled, started anew."""

    def reboot() -> None:
        domain.verify_devices(host, context, server)
        if not hard and _state_of(host, server) == "running":
            with host.library(context, "reboot_domain", server.uuid, domain=server.domain_name):
                host.connection.reboot_domain(server.domain_name)
            return
        domain.destroy_domain(host, context, server.domain_name, server.uuid)
        vgpus.make(host, context, server.uuid)
        if info_of(host, server) is None:
            _define_again(host, context, server)
        domain.start_domain(host, context, server, tries=START_TRIES)

    _run(host, context, server, "compute_reboot_instance", reboot)


def _define_again(host: AgentHost, context: RequestContext, server: Server) -> None:
    """A domain that got lost: what the server has stands in the tables, not in the domain's document."""
    root_disk, config_drive = host.connection.disk_paths(server.domain_name)
    bound = nics.bind_ports(host, context, server)
    domain.define_domain(host, context, server, root_disk, config_drive, bound)
    logger.warning(
        "The domain of server %s was gone from host %s: it is defined again",
        server.uuid,
        host.name,
        extra=about(context, server.uuid),
    )


def state_for(server: Server, info: DomainInfo | None, *, task_ended: bool) -> tuple[VmState, PowerState]:
    """The states that fit what the hypervisor says of the server's domain (None: there is none). A server in ERROR stays so until
    it runs, or somebody's task on it has ended."""
    vm_state, power_state = (VmState.STOPPED, PowerState.NOSTATE) if info is None else STATES[info.state]
    if server.vm_state is VmState.ERROR and vm_state is not VmState.ACTIVE and not task_ended:
        vm_state = VmState.ERROR
    return vm_state, power_state


def record_state(host: AgentHost, server: Server, info: DomainInfo | None, *, task_ended: bool) -> bool:
    """Write the states that fit the domain; whether that was news. ``task_ended``: the server's task ends with it; otherwise a server
    on which somebody has begun a task is left alone. One that is being deleted always is: who died then would forget the delete."""
    vm_state, power_state = state_for(server, info, task_ended=task_ended)
    if (server.vm_state, server.power_state) == (vm_state, power_state) and not (task_ended and server.task_state):
        return False

    def write(conn: Connection) -> bool:
        if task_ended:
            return servers.update(
                conn,
                server.uuid,
                expected_task_states=UNDELETED,
                now=host.now(),
                task_state=None,
                vm_state=vm_state,
                power_state=power_state,
            )
        return servers.update(
            conn,
            server.uuid,
            expected_task_states=(None,),
            now=host.now(),
            vm_state=vm_state,
            power_state=power_state,
        )

    return host.database.write(write)


def info_of(host: AgentHost, server: Server) -> DomainInfo | None:
    """The server's domain as the hypervisor has it now; None: there is none."""
    return next((info for info in host.connection.domains() if info.name == server.domain_name), None)


def _run(host: AgentHost, context: RequestContext, server: Server, event: str, operation: Callable[[], None]) -> None:
    logger.info("%s of server %s on host %s", event, server.uuid, host.name, extra=about(context, server.uuid))
    try:
        with action_event(host, context, server.uuid, event):
            operation()
    except Exception as error:  # noqa: BLE001 - whatever it was, the task ends and the owner is told
        _settle(host, server)
        # With another device at its address the server must not run: the owner sees why, and only delete or a hard reboot get out.
        operation_failed(host, context, server.uuid, error, to_error=isinstance(error, DeviceIdentityMismatch))
        return
    _settle(host, server)
    logger.info("%s of server %s on host %s is done", event, server.uuid, host.name, extra=about(context, server.uuid))


def _settle(host: AgentHost, server: Server) -> None:
    with host.database.read() as conn:
        now = servers.get_many(conn, [server.uuid]).get(server.uuid)
    if now is not None:
        record_state(host, now, info_of(host, server), task_ended=True)


def _shut_down(host: AgentHost, context: RequestContext, server: Server, waits: StopWaits) -> None:
    if _state_of(host, server) != "running":
        domain.destroy_domain(host, context, server.domain_name, server.uuid)
        return
    stopped = waits.expect(server.domain_name)
    try:
        with host.library(context, "shutdown_domain", server.uuid, domain=server.domain_name):
            host.connection.shutdown_domain(server.domain_name)
        if _state_of(host, server) == "running" and not stopped.wait(host.shutdown_seconds):
            logger.info(
                "Server %s did not power off within %g s: the plug is pulled",
                server.uuid,
                host.shutdown_seconds,
                extra=about(context, server.uuid),
            )
    finally:
        waits.forget(server.domain_name)
    domain.destroy_domain(host, context, server.domain_name, server.uuid)


def _state_of(host: AgentHost, server: Server) -> str | None:
    info = info_of(host, server)
    return None if info is None else info.state

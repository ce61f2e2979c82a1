"""The agent of one host: what it answers on the bus, and what it does by itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from jetbridge.compute import cleaning, interfaces, power
from jetbridge.compute.allocations import reconcile_allocations
from jetbridge.compute.audit import audit_message
from jetbridge.compute.build import build_server
from jetbridge.compute.delete import delete_server
from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.inventory import take_inventory
from jetbridge.compute.nics import tell_changed_ports
from jetbridge.compute.provider_source import ProviderSource
from jetbridge.compute.providers import ProviderReport
from jetbridge.compute.reconcile import reconcile
from jetbridge.compute.record import action_event
from jetbridge.compute.report_queue import ReportQueue
from jetbridge.db import actions, builds, compute_nodes, pci_devices, servers
from jetbridge.db.builds import Build
from jetbridge.errors import Conflict, HostNotFound, JetbridgeError, NotFound, ServerInvalidState, ServerNotFound
from jetbridge.model.context import RequestContext
from jetbridge.model.server import Server, TaskState, VmState
from jetbridge.model.verdict import Selection
from jetbridge.network.nics import Wish
from jetbridge.pci.device import Condition
from jetbridge.placement.pci_tree import CLEANED, MARK, USED
from jetbridge.rpc.bus import Handler, Payload
from jetbridge.virt.connection import HypervisorEvent
from jetbridge.virt.scan import scan

logger = logging.getLogger(__name__)

TOPIC = "compute"

Background = Callable[[Callable[[], None]], None]
"""Runs a piece of work on the process's pool, some time soon."""


class ComputeAgent:
    """It has no thread and no timer of its own: handlers run where the bus runs them, the rest where the service calls it."""

    def __init__(
        self,
        host: AgentHost,
        background: Background,
        of_process: Mapping[str, Handler] | None = None,
        sources: Sequence[ProviderSource] = (),
        reports: ReportQueue | None = None,
        cleaning: Background | None = None,
    ) -> None:
        """``of_process``: what its process answers in the name of any of its hosts; ``sources``: the models whose devices are reported
        to Placement; ``reports``: where reports queue up, the process's; ``cleaning``: where cleaners run."""
        self.host = host
        self._of_process = of_process or {}
        self.providers = ProviderReport(host, sources)
        self._background = background
        self._cleaning = cleaning or background
        self._reports = reports or ReportQueue(background)
        self._waits = power.StopWaits()
        self._guard = threading.Lock()
        self._stopped: set[str] = set()  # domains that stopped while their server was busy
        self._inventory_pending = False
        self._retired = False
        self._inventory = threading.Lock()  # an older look must not be stored after a newer one

    def start(self, gone_owners: Collection[str] = (), *, succeeds: bool = False) -> None:
        """Take the first inventory, clean up after earlier processes, serve. Raises the errors of device_spec: an agent that
        doesn't know what it may give away doesn't start. ``succeeds``: it takes over from another agent of this process, whose
        operations may still be under way."""
        self.inventory(starting=True)
        self.providers.check()
        cleaning.resume(self.host, gone_owners, starting=not succeeds)
        reconcile(self.host, gone_owners=gone_owners, starting=not succeeds)
        self.host.connection.subscribe(self._on_event)
        self.host.bus.serve(TOPIC, self.handlers(), server=self.host.name)
        self._clean()
        self._ask_report(self.providers.run)
        self._background(lambda: tell_changed_ports(self.host))  # a Network service that is slow delays no start

    def inventory(self, *, starting: bool = False) -> None:
        """One inventory pass, as ``take_inventory``."""
        with self._inventory:
            take_inventory(self.host, starting=starting)

    def stop(self) -> None:
        self.retire()
        self.host.connection.close()

    def hand_over(self) -> None:
        """Do nothing by itself any more, and answer until a successor does."""
        self._retired = True

    def retire(self) -> None:
        """Serve no more; the connection stays open for a successor."""
        self.hand_over()
        self.host.bus.withdraw(TOPIC, server=self.host.name)

    def periodic(self, gone_owners: Collection[str] = ()) -> None:
        """One pass of inventory and reconciliation. Says what fails and raises nothing: the next pass comes."""
        try:
            self.inventory()
            cleaning.resume(self.host, gone_owners, starting=False)
            reconcile(self.host, gone_owners=gone_owners)
            self._clean()
            self._ask_report(self.report)
        except JetbridgeError as error:
            logger.error("The periodic pass of host %s failed: %s", self.host.name, error)
        except Exception:
            logger.exception("The periodic pass of host %s failed", self.host.name)

    def report(self) -> None:
        """One look at the host in Placement: what servers have of it, and its providers. Raises ``JetbridgeError``."""
        reconcile_allocations(self.host)  # first: what is taken back lets providers go, and what is given shows in them
        self.providers.run()

    def _ask_report(self, work: Callable[[], None]) -> None:
        if self.host.placement is not None and not self._retired:
            self._reports.ask(f"host {self.host.name}", work)

    def _clean(self) -> None:
        """Start the cleaner for devices that were given back."""
        cleaning.clean_waiting(self.host, self._cleaning, self._cleaned)

    def _cleaned(self) -> None:
        self._ask_report(self.providers.run)

    def handlers(self) -> Mapping[str, Handler]:
        """For ``Bus.serve("compute", ..., server=HOST)``."""
        return {
            "build_server": self._build_server,
            "delete_server": self._delete_server,
            "stop_server": self._stop_server,
            "start_server": self._start_server,
            "reboot_server": self._reboot_server,
            "attach_interface": self._attach_interface,
            "detach_interface": self._detach_interface,
            "console_output": self._console_output,
            "domain_xml": self._domain_xml,
            "update_resources": self._update_resources,
            "scan": self._scan,
            "clean_device": self._clean_device,
            "audit": lambda context, payload: audit_message(self.host),
            **self._of_process,
            "external_event": self._external_event,
        }

    def _external_event(self, context: RequestContext, payload: Payload) -> None:
        self.host.events.tell(payload["server_uuid"])

    # --- life of a server ---

    def _build_server(self, context: RequestContext, payload: Payload) -> None:
        uuid = payload["server_uuid"]
        with self.host.locks.hold(uuid):
            build = self._waiting_build(payload["build_id"])
            if build is None:
                logger.info("A build message for server %s came late or twice", uuid, extra=about(context, uuid))
                return
            build_server(self.host, context, build, Selection.from_message(payload["selection"]))
        self._follow_devices()
        self._catch_up(uuid)

    def _delete_server(self, context: RequestContext, payload: Payload) -> None:
        uuid = payload["server_uuid"]
        with self.host.locks.hold(uuid):
            server = self._server(uuid)
            if server is None:
                return
            node_id = self._node_id()
            if server.compute_node_id in (None, node_id):
                delete_server(self.host, context, server, node_id)
                self._follow_devices()
                return
        assert server.host is not None
        self.host.bus.cast(context, TOPIC, "delete_server", payload, source=self.host.source, server=server.host)

    def _stop_server(self, context: RequestContext, payload: Payload) -> None:
        def stop(server: Server) -> None:
            power.stop_server(self.host, context, server, self._waits)

        self._operate(context, payload["server_uuid"], {TaskState.POWERING_OFF}, stop)

    def _start_server(self, context: RequestContext, payload: Payload) -> None:
        def start(server: Server) -> None:
            power.start_server(self.host, context, server)

        self._operate(context, payload["server_uuid"], {TaskState.POWERING_ON}, start)

    def _reboot_server(self, context: RequestContext, payload: Payload) -> None:
        def reboot(server: Server) -> None:
            power.reboot_server(self.host, context, server, self._waits, hard=payload["hard"])

        self._operate(context, payload["server_uuid"], {TaskState.REBOOTING, TaskState.REBOOTING_HARD}, reboot)

    def _operate(
        self,
        context: RequestContext,
        uuid: str,
        wanted: Collection[TaskState],
        operation: Callable[[Server], None],
    ) -> None:
        """``wanted``: the tasks of a server that wants this. With another one the message came twice, or so late that the task was
        given up: then the server may be in use again."""
        with self.host.locks.hold(uuid):
            server = self._server(uuid)
            if server is None or server.task_state not in wanted or server.compute_node_id != self._node_id():
                message = f"Server {uuid} is not on host {self.host.name} any more, or does not wait for this any more"
                logger.info("%s", message, extra=about(context, uuid))
                self.host.database.write(
                    lambda conn: actions.finish(conn, uuid, context.request_id, error=message, now=self.host.now())
                )
                return
            operation(server)
        self._catch_up(uuid)

    # --- NICs ---

    def _attach_interface(self, context: RequestContext, payload: Payload) -> Payload:
        """The caller waits for it, and is told what went wrong."""
        uuid, port, network = payload["server_uuid"], payload["port_id"], payload["network_id"]
        wish = Wish(network, port, payload["tag"], tuple(payload["fixed_ips"])) if port or network else None
        with self._change_nics(context, uuid, interfaces.ATTACH_EVENT):
            nic = interfaces.attach_interface(self.host, context, self._present(uuid, "attach_interface"), wish)
        self._catch_up(uuid)
        return {"port_id": nic.port_id}

    def _detach_interface(self, context: RequestContext, payload: Payload) -> None:
        uuid, port = payload["server_uuid"], payload["port_id"]
        try:
            with self._change_nics(context, uuid, interfaces.DETACH_EVENT):
                interfaces.detach_interface(self.host, context, self._present(uuid, "detach_interface"), port)
        except JetbridgeError as error:
            logger.error(
                "Port %s of server %s on host %s is not taken out: %s",
                port,
                uuid,
                self.host.name,
                error,
                extra=about(context, uuid),
            )
        self._catch_up(uuid)

    @contextmanager
    def _change_nics(self, context: RequestContext, uuid: str, event: str) -> Iterator[None]:
        """Raises ``Conflict`` when the message came twice, or so late that the request was given up."""
        with self.host.locks.hold(uuid):
            with self.host.database.read() as conn:
                if actions.is_answered(conn, uuid, context.request_id):
                    raise Conflict(f"{event} of server {uuid} comes too late: its request has its answer. Ask again.")
            with action_event(self.host, context, uuid, event):
                yield

    def _present(self, uuid: str, action: str) -> Server:
        """Raises ``ServerInvalidState`` when the server isn't on this host (any more)."""
        server = self._existing(uuid)
        if server.compute_node_id != self._node_id():
            raise ServerInvalidState(action=action, server=uuid, attr="host", state=str(server.host))
        return server

    # --- questions ---

    def _console_output(self, context: RequestContext, payload: Payload) -> Payload:
        server = self._existing(payload["server_uuid"])
        with self.host.library(context, "console_log", server.uuid):
            text = self.host.connection.console_log(server.domain_name).decode("utf-8", "replace")
        length = payload.get("length")
        if length is not None:
            lines = text.splitlines(keepends=True)
            text = "".join(lines[-length:]) if length > 0 else ""
        return {"output": text}

    def _domain_xml(self, context: RequestContext, payload: Payload) -> Payload:
        server = self._existing(payload["server_uuid"])
        with self.host.library(context, "domain_xml", server.uuid, domain=server.domain_name):
            return {"xml": self.host.connection.domain_xml(server.domain_name)}

    def _update_resources(self, context: RequestContext, payload: Payload) -> Payload:
        self.inventory()
        reconcile(self.host)
        self._clean()
        if self.host.placement is not None:
            self.report()
        return {}

    def _scan(self, context: RequestContext, payload: Payload) -> Payload:
        with self.host.library(context, "node_devices"):
            documents = self.host.connection.node_devices()
        return {"functions": [function.to_json() for function in scan(documents, self.host.files)]}

    def _clean_device(self, context: RequestContext, payload: Payload) -> Payload:
        state = cleaning.clean(self.host, payload["address"], self._cleaning, self._cleaned, by_hand=payload["by_hand"])
        return {"state": state}

    # --- devices between two servers ---

    def _follow_devices(self) -> None:
        """A server got devices, or gave some back: what has to follow at once, and not only with the next pass."""
        with self.host.database.read() as conn:
            try:
                node_id = compute_nodes.of_host(conn, self.host.name).id
            except HostNotFound:
                return  # it left the fleet meanwhile
            devices = pci_devices.of_host(conn, node_id)
        if any(device.condition is Condition.CLEANING for device in devices):
            self._clean()
        if any(device.extra_info.get(MARK) in (USED, CLEANED) for device in devices):
            self._ask_report(self.providers.run)

    # --- what the hypervisor tells ---

    def _on_event(self, event: HypervisorEvent) -> None:
        if self._retired:
            return
        if event.kind == "domain-stopped":
            with self._guard:
                self._stopped.add(event.name)
            self._waits.stopped(event.name)
            self._background(lambda: self._follow_domain(event.name))
        elif event.kind in ("device-added", "device-removed"):
            with self._guard:
                if self._inventory_pending:
                    return
                self._inventory_pending = True
            self._background(self._inventory_by_event)

    def _inventory_by_event(self) -> None:
        with self._guard:
            self._inventory_pending = False
        try:
            self.inventory()
        except JetbridgeError as error:
            logger.error("Inventory of host %s failed: %s", self.host.name, error)

    def _follow_domain(self, name: str) -> None:
        with self.host.database.read() as conn:
            placed = servers.of_host(conn, self.host.name)
        server = next((server for server in placed if server.domain_name == name), None)
        if server is None:
            with self._guard:
                self._stopped.discard(name)
        elif server.task_state is None and server.vm_state is not VmState.BUILDING:
            self._catch_up(server.uuid)  # otherwise whoever works on it looks when done

    def _catch_up(self, uuid: str) -> None:
        """A domain may have stopped while its server was busy: the server follows now."""
        server = self._server(uuid)
        if server is None:
            return
        with self._guard:
            if server.domain_name not in self._stopped:
                return
        with self.host.locks.hold(uuid):
            with self._guard:
                self._stopped.discard(server.domain_name)
            server = self._server(uuid)
            if server is None or server.task_state is not None or server.compute_node_id != self._node_id():
                return
            info = power.info_of(self.host, server)
            if power.record_state(self.host, server, info, task_ended=False):
                logger.info(
                    "Server %s on host %s is %s by itself",
                    uuid,
                    self.host.name,
                    info.state if info else "gone",
                    extra=about(None, uuid),
                )

    # --- rows ---

    def _waiting_build(self, build_id: int) -> Build | None:
        with self.host.database.read() as conn:
            try:
                build = builds.get(conn, build_id)
            except NotFound:
                return None
        begun = build.step is not None
        return build if build.state == "running" and build.host == self.host.name and not begun else None

    def _server(self, uuid: str) -> Server | None:
        with self.host.database.read() as conn:
            return servers.get_many(conn, [uuid]).get(uuid)

    def _existing(self, uuid: str) -> Server:
        server = self._server(uuid)
        if server is None:
            raise ServerNotFound(server=uuid)
        return server

    def _node_id(self) -> int:
        with self.host.database.read() as conn:
            return compute_nodes.of_host(conn, self.host.name).id

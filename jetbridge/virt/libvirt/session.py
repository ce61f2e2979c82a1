"""The way to a libvirt daemon: connecting and connecting again, calls with deadlines, errors in our words, events."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from jetbridge.errors import DomainNotFound, HypervisorError, HypervisorUnavailable
from jetbridge.virt.connection import HypervisorEvent
from jetbridge.virt.libvirt.binding import acquire_loop, load_binding, release_loop
from jetbridge.virt.libvirt.calls import CallPool

logger = logging.getLogger(__name__)
T = TypeVar("T")

DEADLINES: Mapping[str, float] = {
    "connect": 15.0,
    "close": 5.0,
    "start_domain": 600.0,  # all memory of a guest with devices is pinned before it runs: minutes for a terabyte
    "destroy_domain": 120.0,  # a device's reset may take long
    "attach_device": 120.0,
    "detach_device": 120.0,
    "node_devices": 60.0,
}
"""Seconds per call; what isn't named has ``DEFAULT_DEADLINE``."""
DEFAULT_DEADLINE = 30.0
_KEEPALIVE_SECONDS, _KEEPALIVE_COUNT = 5, 3
_FIX = (
    "Install and start libvirt (packages libvirt-daemon-system and qemu-system-x86) and run as root or in its group,"
    " name another [libvirt]connection_uri, or simulate hosts with --fleet"
)


class Session:
    """One connection to ``uri``, made again when it breaks.

    Events of the time between are missed. Raises ``HypervisorUnavailable`` when nobody answers at first.
    """

    def __init__(self, uri: str, host: str, *, deadlines: Mapping[str, float] = DEADLINES, threads: int = 8) -> None:
        self._uri = uri
        self._host = host
        self._deadlines = deadlines
        self.libvirt = load_binding(uri)
        self._listeners: list[Callable[[HypervisorEvent], None]] = []
        self._lock = threading.Lock()  # of _virt and _undoes
        self._virt: Any = None
        self._undoes: list[Callable[[], Any]] = []  # of event registrations
        self._closed = False
        acquire_loop(self.libvirt)
        self._pool = CallPool(host, threads)
        try:
            self.call("connect", lambda virt: virt.getLibVersion())
        except HypervisorError as error:
            self.close()
            if isinstance(error, HypervisorUnavailable):
                raise
            raise HypervisorUnavailable(uri=uri, reason=error.message) from error

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(HypervisorError):
            self._pool.run("close", self._disconnect, self._deadline("close"))
        self._pool.close()
        release_loop()

    # --- calls ---

    def call(
        self, method: str, function: Callable[[Any], T], *, subject: str | None = None, repeatable: bool = False
    ) -> T:
        """``function`` of the connection, within the deadline of ``method``; ``subject`` is the domain or device meant.

        ``repeatable``: asked once more when the connection breaks. Other calls may have taken effect by then: their
        caller has to look. Raises ``DomainNotFound``, ``HypervisorUnavailable`` or ``HypervisorError`` with libvirt's text.
        """

        def attempt() -> T:
            virt = self._connected()
            try:
                return function(virt)
            except self.libvirt.libvirtError as error:
                if not self._broken(virt, error):
                    raise
                self._drop(virt)
                if not repeatable:
                    raise
            return function(self._connected())

        self._refuse_when_closed()
        operation = method if subject is None else f"{method} {subject}"
        try:
            return self._pool.run(operation, attempt, self._deadline(method))
        except self.libvirt.libvirtError as error:
            raise self._translated(error, operation, subject) from error

    def unless_gone(self, ask: Callable[[int], T], noun: str) -> T | None:
        """``ask(0)``, or None when the object (DOMAIN, NETWORK, NODE_DEVICE) vanished since it was listed."""
        try:
            return ask(0)
        except self.libvirt.libvirtError as error:
            if error.get_error_code() == getattr(self.libvirt, f"VIR_ERR_NO_{noun}"):
                return None
            raise

    @contextlib.contextmanager
    def optional(self) -> Iterator[None]:
        """Around what some drivers don't have (libvirt's test driver: keep-alive)."""
        try:
            yield
        except self.libvirt.libvirtError as error:
            if error.get_error_code() != self.libvirt.VIR_ERR_NO_SUPPORT:
                raise

    def _deadline(self, method: str) -> float:
        return self._deadlines.get(method, DEFAULT_DEADLINE)

    def _translated(self, error: Any, operation: str, subject: str | None) -> HypervisorError:
        if error.get_error_code() == self.libvirt.VIR_ERR_NO_DOMAIN:
            return DomainNotFound(name=subject, host=self._host)
        with self._lock:
            connected = self._virt is not None
        if not connected or error.get_error_domain() == self.libvirt.VIR_FROM_RPC:
            return HypervisorUnavailable(uri=self._uri, reason=f"{error}. {_FIX}")
        return HypervisorError(operation=operation, host=self._host, reason=str(error))

    # --- the connection ---

    def _connected(self) -> Any:
        with self._lock:
            self._refuse_when_closed()  # it may have waited in the queue until then
            if self._virt is not None and self._virt.isAlive():
                return self._virt
            if self._virt is not None:
                logger.warning("host %s: the connection to %s broke: connecting again", self._host, self._uri)
                self._forget()
            virt = self.libvirt.open(self._uri)
            with self.optional():
                virt.setKeepAlive(_KEEPALIVE_SECONDS, _KEEPALIVE_COUNT)
            self._virt = virt
            self._register_events(virt)
            return virt

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise HypervisorUnavailable(uri=self._uri, reason="the connection was closed")

    def _broken(self, virt: Any, error: Any) -> bool:
        """True when the error is of the way to the daemon, not of the daemon."""
        return error.get_error_domain() == self.libvirt.VIR_FROM_RPC or not virt.isAlive()

    def _drop(self, virt: Any) -> None:
        with self._lock:
            if self._virt is virt:
                logger.warning("host %s: the connection to %s broke", self._host, self._uri)
                self._forget()

    def _disconnect(self) -> None:
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        virt, self._virt = self._virt, None
        undoes, self._undoes = self._undoes, []
        for undo in (*undoes, *((virt.close,) if virt is not None else ())):
            with contextlib.suppress(self.libvirt.libvirtError):
                undo()

    # --- events ---

    def subscribe(self, listener: Callable[[HypervisorEvent], None]) -> None:
        self._listeners.append(listener)

    def _emit(self, kind: str | None, name: str) -> None:
        if kind is None:
            return
        for listener in tuple(self._listeners):
            try:
                listener(HypervisorEvent(kind, name))
            except Exception:  # one listener's fault must not be everyone's
                logger.exception("host %s: a listener failed on %s %s", self._host, kind, name)

    def _register_events(self, virt: Any) -> None:
        lib = self.libvirt
        domain_kinds = {
            lib.VIR_DOMAIN_EVENT_STARTED: "domain-started",
            lib.VIR_DOMAIN_EVENT_STOPPED: "domain-stopped",
            lib.VIR_DOMAIN_EVENT_CRASHED: "domain-stopped",
        }
        device_kinds = {
            lib.VIR_NODE_DEVICE_EVENT_CREATED: "device-added",
            lib.VIR_NODE_DEVICE_EVENT_DELETED: "device-removed",
        }

        def on_domain(_virt: Any, domain: Any, event: int, _detail: int, _opaque: Any) -> None:
            self._emit(domain_kinds.get(event), domain.name())

        def on_device(_virt: Any, device: Any, event: int, _detail: int, _opaque: Any) -> None:
            self._emit(device_kinds.get(event), device.name())

        with self.optional():
            domains = virt.domainEventRegisterAny(None, lib.VIR_DOMAIN_EVENT_ID_LIFECYCLE, on_domain, None)
            self._undoes.append(lambda: virt.domainEventDeregisterAny(domains))
        with self.optional():
            devices = virt.nodeDeviceEventRegisterAny(None, lib.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE, on_device, None)
            self._undoes.append(lambda: virt.nodeDeviceEventDeregisterAny(devices))

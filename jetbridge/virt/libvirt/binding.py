"""The Python binding of libvirt: there or not, and the one event loop it allows a process."""

from __future__ import annotations

import importlib
import logging
import threading
from typing import Any

from jetbridge.errors import HypervisorUnavailable

logger = logging.getLogger(__name__)

# libvirt keeps event loop and error handler per process, whatever the number of connections: hence module state.
_lock = threading.Lock()
_loop: EventLoop | None = None
_users = 0


def load_binding(uri: str) -> Any:
    """The ``libvirt`` module. Imported only when a connection is made: simulated fleets run without it.

    Raises ``HypervisorUnavailable`` saying what to install.
    """
    try:
        return importlib.import_module("libvirt")
    except ImportError as error:
        raise HypervisorUnavailable(
            uri=uri,
            reason=f"Python's libvirt binding is missing ({error}). Install libvirt-daemon-system, qemu-system-x86, libvirt-dev"
            " and pkg-config, then `pip install libvirt-python==$(pkg-config --modversion libvirt)` into this Python's"
            " environment; or simulate hosts with --fleet",
        ) from None


class EventLoop:
    """One thread that runs libvirt's default event loop: events, and notice of connections that die."""

    def __init__(self, libvirt: Any) -> None:
        self._libvirt = libvirt
        libvirt.virEventRegisterDefaultImpl()  # has to come before the first connection
        libvirt.registerErrorHandler(lambda _context, _error: None, None)  # else every error is printed, too
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # A timer that never fires by itself: firing it wakes the loop, which otherwise sleeps until an event.
        self._waker = libvirt.virEventAddTimeout(-1, lambda _timer, _opaque: None, None)

    def start(self) -> None:
        self._stopping.clear()
        self._libvirt.virEventUpdateTimeout(self._waker, -1)
        self._thread = threading.Thread(target=self._run, name="libvirt-events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._libvirt.virEventUpdateTimeout(self._waker, 0)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)  # a listener that hangs must not hang whoever closes

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._libvirt.virEventRunDefaultImpl()
            except self._libvirt.libvirtError as error:
                logger.error("libvirt's event loop: %s", error)
                self._stopping.wait(1)


def acquire_loop(libvirt: Any) -> None:
    """Runs the event loop until as many ``release_loop`` calls."""
    global _loop, _users
    with _lock:
        if _loop is None:
            _loop = EventLoop(libvirt)
        if _users == 0:
            _loop.start()
        _users += 1


def release_loop() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0 and _loop is not None:
            _loop.stop()

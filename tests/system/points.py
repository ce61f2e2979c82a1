"""Where a process can die beside the steps of its flows: around every message it handles, and around every transaction of a handler
and of the API. Which there are is found out by servers that go every way of ``FLOWS``: a new handler or transaction there is among them."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import Any

from jetbridge.db.engine import Database
from jetbridge.rpc.inprocess import InProcessBus
from jetbridge.rpc.oslo import OsloBus
from jetbridge.steps.runtime import run_steps, undo_steps
from tests.system.cloud import T4, T4_ALIAS, Cloud, fleet, gpu, host

ARRIVED, HANDLED = "arrived", "handled"
WRITES, WRITTEN = "before-commit", "committed"
MOMENTS = (ARRIVED, HANDLED, WRITES, WRITTEN)

V100 = {"vendor_id": "10de", "product_id": "1db4"}
FLEET = fleet(
    host("h1", [gpu(1), gpu(2)]),
    host("h2", [{**gpu(1), **V100}], simulate={"fail": {"start_domain": {"error": "no luck"}}}),
    pci={"device_spec": [T4, V100], "alias": [T4_ALIAS, {"name": "BAD", **V100, "device_type": "type-PCI"}]},
)
FLOWS = {"build": "GPU:1", "delete": "GPU:1", "failed": "BAD:1", "refused": "GPU:3"}
"""What is asked for, by how it goes: a host builds it; it is deleted; the host fails, and there is no other; no host can."""

Observe = Callable[[str, str], None]

_here = threading.local()
"""``roles``: whose handlers this thread is in, the innermost last."""


@dataclass(frozen=True, order=True)
class Point:
    """``role`` is that of the service, as its command; ``name`` is told with ``moment``."""

    role: str
    name: str
    moment: str


def _in_step() -> bool:
    """What a step writes is killed around the step; what its undo writes isn't."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in (run_steps.__code__, undo_steps.__code__):
            return frame.f_code is run_steps.__code__
        frame = frame.f_back
    return False


def watch(observe: Observe) -> Callable[[], None]:
    """``observe`` is told every point of this process, until the answer is called."""
    buses = (InProcessBus, OsloBus)
    served, write = [bus.serve for bus in buses], Database.write
    for bus, serve in zip(buses, served, strict=True):
        bus.serve = _serving(serve, observe)  # type: ignore[method-assign]
    Database.write = _writing(write, observe)  # type: ignore[method-assign]

    def end() -> None:
        for bus, serve in zip(buses, served, strict=True):
            bus.serve = serve  # type: ignore[method-assign]
        Database.write = write  # type: ignore[method-assign]

    return end


def role_of() -> str | None:
    """Whose handler this thread is in."""
    roles: list[str] = getattr(_here, "roles", [])
    return roles[-1] if roles else None


def _serving(serve: Any, observe: Observe) -> Any:
    def watch(topic: str, method: str, handler: Any) -> Any:
        @wraps(handler)
        def handle(context: Any, payload: Any) -> Any:
            roles = _here.__dict__.setdefault("roles", [])
            roles.append(topic)
            try:
                observe(f"{topic}.{method}", ARRIVED)
                answer = handler(context, payload)
                observe(f"{topic}.{method}", HANDLED)
                return answer
            finally:
                roles.pop()

        return handle

    def serves(self: Any, topic: str, methods: Any, *, server: str | None = None) -> None:
        serve(self, topic, {name: watch(topic, name, handler) for name, handler in methods.items()}, server=server)

    return serves


def _writing(write: Any, observe: Observe) -> Any:
    def writes(self: Any, fn: Any) -> Any:
        room, _, function = fn.__module__.removeprefix("jetbridge.").partition(".")
        of_api = room == "api" and role_of() is None
        if not (of_api or role_of()) or _in_step():
            return write(self, fn)
        if of_api:
            _here.__dict__.setdefault("roles", []).append("api")
        name = f"{room}.{function}.{fn.__qualname__.partition('.<locals>')[0]}"
        try:
            observe(name, WRITES)
            answer = write(self, fn)
            observe(name, WRITTEN)
            return answer
        finally:
            if of_api:
                _here.roles.pop()

    return writes


@cache
def discovered() -> dict[str, tuple[Point, ...]]:
    """By the flow that passes them first."""
    found: dict[str, set[Point]] = {}
    known: set[Point] = set()
    now: list[set[Point]] = [set()]

    def note(name: str, moment: str) -> None:
        now[0].add(Point(role_of() or "", name, moment))

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(watch(note))
        cloud = Cloud(Path(folder))
        cloud.write_fleet(FLEET)
        cloud.start()
        bus = cloud.service and cloud.service.bus
        assert isinstance(bus, InProcessBus)
        try:
            flavors = {flow: make_flavor(cloud, flow) for flow in FLOWS}
            for flow in FLOWS:
                now[0] = found[flow] = set()
                go(cloud, flow, flavors[flow])
                cloud.until(lambda: bus._accepted == 0, "the last handler ended")
        finally:
            cloud.stop()
    points: dict[str, tuple[Point, ...]] = {}
    for flow in FLOWS:
        points[flow] = tuple(sorted(found[flow] - known))
        known |= found[flow]
    return points


def make_flavor(cloud: Cloud, flow: str) -> str:
    return cloud.flavor(flow, {"pci_passthrough:alias": FLOWS[flow]})


def go(cloud: Cloud, flow: str, flavor: str) -> None:
    """Let a server go the way ``flow``."""
    server_id = cloud.boot(flavor, config_drive=True)
    cloud.wait(server_id, "ACTIVE", "ERROR")
    if flow == "delete":
        cloud.delete(server_id)
        cloud.wait_gone(server_id)

"""A simulated host: its hardware, what it remembers, and how it misbehaves. Connection and files both stand on it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jetbridge.errors import HypervisorError, ProbeFailed
from jetbridge.model.fleet import FleetHost, VgpuTypeSpec
from jetbridge.virt.connection import HypervisorEvent
from jetbridge.virt.nodedev import parse_node_device
from jetbridge.virt.simulated.documents import not_started
from jetbridge.virt.simulated.hardware import Hardware, Part, hardware_of
from jetbridge.virt.simulated.host_xml import capabilities_document
from jetbridge.virt.simulated.state import Memory, Store
from jetbridge.virt.simulated.vgpus import available_types, creatable, vendor_type
from jetbridge.virt.vgpus import NO_TYPE

logger = logging.getLogger(__name__)


class SimulatedMachine:
    """``folder`` is where this host's state lies. Cheap to make: hardware and state are worked out when first needed."""

    def __init__(self, spec: FleetHost, folder: Path) -> None:
        self.spec = spec
        self.store = Store(spec.name, folder)
        self.lock = threading.RLock()
        self._hardware: Hardware | None = None
        self._memory: Memory | None = None
        self._listeners: list[Callable[[HypervisorEvent], None]] = []

    @property
    def host(self) -> str:
        return self.spec.name

    @property
    def hardware(self) -> Hardware:
        with self.lock:
            if self._hardware is None:
                self._hardware = hardware_of(self.spec)
            return self._hardware

    @property
    def memory(self) -> Memory:
        with self.lock:
            if self._memory is None:
                self._memory = self.store.load()
            return self._memory

    @contextmanager
    def changing(self) -> Iterator[Memory]:
        """The memory to change; saved at the end, and forgotten (as if nothing had happened) when anything fails."""
        with self.lock:
            try:
                yield self.memory
                self.store.save(self.memory)
            except BaseException:
                self._memory = None
                raise

    # --- the host's hardware ---

    def capabilities(self) -> str:
        """Those of the real documents, unless the fleet file says the NUMA cells itself."""
        given = self.hardware.capabilities if self.spec.numa is None else None
        return given or capabilities_document(self.spec)

    def parts(self) -> Mapping[str, Part]:
        return self.hardware.parts

    def driver_of(self, address: str) -> str | None:
        drivers = self.memory.drivers
        if address in drivers:
            return drivers[address]
        part = self.hardware.parts.get(address)
        return part.node.driver if part else None

    def set_driver(self, memory: Memory, address: str, driver: str | None) -> None:
        part = self.hardware.parts.get(address)
        if part is None or driver == part.node.driver:
            memory.drivers.pop(address, None)
        else:
            memory.drivers[address] = driver

    def documents(self) -> list[str]:
        """Every node device as it is now."""
        with self.lock:
            memory = self.memory
            return self.hardware.documents(
                {address: driver for address, driver in memory.drivers.items() if address in self.hardware.parts},
                [mdev.document if mdev.active else not_started(mdev.document) for mdev in memory.mdevs.values()],
                available_types(self.hardware, memory),
            )

    def probe(self) -> list[str]:
        """The answer to a listing of node devices, as right or wrong as ``simulate: discovery`` says."""
        mode = self.spec.simulate.discovery
        if mode == "raise":
            raise ProbeFailed(host=self.host, reason="internal error: the simulated node device driver does not answer")
        documents = self.documents()
        if mode == "empty":
            return []
        return documents[: len(documents) // 2] if mode == "half" else documents

    def apply(self, spec: FleetHost) -> None:
        """Other hardware, networks or knobs from now on. Running domains keep what they hold."""
        new = hardware_of(spec)
        with self.lock:
            old, before = self.hardware, self._names()
            held = {address for domain in self.memory.domains.values() if domain.running for address in domain.held}
            # Another card at the address starts on its own driver.
            stale = [
                address
                for address in self.memory.drivers.keys() - held
                if address not in new.parts or not _same(old.parts.get(address), new.parts[address])
            ]
            if stale:
                with self.changing() as memory:
                    for address in stale:
                        del memory.drivers[address]
            if spec != self.spec or new != old:
                self.store.journal({"call": "apply_hardware", "devices": sorted(new.parts)})
            self.spec, self._hardware = spec, new
            after = self._names()
        self.emit(*(HypervisorEvent("device-removed", name) for name in sorted(before - after)))
        self.emit(*(HypervisorEvent("device-added", name) for name in sorted(after - before)))

    def _names(self) -> set[str]:
        return {parse_node_device(text).name for text in self.documents()}

    # --- sysfs that was written ---

    def written(self, path: str) -> str | None:
        return self.memory.files.get(path)

    def vendor_type(self, address: str) -> str:
        return vendor_type(self.memory, address)

    def creatable_types(self, address: str) -> tuple[VgpuTypeSpec, ...]:
        return creatable(self.hardware, self.memory, self.hardware.parts[address])

    def set_vendor_type(self, address: str, path: str, number: str) -> None:
        """Gives a VF a type, or takes it away. Raises HypervisorError where the driver would refuse."""

        def refused(reason: str) -> HypervisorError:
            return HypervisorError(operation=f"write {number!r} to {path}", host=self.host, reason=reason)

        self.store.journal({"call": "write_text", "path": path, "text": number})
        with self.changing() as memory:
            if any(address in domain.held for domain in memory.domains.values() if domain.running):
                raise refused("Device or resource busy")
            if number != NO_TYPE and vendor_type(memory, address) != NO_TYPE:
                raise refused("Device or resource busy")
            if number != NO_TYPE and number not in {kind.number for kind in self.creatable_types(address)}:
                raise refused("Input/output error")
            memory.files[path] = number + "\n"

    def reboot(self) -> None:
        """The host starts anew: guests are off, and of what was made only what is defined comes back, and starts when it shall."""
        self.store.journal({"call": "reboot"})
        with self.changing() as memory:
            for name, domain in list(memory.domains.items()):
                domain.state, domain.live_xml, domain.id = "shutoff", None, None
                domain.held, domain.mdevs, domain.restore = [], [], {}
                if domain.xml is None:
                    del memory.domains[name]
            for mdev in memory.mdevs.values():
                mdev.active = mdev.autostart
            memory.drivers, memory.files = {}, {}

    def write(self, path: str, text: str) -> None:
        self.store.journal({"call": "write_text", "path": path, "text": text.strip()})
        with self.changing() as memory:
            memory.files[path] = text

    def bind(self, address: str, driver: str | None) -> None:
        self.store.journal({"call": "bind", "device": address, "driver": driver})
        with self.changing() as memory:
            holder = next((d.name for d in memory.domains.values() if d.running and address in d.held), None)
            if holder:
                reason = f"{address} is in use by domain {holder}"
                raise HypervisorError(operation="bind", host=self.host, reason=reason)
            self.set_driver(memory, address, driver)

    # --- misbehaviour, journal, events ---

    @contextmanager
    def call(self, name: str, **facts: Any) -> Iterator[None]:
        """One call of the connection: delayed or failed as the fleet says, and journalled with its outcome."""
        started = time.time()
        outcome: dict[str, Any] = {}
        try:
            self._misbehave(name)
            yield
        except BaseException as error:
            outcome = {"error": str(error)}
            raise
        finally:
            self.store.journal({"call": name, **facts, "started": round(started, 6), "ok": not outcome, **outcome})

    def _misbehave(self, name: str) -> None:
        delay = dict(self.spec.simulate.delay).get(name)
        if delay:
            time.sleep(delay)
        failure = next((failure for failure in self.spec.simulate.fail if failure.call == name), None)
        if failure is None:
            return
        if failure.times is not None:
            with self.changing() as memory:
                played = memory.failures.get(name)
                # Another failure than the one counted so far starts from the beginning.
                if played is None or played[:2] != [failure.error, failure.times]:
                    played = [failure.error, failure.times, 0]
                if played[2] >= failure.times:
                    return
                memory.failures[name] = [failure.error, failure.times, played[2] + 1]
        raise HypervisorError(operation=name, host=self.host, reason=failure.error)

    def subscribe(self, listener: Callable[[HypervisorEvent], None]) -> None:
        with self.lock:
            self._listeners.append(listener)

    def emit(self, *events: HypervisorEvent) -> None:
        """In the caller's thread: a thread per host would not do for thousands. Never under the lock."""
        for event in events:
            for listener in tuple(self._listeners):
                try:
                    listener(event)
                except Exception:
                    logger.exception("A listener failed on %s of host %s", event, self.host)


def _same(old: Part | None, new: Part) -> bool:
    if old is None:
        return False
    return (old.pci.vendor_id, old.pci.product_id, old.pci.card_serial_number) == (
        new.pci.vendor_id,
        new.pci.product_id,
        new.pci.card_serial_number,
    )

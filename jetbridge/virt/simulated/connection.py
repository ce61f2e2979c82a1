"""The simulated hypervisor behind the connection protocol. It outlives the process, as libvirtd does."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jetbridge.errors import DomainNotFound, HypervisorError
from jetbridge.model.fleet import FleetHost
from jetbridge.virt.capabilities import host_resources
from jetbridge.virt.connection import DiskRequest, DomainInfo, HypervisorEvent, HypervisorVersion, NetworkInfo
from jetbridge.virt.files import existing
from jetbridge.virt.simulated import mdevs
from jetbridge.virt.simulated.guest import (
    POWER_DOWN,
    RESTART,
    add_device,
    boot_messages,
    live_document,
    remove_device,
)
from jetbridge.virt.simulated.hardware import hardware_of
from jetbridge.virt.simulated.host_xml import DOMAIN_CAPABILITIES
from jetbridge.virt.simulated.machine import SimulatedMachine
from jetbridge.virt.simulated.rules import (
    PciUse,
    Refused,
    check_define,
    check_devices,
    check_mdevs,
    check_network,
    check_resources,
    device_use,
    lent_use,
    read_domain,
)
from jetbridge.virt.simulated.state import Domain, Memory
from jetbridge.virt.simulated.sysfs import SimulatedHostFiles
from jetbridge.virt.vfio import VFIO_DRIVERS

_ROOT_DISK, _CONFIG_DRIVE = "disk", "disk.config"


def open_fleet_host(host: FleetHost, state_dir: Path) -> tuple[SimulatedConnection, SimulatedHostFiles]:
    """The connection to a fleet host and its files. ``state_dir`` is shared by all hosts: each has a folder of its name.

    Raises InvalidFleet when the host's node-device documents can't be used."""
    machine = SimulatedMachine(host, state_dir / host.name)
    if host.nodedevs:
        _ = machine.hardware  # real documents may be wrong: say so now
    return SimulatedConnection(machine), SimulatedHostFiles(machine)


def check_fleet_host(host: FleetHost) -> None:
    """Raises InvalidFleet when the host's hardware can't be played. Changes nothing."""
    hardware_of(host)


class SimulatedConnection:
    """``HypervisorConnection`` over a ``SimulatedMachine``."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine

    @property
    def host(self) -> str:
        return self._machine.host

    @property
    def journal_path(self) -> Path:
        """One JSON object a line: ``at`` (seconds since the epoch), ``call``, its facts, ``ok`` or ``error``. ``give`` and
        ``take-back`` say which ``devices`` a ``domain`` holds from then on, and no longer."""
        return self._machine.store.folder / "journal.jsonl"

    def close(self) -> None:
        """Nothing is open between calls."""

    def version(self) -> HypervisorVersion:
        with self._call("version"):
            return HypervisorVersion(libvirt=10_000_000, hypervisor=8_002_002, type="QEMU")

    # --- the host ---

    def capabilities(self) -> str:
        with self._call("capabilities"):
            return self._machine.capabilities()

    def domain_capabilities(self) -> str | None:
        with self._call("domain_capabilities"):
            return self._machine.hardware.domain_capabilities or DOMAIN_CAPABILITIES

    def node_devices(self) -> Sequence[str]:
        """As right or wrong as the fleet's ``discovery`` says: whoever reads it must check that it is whole
        (``virt.nodedev.check_complete``; ``host_report`` does)."""
        with self._call("node_devices"):
            return self._machine.probe()

    def networks(self) -> Sequence[NetworkInfo]:
        with self._call("networks"):
            return [NetworkInfo(name=name, kind="network") for name in self._machine.spec.networks]

    # --- domains ---

    def define_domain(self, xml: str) -> None:
        with self._call("define_domain"), self._machine.changing() as memory:
            document = read_domain(xml)
            check_define(document, memory.domains)
            known = memory.domains.get(document.name)
            if known:
                known.xml = xml
            else:
                memory.domains[document.name] = Domain(document.name, document.uuid, xml)

    def start_domain(self, name: str) -> None:
        with self._call("start_domain", domain=name), self._machine.changing() as memory:
            domain = self._domain(memory, name)
            if domain.running:
                raise Refused("Requested operation is not valid: domain is already running")
            assert domain.xml is not None
            document = read_domain(domain.xml)
            resources = host_resources(self._machine.capabilities(), None, None)
            check_resources(document, self._machine.spec.networks, resources)
            uses = [*document.pci, *(lent_use(path, self._machine) for path in document.lent)]
            check_devices(uses, name, memory.domains, self._machine)
            check_mdevs(document.mdevs, name, memory.domains, mdevs.active_uuids(self._machine, memory))
            domain.mdevs = list(document.mdevs)
            memory.last_id += 1
            domain.id = memory.last_id
            domain.live_xml = live_document(domain.xml, domain.id)
            domain.state = "running"
            self._write_console(name, boot_messages(domain.live_xml, self._machine.parts()), new=True)
            self._give(memory, domain, uses)
        self._machine.emit(HypervisorEvent("domain-started", name))

    def shutdown_domain(self, name: str) -> None:
        """The simulated guest obeys at once."""
        with self._call("shutdown_domain", domain=name):
            with self._machine.lock:
                self._running(self._machine.memory, name)
            self._stop(name, POWER_DOWN)
        self._machine.emit(HypervisorEvent("domain-stopped", name))

    def destroy_domain(self, name: str) -> None:
        with self._call("destroy_domain", domain=name):
            stopped = self._stop(name, "")
        if stopped:
            self._machine.emit(HypervisorEvent("domain-stopped", name))

    def guest_poweroff(self, name: str) -> None:
        """The guest powers itself off: nothing was asked of the hypervisor."""
        if self._stop(name, POWER_DOWN):
            self._machine.emit(HypervisorEvent("domain-stopped", name))

    def reboot_domain(self, name: str) -> None:
        with self._call("reboot_domain", domain=name), self._machine.lock:
            domain = self._running(self._machine.memory, name)
            assert domain.live_xml is not None
            self._write_console(name, RESTART + boot_messages(domain.live_xml, self._machine.parts()))

    def undefine_domain(self, name: str, *, nvram: bool = False) -> None:
        with self._call("undefine_domain", domain=name), self._machine.changing() as memory:
            domain = memory.domains.get(name)
            if domain is None:
                return
            domain.xml = None
            if not domain.running:
                del memory.domains[name]

    def domains(self) -> Sequence[DomainInfo]:
        with self._call("domains"), self._machine.lock:
            found = self._machine.memory.domains.values()
            return [DomainInfo(d.name, d.uuid, "running" if d.running else "shutoff") for d in found]

    def domain_xml(self, name: str, *, defined: bool = False) -> str:
        with self._call("domain_xml", domain=name), self._machine.lock:
            domain = self._domain(self._machine.memory, name)
            xml = domain.live_xml if domain.running and not (defined and domain.xml) else domain.xml
            assert xml is not None
            return xml

    def attach_device(self, domain: str, xml: str) -> None:
        with self._call("attach_device", domain=domain), self._machine.changing() as memory:
            found = self._domain(memory, domain)
            use = device_use(xml, self._machine)
            for text in (found.live_xml, found.xml):
                if use and text and use.address in {u.address for u in read_domain(text).pci}:
                    raise Refused(f"operation failed: target pci device {use.address} already exists")
            check_network(xml, self._machine.spec.networks)
            if found.running:
                if use:
                    if use.address in found.held:
                        raise Refused(f"Requested operation is not valid: {use.address} is in use by domain {domain}")
                    check_devices([use], domain, memory.domains, self._machine)
                    self._give(memory, found, [use])
                assert found.live_xml is not None
                assert found.id is not None
                found.live_xml = live_document(add_device(found.live_xml, xml), found.id)
            if found.xml is not None:
                found.xml = add_device(found.xml, xml)

    def detach_device(self, domain: str, xml: str, *, defined: bool = False) -> None:
        with self._call("detach_device", domain=domain), self._machine.changing() as memory:
            found = self._domain(memory, domain)
            use = device_use(xml, self._machine)
            live = found.running and not defined
            current = found.live_xml if live else found.xml
            assert current is not None
            without = remove_device(current, xml)
            if without is None:
                what = f"host pci device {use.address}" if use else "matching network device"
                raise Refused(f"device not found: {what} not found")
            if not live:
                found.xml = without
            elif not self._machine.spec.simulate.deaf:
                found.live_xml = without
                if use and use.address in found.held:
                    self._take_back(memory, found, [use.address])

    # --- mediated devices ---

    def create_mdev(self, xml: str) -> str:
        with self._call("create_mdev"), self._machine.changing() as memory:
            record = mdevs.new(self._machine, memory, xml)
            memory.mdevs[record.name] = record
        self._machine.emit(HypervisorEvent("device-added", record.name))
        return record.name

    def start_mdev(self, name: str) -> None:
        with self._call("start_mdev", device=name), self._machine.changing() as memory:
            mdevs.start(self._machine, memory, name)
        self._machine.emit(HypervisorEvent("device-added", name))

    def destroy_mdev(self, name: str) -> None:
        with self._call("destroy_mdev", device=name), self._machine.changing() as memory:
            gone = mdevs.remove(memory, name)
        if gone:
            self._machine.emit(HypervisorEvent("device-removed", name))

    def stop_mdev(self, name: str) -> None:
        """Somebody stops a device that stays defined: as `virsh nodedev-destroy` does."""
        with self._machine.changing() as memory:
            mdevs.stop(memory, name)
        self._machine.emit(HypervisorEvent("device-removed", name))

    def reboot_host(self) -> None:
        """The machine itself restarts."""
        self._machine.reboot()

    # --- files that belong to a guest ---

    def create_root_disk(self, disk: DiskRequest) -> Path:
        with self._call("create_root_disk", domain=disk.domain):
            if disk.base is not None and not disk.base.exists():
                raise Refused(f"qemu-img: Could not open '{disk.base}': No such file or directory")
            about = {"base": str(disk.base) if disk.base else None, "format": disk.base_format, "size_gb": disk.size_gb}
            return self._write_marker(disk.domain, _ROOT_DISK, about)

    def create_config_drive(self, domain: str, files: Mapping[str, bytes]) -> Path:
        with self._call("create_config_drive", domain=domain):
            content = {path: base64.b64encode(data).decode() for path, data in files.items()}
            return self._write_marker(domain, _CONFIG_DRIVE, {"label": "config-2", "files": content})

    def delete_guest_files(self, domain: str) -> None:
        with self._call("delete_guest_files", domain=domain):
            folder = self._guest_folder(domain)
            for name in (_ROOT_DISK, _CONFIG_DRIVE, "console.log"):
                (folder / name).unlink(missing_ok=True)
            if folder.exists():
                folder.rmdir()

    def console_log(self, domain: str) -> bytes:
        with self._call("console_log", domain=domain):
            try:
                return self.console_log_path(domain).read_bytes()
            except FileNotFoundError:
                return b""

    def console_log_path(self, domain: str) -> Path:
        return self._guest_folder(domain) / "console.log"

    # --- events, and hardware that changes ---

    def subscribe(self, listener: Callable[[HypervisorEvent], None]) -> None:
        """``listener`` is called in the thread whose call caused the event, after that call took effect."""
        self._machine.subscribe(listener)

    def apply_hardware(self, host: FleetHost) -> None:
        """The host as a changed fleet file has it. Raises InvalidFleet, and then nothing has changed."""
        self._machine.apply(host)

    # --- inside ---

    @contextmanager
    def _call(self, name: str, **facts: str) -> Iterator[None]:
        try:
            with self._machine.call(name, **facts):
                yield
        except Refused as refusal:
            raise HypervisorError(operation=name, host=self.host, reason=str(refusal)) from refusal
        except OSError as error:
            raise HypervisorError(operation=name, host=self.host, reason=str(error)) from error

    def _domain(self, memory: Memory, name: str) -> Domain:
        if name not in memory.domains:
            raise DomainNotFound(name=name, host=self.host)
        return memory.domains[name]

    def _running(self, memory: Memory, name: str) -> Domain:
        domain = self._domain(memory, name)
        if not domain.running:
            raise Refused("Requested operation is not valid: domain is not running")
        return domain

    def _give(self, memory: Memory, domain: Domain, uses: Sequence[PciUse]) -> None:
        for use in uses:
            driver = self._machine.driver_of(use.address)
            if use.managed and not use.lent and driver not in VFIO_DRIVERS:
                domain.restore[use.address] = driver
                self._machine.set_driver(memory, use.address, "vfio-pci")
            domain.held.append(use.address)
        if uses:
            devices = [use.address for use in uses]
            self._machine.store.journal({"call": "give", "domain": domain.name, "devices": devices})

    def _take_back(self, memory: Memory, domain: Domain, addresses: Sequence[str]) -> None:
        for address in addresses:
            domain.held.remove(address)
            if address in domain.restore:
                self._machine.set_driver(memory, address, domain.restore.pop(address))
        if addresses:
            self._machine.store.journal({"call": "take-back", "domain": domain.name, "devices": list(addresses)})

    def _stop(self, name: str, last_words: str) -> bool:
        with self._machine.lock:
            domain = self._machine.memory.domains.get(name)
            if domain is None or not domain.running:
                return False
            with self._machine.changing() as memory:
                self._take_back(memory, domain, list(domain.held))
                domain.state, domain.live_xml, domain.id, domain.mdevs = "shutoff", None, None, []
                if domain.xml is None:
                    del memory.domains[name]
            if last_words:
                self._write_console(name, last_words)
        return True

    def disk_paths(self, domain: str) -> tuple[Path | None, Path | None]:
        return existing(self._guest_folder(domain), _ROOT_DISK, _CONFIG_DRIVE)

    def _guest_folder(self, domain: str) -> Path:
        return self._machine.store.folder / "guests" / domain

    def _write_marker(self, domain: str, name: str, about: Mapping[str, object]) -> Path:
        """No real disk: a small file that tells what it stands for."""
        path = self._guest_folder(domain) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"simulated": name, **about}, indent=1) + "\n")
        return path

    def _write_console(self, domain: str, text: str, *, new: bool = False) -> None:
        path = self.console_log_path(domain)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if new else "a") as stream:
            stream.write(text)

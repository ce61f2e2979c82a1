"""A host's libvirt behind the hypervisor seam."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jetbridge.errors import DomainNotFound, HypervisorError, HypervisorUnavailable, ProbeFailed
from jetbridge.virt import files as guest_files
from jetbridge.virt.connection import (
    DiskRequest,
    DomainInfo,
    DomainState,
    HostFiles,
    HypervisorEvent,
    HypervisorVersion,
    NetworkInfo,
)
from jetbridge.virt.libvirt.explain import explain_start_failure
from jetbridge.virt.libvirt.files import LocalHostFiles
from jetbridge.virt.libvirt.session import DEADLINES, Session

logger = logging.getLogger(__name__)
_NET = "/sys/class/net"
_ROOT_DISK, _CONFIG_DRIVE = "root.qcow2", "config-drive.iso"
_ROTATED_LOGS = (".2", ".1", ".0", "")  # virtlogd's names, oldest first


class LibvirtConnection:
    """``HypervisorConnection`` over libvirt-python.

    ``state_dir`` is where guests' files are kept; ``files`` is the sysfs of the same machine. After the daemon restarts the
    next call connects again; events of the time between are missed, as are those of any other interruption: who
    listens also has to look from time to time. Raises ``HypervisorUnavailable`` when nobody answers at first.
    """

    def __init__(
        self,
        uri: str,
        host: str,
        state_dir: Path,
        *,
        files: HostFiles | None = None,
        deadlines: Mapping[str, float] = DEADLINES,
        threads: int = 8,
    ) -> None:
        self._host = host
        self._state_dir = Path(state_dir)
        self._files = files if files is not None else LocalHostFiles(host=host)
        self._session = Session(uri, host, deadlines=deadlines, threads=threads)
        self._libvirt = self._session.libvirt

    @property
    def host(self) -> str:
        return self._host

    def close(self) -> None:
        self._session.close()

    # --- the host ---

    def version(self) -> HypervisorVersion:
        def ask(virt: Any) -> HypervisorVersion:
            return HypervisorVersion(virt.getLibVersion(), virt.getVersion(), virt.getType())

        return self._session.call("version", ask, repeatable=True)

    def capabilities(self) -> str:
        return self._session.call("capabilities", lambda virt: str(virt.getCapabilities()), repeatable=True)

    def domain_capabilities(self) -> str | None:
        def ask(virt: Any) -> str | None:
            try:
                return str(virt.getDomainCapabilities(None, None, None, None, 0))
            except self._libvirt.libvirtError as error:
                if error.get_error_code() == self._libvirt.VIR_ERR_NO_SUPPORT:
                    return None
                raise

        return self._session.call("domain_capabilities", ask, repeatable=True)

    def node_devices(self) -> Sequence[str]:
        def ask(virt: Any) -> tuple[int, list[str]]:
            devices = virt.listAllDevices(0)
            return len(devices), [
                xml
                for device in devices
                if (xml := self._session.unless_gone(device.XMLDesc, "NODE_DEVICE")) is not None
            ]

        try:
            listed, documents = self._session.call("node_devices", ask, repeatable=True)
        except HypervisorUnavailable:
            raise
        except HypervisorError as error:
            raise ProbeFailed(host=self._host, reason=error.message) from error
        if not documents:
            # Every machine has at least the device "computer": none at all means that libvirt itself doesn't know yet.
            raise ProbeFailed(
                host=self._host, reason=f"libvirt listed {listed} node devices and described none of them"
            )
        return tuple(documents)

    def networks(self) -> Sequence[NetworkInfo]:
        """libvirt's networks, and bridges of the host that don't belong to one of them."""

        def ask(virt: Any) -> list[tuple[NetworkInfo, str | None]]:
            listed = (
                self._session.unless_gone(self._describe(network), "NETWORK") for network in virt.listAllNetworks(0)
            )
            return [network for network in listed if network is not None]

        known = self._session.call("networks", ask, repeatable=True)
        taken = {bridge for _, bridge in known} | {network.name for network, _ in known}
        bridges = [
            NetworkInfo(name, "bridge", mac=(self._files.read_text(f"{_NET}/{name}/address") or "").strip() or None)
            for name in self._files.list_dir(_NET)
            if name not in taken and self._files.list_dir(f"{_NET}/{name}/bridge")
        ]
        return (*(network for network, _ in known), *bridges)

    def _describe(self, network: Any) -> Callable[[int], tuple[NetworkInfo, str | None]]:
        def ask(_flags: int) -> tuple[NetworkInfo, str | None]:
            info = NetworkInfo(network.name(), "network", bool(network.isActive()))
            try:
                return info, network.bridgeName()
            except self._libvirt.libvirtError as error:
                if error.get_error_code() == self._libvirt.VIR_ERR_NO_NETWORK:
                    raise
                return info, None  # networks that pass frames on to an interface have no bridge

        return ask

    # --- domains ---

    def define_domain(self, xml: str) -> None:
        self._session.call(
            "define_domain",
            lambda virt: virt.defineXMLFlags(xml, self._libvirt.VIR_DOMAIN_DEFINE_VALIDATE),
        )

    def start_domain(self, name: str) -> None:
        def start(virt: Any) -> None:
            domain = virt.lookupByName(name)
            try:
                domain.create()
            except self._libvirt.libvirtError as error:
                reason = explain_start_failure(str(error), self._state_dir)
                if reason == str(error):
                    raise
                raise HypervisorError(operation=f"start_domain {name}", host=self._host, reason=reason) from error

        self._session.call("start_domain", start, subject=name)

    def shutdown_domain(self, name: str) -> None:
        self._session.call("shutdown_domain", lambda virt: virt.lookupByName(name).shutdown(), subject=name)

    def destroy_domain(self, name: str) -> None:
        def destroy(virt: Any) -> None:
            domain = virt.lookupByName(name)
            try:
                domain.destroy()
            except self._libvirt.libvirtError as error:
                if error.get_error_code() != self._libvirt.VIR_ERR_OPERATION_INVALID or domain.isActive():
                    raise

        with contextlib.suppress(DomainNotFound):
            self._session.call("destroy_domain", destroy, subject=name)

    def reboot_domain(self, name: str) -> None:
        self._session.call("reboot_domain", lambda virt: virt.lookupByName(name).reboot(0), subject=name)

    def undefine_domain(self, name: str, *, nvram: bool = False) -> None:
        flags = self._libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | self._libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        if nvram:
            flags |= self._libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
        with contextlib.suppress(DomainNotFound):
            self._session.call(
                "undefine_domain", lambda virt: virt.lookupByName(name).undefineFlags(flags), subject=name
            )

    def domains(self) -> Sequence[DomainInfo]:
        def describe(domain: Any) -> DomainInfo | None:
            def look(flags: int) -> DomainInfo:
                return DomainInfo(domain.name(), domain.UUIDString(), self._state(domain.state(flags)[0]))

            return self._session.unless_gone(look, "DOMAIN")

        def ask(virt: Any) -> tuple[DomainInfo, ...]:
            return tuple(info for domain in virt.listAllDomains(0) if (info := describe(domain)) is not None)

        return self._session.call("domains", ask, repeatable=True)

    def domain_xml(self, name: str, *, defined: bool = False) -> str:
        flags = self._libvirt.VIR_DOMAIN_XML_INACTIVE if defined else 0
        return self._session.call(
            "domain_xml", lambda virt: str(virt.lookupByName(name).XMLDesc(flags)), subject=name, repeatable=True
        )

    def attach_device(self, domain: str, xml: str) -> None:
        def attach(virt: Any) -> None:
            found = virt.lookupByName(domain)
            flags: int = self._libvirt.VIR_DOMAIN_AFFECT_CONFIG if found.isPersistent() else 0
            found.attachDeviceFlags(xml, flags | (self._libvirt.VIR_DOMAIN_AFFECT_LIVE if found.isActive() else 0))

        self._session.call("attach_device", attach, subject=domain)

    def detach_device(self, domain: str, xml: str, *, defined: bool = False) -> None:
        # Never both at once: libvirt takes the device out of the definition even when the guest doesn't let go, and when it is asked again
        # it doesn't find it there.
        def detach(virt: Any) -> None:
            found = virt.lookupByName(domain)
            live = found.isActive() and not defined
            found.detachDeviceFlags(
                xml, self._libvirt.VIR_DOMAIN_AFFECT_LIVE if live else self._libvirt.VIR_DOMAIN_AFFECT_CONFIG
            )

        self._session.call("detach_device", detach, subject=domain)

    # --- mediated devices ---

    def create_mdev(self, xml: str) -> str:
        def create(virt: Any) -> str:
            device = virt.nodeDeviceDefineXML(xml, 0)
            try:
                device.create(0)
            except self._libvirt.libvirtError:
                with contextlib.suppress(self._libvirt.libvirtError):
                    device.undefine(0)
                raise
            try:
                device.setAutostart(1)
            except self._libvirt.libvirtError as error:
                # It is there; and after a restart of the host whoever owns it starts it again.
                logger.info("host %s: %s won't start with the host: %s", self._host, device.name(), error)
            return str(device.name())

        return self._session.call("create_mdev", create)

    def start_mdev(self, name: str) -> None:
        self._session.call("start_mdev", lambda virt: virt.nodeDeviceLookupByName(name).create(0), subject=name)

    def destroy_mdev(self, name: str) -> None:
        def destroy(virt: Any) -> None:
            device = virt.nodeDeviceLookupByName(name)
            if device.isActive():
                device.destroy()
            if device.isPersistent():
                device.undefine(0)

        self._session.call(
            "destroy_mdev",
            lambda virt: self._session.unless_gone(lambda _f: destroy(virt), "NODE_DEVICE"),
            subject=name,
        )

    # --- files that belong to a guest ---

    def create_root_disk(self, disk: DiskRequest) -> Path:
        path = self._folder(disk.domain) / _ROOT_DISK
        guest_files.create_root_disk(disk, path, host=self._host)
        closed = guest_files.closed_folder(path)
        if closed is not None:
            logger.warning(
                "host %s: %s can't be passed by other users: if QEMU doesn't run as root, %s won't start; `chmod o+x %s`",
                self._host, closed, disk.domain, closed,
            )  # fmt: skip
        return path

    def create_config_drive(self, domain: str, files: Mapping[str, bytes]) -> Path:
        path = self._folder(domain) / _CONFIG_DRIVE
        guest_files.create_config_drive(files, path)
        return path

    def delete_guest_files(self, domain: str) -> None:
        folder = self._folder(domain)
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise HypervisorError(operation=f"deleting {folder}", host=self._host, reason=str(error)) from error

    def console_log(self, domain: str) -> bytes:
        path = self.console_log_path(domain)
        content = b""
        for suffix in _ROTATED_LOGS:
            try:
                content += path.with_name(path.name + suffix).read_bytes()
            except FileNotFoundError:
                continue
            except PermissionError as error:
                # virtlogd writes it as root, for root.
                reason = f"{error.strerror}: {path} belongs to root; run Jetbridge as root on hosts that run guests"
                raise HypervisorError(operation=f"console_log {domain}", host=self._host, reason=reason) from error
        return content

    def console_log_path(self, domain: str) -> Path:
        return self._folder(domain) / "console.log"

    def disk_paths(self, domain: str) -> tuple[Path | None, Path | None]:
        return guest_files.existing(self._folder(domain), _ROOT_DISK, _CONFIG_DRIVE)

    def _folder(self, domain: str) -> Path:
        if Path(domain).name != domain or domain in ("", ".."):
            raise HypervisorError(
                operation=f"finding the files of {domain!r}", host=self._host, reason="not a domain name"
            )
        return self._state_dir.absolute() / "instances" / domain

    # --- events ---

    def subscribe(self, listener: Callable[[HypervisorEvent], None]) -> None:
        self._session.subscribe(listener)

    def _state(self, number: int) -> DomainState:
        lib = self._libvirt
        states: Mapping[int, DomainState] = {
            lib.VIR_DOMAIN_PAUSED: "paused",
            lib.VIR_DOMAIN_PMSUSPENDED: "paused",
            lib.VIR_DOMAIN_SHUTOFF: "shutoff",
            lib.VIR_DOMAIN_CRASHED: "crashed",
        }
        return states.get(number, "running")

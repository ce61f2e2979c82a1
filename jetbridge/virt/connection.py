"""The hypervisor seam: the calls Jetbridge makes, and the XML libvirt speaks crossing them.

Nothing above ``virt/`` may ask which implementation it talks to. All methods raise
``HypervisorError`` (``HypervisorUnavailable`` when nobody answers) with the hypervisor's own text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

DomainState = Literal["running", "paused", "shutoff", "crashed"]


@dataclass(frozen=True)
class DomainInfo:
    name: str  # instance-%08x
    uuid: str  # the server's
    state: DomainState


@dataclass(frozen=True)
class HypervisorEvent:
    """``kind``: domain-started, domain-stopped, device-added, device-removed. ``name``: the domain's or node device's."""

    kind: str
    name: str


@dataclass(frozen=True)
class HypervisorVersion:
    """Versions as libvirt counts: 9.0.0 is 9000000."""

    libvirt: int
    hypervisor: int
    type: str  # QEMU, TEST, ...


@dataclass(frozen=True)
class DiskRequest:
    """A root disk: a qcow2 overlay of ``size_gb`` on ``base`` (a local image file; None: an empty disk). ``size_gb`` 0: as
    large as the image."""

    domain: str
    base: Path | None
    base_format: str
    size_gb: int


@dataclass(frozen=True)
class NetworkInfo:
    """A libvirt network, or a host bridge."""

    name: str
    kind: Literal["network", "bridge"]
    active: bool = True
    mac: str | None = None


class HypervisorConnection(Protocol):
    """One host's hypervisor."""

    @property
    def host(self) -> str: ...

    def close(self) -> None: ...

    def version(self) -> HypervisorVersion: ...

    # --- the host ---
    def capabilities(self) -> str: ...

    def domain_capabilities(self) -> str | None:
        """None where the hypervisor has none to tell (libvirt's test driver)."""
        ...

    def node_devices(self) -> Sequence[str]:
        """Every node device's XML document. A partial answer must raise ``ProbeFailed``, never be returned."""
        ...

    def networks(self) -> Sequence[NetworkInfo]: ...

    # --- domains ---
    def define_domain(self, xml: str) -> None: ...

    def start_domain(self, name: str) -> None: ...

    def shutdown_domain(self, name: str) -> None:
        """Asks the guest to power off; returns at once."""
        ...

    def destroy_domain(self, name: str) -> None:
        """Pulls the plug. A domain that is not running: no error."""
        ...

    def reboot_domain(self, name: str) -> None: ...

    def undefine_domain(self, name: str, *, nvram: bool = False) -> None:
        """A domain that does not exist: no error. ``nvram``: only for UEFI guests."""
        ...

    def domains(self) -> Sequence[DomainInfo]:
        """Every defined or running domain, foreign ones included."""
        ...

    def domain_xml(self, name: str, *, defined: bool = False) -> str:
        """As it is now; ``defined``: as its next start finds it. Raises ``DomainNotFound``."""
        ...

    def attach_device(self, domain: str, xml: str) -> None:
        """Into the definition, and into the guest while it runs."""
        ...

    def detach_device(self, domain: str, xml: str, *, defined: bool = False) -> None:
        """Out of the guest while it runs, which has to let go: whether it did stands in ``domain_xml`` afterwards. Out of the definition of a
        domain that doesn't run, and with ``defined`` of one that does."""
        ...

    # --- mediated devices ---
    def create_mdev(self, xml: str) -> str:
        """Defines an mdev node device, starts it, and has it started with the host; returns its node device name."""
        ...

    def start_mdev(self, name: str) -> None:
        """One that is defined."""
        ...

    def destroy_mdev(self, name: str) -> None:
        """Stops and forgets it. One that does not exist: no error."""
        ...

    # --- files that belong to a guest ---
    def create_root_disk(self, disk: DiskRequest) -> Path: ...

    def create_config_drive(self, domain: str, files: Mapping[str, bytes]) -> Path:
        """``files``: path on the drive to content. The drive's label is config-2."""
        ...

    def delete_guest_files(self, domain: str) -> None:
        """Root disk, config drive, console log. Files that do not exist: no error."""
        ...

    def console_log(self, domain: str) -> bytes:
        """What the guest wrote on its serial console so far; empty when there is none."""
        ...

    def console_log_path(self, domain: str) -> Path: ...

    def disk_paths(self, domain: str) -> tuple[Path | None, Path | None]:
        """Root disk and config drive of a guest; None: there is none."""
        ...

    # --- events ---
    def subscribe(self, listener: Callable[[HypervisorEvent], None]) -> None:
        """``listener`` is called from another thread and must be quick."""
        ...


class HostFiles(Protocol):
    """sysfs of one host under an injected root. Paths are absolute as on the host (/sys/bus/pci/...)."""

    def read_text(self, path: str) -> str | None:
        """None: the file does not exist or can't be read."""
        ...

    def list_dir(self, path: str) -> Sequence[str]:
        """Empty: no such folder."""
        ...

    def read_link(self, path: str) -> str | None: ...

    def write_text(self, path: str, text: str) -> None:
        """Recorded before it is made. Raises ``HypervisorError``."""
        ...

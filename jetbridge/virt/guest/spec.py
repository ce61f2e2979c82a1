"""The guest as declarations of libvirt's domain XML (https://libvirt.org/formatdomain.html).

Every class is one element, every field one place in it. What is not declared is left to libvirt, which fills
in the emulator, guest PCI addresses and the controllers that devices need.
"""

# ruff: noqa: RUF009 - the declaring calls of mapping.py return dataclass fields, not values
from __future__ import annotations

from dataclasses import dataclass

from jetbridge.virt.guest.mapping import (
    CPU_SET,
    INTEGER,
    ON_OFF,
    REQUIRED,
    YES_NO,
    child,
    children,
    hexadecimal,
    present,
    value,
)


@dataclass(frozen=True)
class Identity:
    """What people need to know a domain by, in ``<metadata>``: libvirt stores it and never reads it."""

    name: str = value("jetbridge:name")
    flavor: str = value("jetbridge:flavor/@name")
    memory_mb: int = value("jetbridge:flavor/@memory_mb", INTEGER)
    vcpus: int = value("jetbridge:flavor/@vcpus", INTEGER)
    disk_gb: int = value("jetbridge:flavor/@disk_gb", INTEGER)
    user: str = value("jetbridge:owner/@user")
    project: str = value("jetbridge:owner/@project")
    image: str | None = value("jetbridge:image/@id", default=None)


@dataclass(frozen=True)
class HugePages:
    """Guest cells ``cells`` are backed by pages of ``size_kib``."""

    size_kib: int = value("@size", INTEGER)
    unit: str = value("@unit", default="KiB")
    cells: frozenset[int] = value("@nodeset", CPU_SET, default=frozenset())


@dataclass(frozen=True)
class VcpuPin:
    vcpu: int = value("@vcpu", INTEGER)
    host_cpus: frozenset[int] = value("@cpuset", CPU_SET)


@dataclass(frozen=True, kw_only=True)
class CellMemory:
    """Memory of one guest cell comes from these host nodes."""

    cell: int = value("@cellid", INTEGER)
    mode: str = value("@mode", default="strict")
    host_nodes: frozenset[int] = value("@nodeset", CPU_SET)


@dataclass(frozen=True)
class CpuTopology:
    sockets: int = value("@sockets", INTEGER)
    cores: int = value("@cores", INTEGER)
    threads: int = value("@threads", INTEGER)


@dataclass(frozen=True)
class CpuCell:
    """A NUMA node as the guest sees it."""

    id: int = value("@id", INTEGER)
    cpus: frozenset[int] = value("@cpus", CPU_SET)
    memory_kib: int = value("@memory", INTEGER)
    unit: str = value("@unit", default="KiB")


@dataclass(frozen=True)
class Cpu:
    mode: str | None = value("@mode", default=None)
    topology: CpuTopology | None = child("topology", CpuTopology)
    cells: tuple[CpuCell, ...] = children("numa/cell", CpuCell)


@dataclass(frozen=True)
class Timer:
    name: str = value("@name")
    tick_policy: str | None = value("@tickpolicy", default=None)
    present: bool | None = value("@present", YES_NO, default=None)


@dataclass(frozen=True, kw_only=True)
class Disk:
    kind: str = value("@type", default="file")
    device: str = value("@device", default="disk")  # disk, cdrom
    driver: str = value("driver/@name", default="qemu")
    format: str = value("driver/@type", default="raw")
    path: str | None = value("source/@file", default=None)
    target: str = value("target/@dev")
    bus: str = value("target/@bus")
    read_only: bool = present("readonly")


@dataclass(frozen=True)
class Controller:
    kind: str = value("@type")
    index: int | None = value("@index", INTEGER, default=None)
    model: str | None = value("@model", default=None)


@dataclass(frozen=True)
class HostAddress:
    """Where a function lies on the host. Numbers, so that two are equal however they were written."""

    domain: int = value("@domain", hexadecimal(4))
    bus: int = value("@bus", hexadecimal(2))
    slot: int = value("@slot", hexadecimal(2))
    function: int = value("@function", hexadecimal(1))

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function:x}"


@dataclass(frozen=True)
class Interface:
    """``kind`` network or bridge: the name goes to the attribute of the same name. hostdev: the function at ``address`` itself;
    direct: the host interface ``dev``; vdpa: the character device ``dev``; vhostuser: the ``socket``."""

    kind: str = value("@type")
    managed: bool | None = value("@managed", YES_NO, default=None)
    mac: str | None = value("mac/@address", default=None)
    network: str | None = value("source/@network", default=None)
    bridge: str | None = value("source/@bridge", default=None)
    dev: str | None = value("source/@dev", default=None)
    socket_kind: str | None = value("source/@type", default=None)
    socket: str | None = value("source/@path", default=None)
    mode: str | None = value("source/@mode", default=None)
    address: HostAddress | None = child("source/address[@type='pci']", HostAddress)
    port_kind: str | None = value("virtualport/@type", default=None)
    port_id: str | None = value("virtualport/parameters/@interfaceid", default=None)
    vlan: int | None = value("vlan/tag/@id", INTEGER, default=None)
    model: str | None = value("model/@type", default=None)


@dataclass(frozen=True)
class Serial:
    kind: str = value("@type", default="pty")
    log: str | None = value("log/@file", default=None)
    append: bool | None = value("log/@append", ON_OFF, default=None)
    port: int = value("target/@port", INTEGER, default=0)


@dataclass(frozen=True, kw_only=True)
class PciHostdev:
    """A PCI function given to the guest. ``managed``: libvirt binds it to vfio-pci and back."""

    managed: bool = value("@managed", YES_NO, default=False)  # libvirt reads a missing attribute as no
    source: HostAddress = child("source/address", HostAddress, default=REQUIRED)


PCI_HOSTDEV = "hostdev[@mode='subsystem'][@type='pci']"


@dataclass(frozen=True, kw_only=True)
class MdevHostdev:
    """A mediated device given to the guest. ``display``: it is what the guest's display shows; ``ramfb``: also before a driver of
    the guest runs. None is libvirt's own choice: no."""

    managed: bool = value("@managed", YES_NO, default=False)
    model: str = value("@model", default="vfio-pci")
    display: bool | None = value("@display", ON_OFF, default=None)
    ramfb: bool | None = value("@ramfb", ON_OFF, default=None)
    uuid: str = value("source/address/@uuid")


MDEV_HOSTDEV = "hostdev[@mode='subsystem'][@type='mdev']"


@dataclass(frozen=True)
class Graphics:
    """``listen`` socket: on a socket of the host's file system that libvirt makes; no port is open."""

    kind: str = value("@type", default="vnc")
    listen: str = value("listen/@type", default="socket")


@dataclass(frozen=True)
class Video:
    model: str = value("model/@type")


@dataclass(frozen=True)
class Rng:
    model: str = value("@model", default="virtio")
    backend: str = value("backend/@model", default="random")
    source: str = value("backend", default="/dev/urandom")


@dataclass(frozen=True)
class Balloon:
    model: str = value("@model", default="virtio")
    statistics_seconds: int | None = value("stats/@period", INTEGER, default=None)


@dataclass(frozen=True, kw_only=True)
class GuestSpec:
    """A whole domain. Memory in KiB."""

    virt_type: str = value("@type")
    name: str = value("name")
    uuid: str = value("uuid")
    title: str | None = value("title", default=None)
    identity: Identity | None = child("metadata/jetbridge:server", Identity)
    memory_kib: int = value("memory[@unit='KiB']", INTEGER)
    hugepages: tuple[HugePages, ...] = children("memoryBacking/hugepages/page", HugePages)
    memory_source: str | None = value("memoryBacking/source/@type", default=None)
    memory_access: str | None = value("memoryBacking/access/@mode", default=None)
    vcpus: int = value("vcpu[@placement='static']", INTEGER)
    host_cpus: frozenset[int] | None = value("vcpu[@placement='static']/@cpuset", CPU_SET, default=None)
    vcpu_pins: tuple[VcpuPin, ...] = children("cputune/vcpupin", VcpuPin)
    emulator_cpus: frozenset[int] | None = value("cputune/emulatorpin/@cpuset", CPU_SET, default=None)
    memory_nodes: frozenset[int] | None = value("numatune/memory[@mode='strict']/@nodeset", CPU_SET, default=None)
    cell_memory: tuple[CellMemory, ...] = children("numatune/memnode", CellMemory)
    firmware: str | None = value("os/@firmware", default=None)  # efi; None: BIOS
    secure_boot: bool | None = value("os/firmware/feature[@name='secure-boot']/@enabled", YES_NO, default=None)
    os_type: str = value("os/type", default="hvm")
    arch: str = value("os/type/@arch", default="x86_64")
    machine: str = value("os/type/@machine", default="q35")
    kernel: str | None = value("os/kernel", default=None)
    initrd: str | None = value("os/initrd", default=None)
    cmdline: str | None = value("os/cmdline", default=None)
    boot_device: str | None = value("os/boot/@dev", default=None)
    acpi: bool = present("features/acpi")
    apic: bool = present("features/apic")
    kvm_hidden: bool | None = value("features/kvm/hidden/@state", ON_OFF, default=None)
    cpu: Cpu | None = child("cpu", Cpu)
    clock: str = value("clock/@offset", default="utc")
    timers: tuple[Timer, ...] = children("clock/timer", Timer)
    on_poweroff: str = value("on_poweroff", default="destroy")
    on_reboot: str = value("on_reboot", default="restart")
    on_crash: str = value("on_crash", default="destroy")
    disks: tuple[Disk, ...] = children("devices/disk", Disk)
    controllers: tuple[Controller, ...] = children("devices/controller", Controller)
    interfaces: tuple[Interface, ...] = children("devices/interface", Interface)
    serials: tuple[Serial, ...] = children("devices/serial", Serial)
    graphics: Graphics | None = child("devices/graphics", Graphics)
    video: Video | None = child("devices/video", Video)
    hostdevs: tuple[PciHostdev, ...] = children(f"devices/{PCI_HOSTDEV}", PciHostdev)
    mdevs: tuple[MdevHostdev, ...] = children(f"devices/{MDEV_HOSTDEV}", MdevHostdev)
    balloon: Balloon | None = child("devices/memballoon", Balloon)
    rngs: tuple[Rng, ...] = children("devices/rng", Rng)

    @property
    def uefi(self) -> bool:
        """Its variables lie in an NVRAM file, to be removed when the domain is undefined."""
        return self.firmware == "efi"

"""A fleet as values: hosts, their hardware and how they misbehave. ``config.fleet`` reads them from a file,
``virt.simulated`` plays them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Discovery = Literal["ok", "raise", "empty", "half"]
DISCOVERY_MODES: tuple[Discovery, ...] = ("ok", "raise", "empty", "half")

HYPERVISOR_CALLS: tuple[str, ...] = (
    "version",
    "capabilities",
    "domain_capabilities",
    "node_devices",
    "networks",
    "define_domain",
    "start_domain",
    "shutdown_domain",
    "destroy_domain",
    "reboot_domain",
    "undefine_domain",
    "domains",
    "domain_xml",
    "attach_device",
    "detach_device",
    "create_mdev",
    "start_mdev",
    "destroy_mdev",
    "create_root_disk",
    "create_config_drive",
    "delete_guest_files",
    "console_log",
)
"""The calls of a hypervisor connection that ``simulate`` can delay or fail."""


@dataclass(frozen=True)
class NumaSpec:
    """NUMA cells that are all alike. ``cpus_per_cell`` counts host CPUs (threads); ``hugepages`` are pairs of a page
    size in KiB and the number of such pages in each cell."""

    cells: int
    cpus_per_cell: int
    memory_mb_per_cell: int
    threads_per_core: int = 1
    sockets: int = 1
    hugepages: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class PfSpec:
    """What makes a function an SR-IOV physical function. ``vfs`` exist now, ``max_vfs`` is its limit. VF n's interface is
    ``vf_interface`` followed by n; None: the VFs are no network devices. ``vdpa``: every VF has a vDPA child.
    ``vf_offset`` is First VF Offset of the SR-IOV capability: 1, or more where the card's other functions come first."""

    vfs: int
    max_vfs: int
    vf_product_id: str
    vf_interface: str | None = None
    vdpa: bool = False
    vf_offset: int = 1


@dataclass(frozen=True)
class MdevTypeSpec:
    """A mediated device type that a function offers; ``available`` instances when none is made. ``max_instance`` is how many of
    it the whole card carries, over all its VFs; None: no such limit."""

    id: str
    available: int
    name: str
    device_api: str = "vfio-pci"
    max_instance: int | None = None


@dataclass(frozen=True)
class VgpuTypeSpec:
    """A vendor's type that a VF can carry; ``number`` as the driver counts its types, ``max_instance`` as in ``MdevTypeSpec``."""

    number: str
    name: str
    max_instance: int | None = None


@dataclass(frozen=True)
class FleetDevice:
    """One PCI function. Addresses are canonical text (``0000:3b:00.0``; the domain may have up to eight digits), ids four
    lower-case hexadecimal digits. ``switch`` is the address of the PCIe switch above it, ``fabric`` the name of its
    NVLink (or similar) group, ``bar_mb`` the size of its largest BAR in MiB. ``iommu_group`` None: one of its own."""

    address: str
    vendor_id: str
    product_id: str
    numa_node: int | None = None
    iommu_group: int | None = None
    driver: str | None = None
    interface: str | None = None
    mac: str | None = None
    switch: str | None = None
    fabric: str | None = None
    bar_mb: int | None = None
    class_code: str | None = None  # 0x030200
    card_serial_number: str | None = None
    mdev_types: tuple[MdevTypeSpec, ...] = ()
    vgpu_types: tuple[VgpuTypeSpec, ...] = ()
    pf: PfSpec | None = None
    vdpa: bool = False


@dataclass(frozen=True)
class FailSpec:
    """``call`` fails with ``error``, ``times`` times (None: always)."""

    call: str
    error: str
    times: int | None = None


@dataclass(frozen=True)
class SimulateSpec:
    """How a simulated host misbehaves: seconds of delay and failures per call, and what discovery returns. ``deaf``: its guests don't let go
    of devices that are taken out of them."""

    delay: tuple[tuple[str, float], ...] = ()
    fail: tuple[FailSpec, ...] = ()
    discovery: Discovery = "ok"
    deaf: bool = False


@dataclass(frozen=True)
class FleetHost:
    """A host of a fleet. ``devices`` includes those of the ``hardware`` templates; ``nodedevs`` is the absolute path of a
    folder of node-device documents. ``config`` is this host's options over the file's: group, option, value.
    ``numa`` None: no NUMA cells, ``vcpus`` and ``memory_mb`` say the size."""

    name: str
    vcpus: int
    memory_mb: int
    numa: NumaSpec | None = None
    disk_gb: int = 1000
    networks: tuple[str, ...] = ("default",)
    hardware: tuple[str, ...] = ()
    devices: tuple[FleetDevice, ...] = ()
    nodedevs: str | None = None
    nodedevs_digest: str = ""  # of the documents' content: a host whose documents changed is another value
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    simulate: SimulateSpec = SimulateSpec()


def vf_address(pf_address: str, number: int, offset: int = 1) -> str | None:
    """Address of VF ``number``: the PF's routing id (bus and devfn) + offset + number, carried into the bus as hardware
    does. None: it would leave the domain's last bus."""
    domain, bus, rest = pf_address.split(":")
    slot, function = rest.split(".")
    routing_id = (int(bus, 16) << 8 | int(slot, 16) << 3 | int(function, 16)) + offset + number
    if routing_id > 0xFFFF:
        return None
    return f"{domain}:{routing_id >> 8:02x}:{routing_id >> 3 & 0x1F:02x}.{routing_id & 7}"

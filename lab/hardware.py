"""L1's hardware: which devices QEMU emulates, and where L1 sees them.

The address of a device is fixed by its slot and, behind a root port, by the order in which L1's firmware numbers buses:
a new device behind a port comes last on its expander, and the addresses here are checked when L1 is up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Device:
    """``node`` None: the firmware tells no NUMA node. ``driver``: L1's own, before anybody gives the device away."""

    name: str
    address: str
    ids: str
    driver: str | None
    node: int | None = None
    mac: str | None = None

    @property
    def qemu_id(self) -> str:
        """Its name for the monitor: devices are pulled out and put back by it."""
        return "d" + "".join(character for character in self.address if character.isalnum())


EDU = Device("edu", "0000:00:06.0", "1234:11e8", None)
KEPT = Device("82544GC", "0000:00:0a.0", "8086:100c", "e1000", mac="52:54:00:00:00:0a")
UNMANAGED = Device("82545EM", "0000:00:0b.0", "8086:100f", "e1000", mac="52:54:00:00:00:0b")
GROUP = (
    Device("82540EM", "0000:01:01.0", "8086:100e", "e1000", mac="52:54:00:00:01:01"),
    Device("82540EM", "0000:01:02.0", "8086:100e", "e1000", mac="52:54:00:00:01:02"),
)
"""One IOMMU group: a conventional bus tells the IOMMU only its bridge."""
ACCELERATOR = Device("82540EM", "0000:00:0c.0", "8086:100e", "e1000", mac="52:54:00:00:00:0c")
"""Given away by the accelerator service. A card of its own: a function belongs to one model at a time."""
NIC0 = Device("82574L", "0000:41:00.0", "8086:10d3", "e1000e", 0, "52:54:00:00:00:41")
NIC1 = Device("82574L", "0000:81:00.0", "8086:10d3", "e1000e", 1, "52:54:00:00:00:81")
NVME = Device("NVMe", "0000:82:00.0", "1b36:0010", "nvme", 1)
NVME_SERIAL = "LABNVME0"
NVME_VFS = ("0000:82:00.1", "0000:82:00.2")
VGPUS = (
    Device("vGPU card", "0000:42:00.0", "1234:1111", "labvgpu", 0),
    Device("vGPU card", "0000:83:00.0", "1234:1111", "labvgpu", 1),
)
"""Displays whose driver gives them away in parts: types ``labvgpu-1`` (4 of them) and ``labvgpu-2`` (2), or a mixture. A part is a
serial card for its guest. The kernel's sample gives the same as types ``mtty-1`` and ``mtty-2`` of a parent that is no device."""

ALL = (EDU, KEPT, UNMANAGED, *GROUP, ACCELERATOR, NIC0, NIC1, NVME, *VGPUS)


def nic(device: Device, model: str, **place: str) -> dict[str, str]:
    """QEMU's properties of a NIC, for its command line or its monitor. No boot ROM: the firmware of guests would run it."""
    wire = f"wire-{device.qemu_id}"
    return {"driver": model, "id": device.qemu_id, "netdev": wire, "mac": device.mac or "", "romfile": "", **place}


NICS = {
    KEPT: nic(KEPT, "e1000-82544gc", bus="pcie.0", addr="0xa"),
    UNMANAGED: nic(UNMANAGED, "e1000-82545em", bus="pcie.0", addr="0xb"),
    GROUP[0]: nic(GROUP[0], "e1000", bus="conventional", addr="1"),
    GROUP[1]: nic(GROUP[1], "e1000", bus="conventional", addr="2"),
    ACCELERATOR: nic(ACCELERATOR, "e1000", bus="pcie.0", addr="0xc"),
    NIC0: nic(NIC0, "e1000e", bus="port1"),
    NIC1: nic(NIC1, "e1000e", bus="port2"),
}


def device_options(folder: Path) -> list[str]:
    """QEMU's options. ``folder`` gets the disk behind the NVMe controller."""
    disk = folder / "nvme.img"
    with disk.open("wb") as file:
        file.truncate(16 << 20)
    options = ["-drive", f"file={disk},format=raw,if=none,id=disk0,cache=unsafe"]

    def device(text: str) -> None:
        options.extend(("-device", text))

    def port(number: int, bus: str, slot: int) -> None:
        device(f"pcie-root-port,id=port{number},chassis={number},slot={number},bus={bus},addr={slot}")

    # Expander bridges are the only way to tell a NUMA node (QEMU, docs/pcie.txt and docs/pci_expander_bridge.txt).
    device("pxb-pcie,id=node0,bus_nr=0x40,numa_node=0,bus=pcie.0,addr=0x8")
    device("pxb-pcie,id=node1,bus_nr=0x80,numa_node=1,bus=pcie.0,addr=0x9")
    port(1, "node0", 0)
    port(2, "node1", 0)
    port(3, "node1", 1)
    port(4, "node0", 1)
    port(5, "node1", 2)
    device("pcie-pci-bridge,id=conventional,bus=pcie.0,addr=0x7")
    device(f"edu,id={EDU.qemu_id},bus=pcie.0,addr=0x6")
    for properties in NICS.values():
        # A network that reaches nothing: without one, frames sent would be dropped before the card reports them.
        options += ["-netdev", f"user,id={properties['netdev']},restrict=on"]
        device(",".join(value if name == "driver" else f"{name}={value}" for name, value in properties.items()))
    device("nvme-subsys,id=subsystem")
    device(
        f"nvme,id={NVME.qemu_id},serial={NVME_SERIAL},subsys=subsystem,bus=port3,max_ioqpairs=10,msix_qsize=11,"
        "sriov_max_vfs=4,sriov_vq_flexible=8,sriov_vi_flexible=8"
    )
    device(f"nvme-ns,drive=disk0,bus={NVME.qemu_id},nsid=1")
    device(f"bochs-display,id={VGPUS[0].qemu_id},bus=port4,vgamem=4M")
    device(f"bochs-display,id={VGPUS[1].qemu_id},bus=port5,vgamem=4M")
    return options


def machine_options(memory_mb: int) -> Sequence[str]:
    """A machine of two NUMA nodes whose IOMMU can be used by guests of guests."""
    half = memory_mb // 2
    return [
        *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", f"{half * 2},maxmem=16G"),
        *("-object", f"memory-backend-ram,id=memory0,size={half}M"),
        *("-object", f"memory-backend-ram,id=memory1,size={half}M"),
        *("-numa", "node,nodeid=0,cpus=0,memdev=memory0", "-numa", "node,nodeid=1,cpus=1,memdev=memory1"),
        *("-device", "intel-iommu,intremap=on,caching-mode=on,aw-bits=48"),
    ]


KERNEL_OPTIONS = (
    "intel_iommu=on iommu=pt",
    "console=ttyS0 panic=-1 quiet",
    "mitigations=off nokaslr tsc=reliable no_timer_check audit=0",  # only speed: nobody attacks L1
)

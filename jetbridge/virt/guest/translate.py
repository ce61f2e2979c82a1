"""From a server and what the claim gave it to its guest: the pure translation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jetbridge.errors import InvalidConfiguration, NotSupported, PciDeviceUnsupportedHypervisor
from jetbridge.model.server import Server
from jetbridge.numa.topology import GuestTopology, HostTopology
from jetbridge.pci.device import PciDevice
from jetbridge.pci.request import PciRequest
from jetbridge.virt.guest.address import read_address
from jetbridge.virt.guest.nics import GuestNic, element_of
from jetbridge.virt.guest.placement import Placement, cpu_topology, placement
from jetbridge.virt.guest.spec import (
    Balloon,
    Controller,
    Cpu,
    Disk,
    Graphics,
    GuestSpec,
    Identity,
    Interface,
    MdevHostdev,
    PciHostdev,
    Rng,
    Serial,
    Timer,
    Video,
)

# host-passthrough: drivers of GPUs look at the CPU they run on, and a guest with devices stays where it is anyway.
# Without KVM `maximum` is all that emulation offers; its default model is too old for present distributions.
_CPU_MODES = {"kvm": "host-passthrough", "qemu": "maximum"}
_DISK_PREFIXES = {"virtio": "vd", "scsi": "sd", "sata": "sd"}  # buses a q35 machine takes disks on
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_PCIE_PORTS = 28


@dataclass(frozen=True)
class GuestFiles:
    """Paths on the host of what belongs to the guest."""

    console_log: Path | None = None
    root_disk: Path | None = None
    root_format: str = "qcow2"
    config_drive: Path | None = None
    kernel: Path | None = None
    ramdisk: Path | None = None


@dataclass(frozen=True)
class GuestOptions:
    """What the host's configuration says about guests: ``[libvirt]virt_type`` and ``num_pcie_ports`` (0 to 28), the host's
    architecture, and the CPUs that shared guests may use (None: all)."""

    virt_type: str = "kvm"
    num_pcie_ports: int = 0
    arch: str = "x86_64"
    shared_cpus: frozenset[int] | None = None


@dataclass(frozen=True)
class GuestAccelerator:
    """What an accelerator request gave: the PCI function at ``address``, or the mediated device with the UUID ``mdev``."""

    address: str | None = None
    mdev: str | None = None


@dataclass(frozen=True)
class GuestVgpu:
    """A vGPU of the guest: a mediated device by its UUID, or a VF that carries a vendor's type by its address. ``display`` and
    ``ramfb`` are for mediated devices: what ``[mdev_TYPE]`` says."""

    uuid: str | None = None
    address: str | None = None
    display: bool = False
    ramfb: bool = False


@dataclass(frozen=True)
class Translation:
    guest: GuestSpec
    warnings: tuple[str, ...] = ()


def guest_spec(
    server: Server,
    *,
    image_properties: Mapping[str, str],
    requests: Sequence[PciRequest],
    devices: Sequence[PciDevice],
    topology: GuestTopology | None,
    host: HostTopology | None,
    nics: Sequence[GuestNic],
    files: GuestFiles,
    options: GuestOptions,
    vgpus: Sequence[GuestVgpu] = (),
    accelerators: Sequence[GuestAccelerator] = (),
) -> Translation:
    """The guest of ``server``.

    ``devices`` are the server's, each with the ``request_id`` it was claimed for; ``topology`` is as fitted by the claim,
    ``host`` the host's cells and ``nics`` the server's, which the devices of port requests belong to; a device whose request
    does not exist is left out with a warning.

    Raises ``PciDeviceUnsupportedHypervisor``, ``PciDeviceWrongAddressFormat``, ``NotSupported`` (an image property that
    can't be met).
    """
    hostdevs, device_warnings = _hostdevs(server, requests, devices, options.virt_type)
    shown = any(vgpu.display for vgpu in vgpus)
    elements = [element_of(nic, image_properties.get("hw_vif_model", "virtio")) for nic in nics]
    shared = True if any(nic.shares_memory for nic in nics) else None
    flavor = server.flavor
    placed = Placement()
    if topology is not None:
        host_cpus = {cell.id: cell.cpus for cell in host.cells} if host is not None else {}
        placed = placement(topology, host_cpus, options.shared_cpus)
    shape, cpu_warning = cpu_topology(
        flavor.vcpus, _cpu_wishes(flavor.extra_specs, image_properties), len(placed.cells) or 1
    )
    machine = image_properties.get("hw_machine_type") or _default_machine(options.arch)
    disks, disk_controllers = _disks(files, image_properties.get("hw_disk_bus", "virtio"))
    firmware, secure_boot = _firmware(image_properties)
    guest = GuestSpec(
        virt_type=options.virt_type,
        name=server.domain_name,
        uuid=server.uuid,
        title=_xml_safe(server.display_name).replace("\n", " ") or None,
        identity=_identity(server),
        memory_kib=flavor.memory_mb * 1024,
        hugepages=placed.hugepages,
        memory_source="memfd" if shared else None,
        memory_access="shared" if shared else None,
        vcpus=flavor.vcpus,
        host_cpus=options.shared_cpus if topology is None else None,
        vcpu_pins=placed.vcpu_pins,
        emulator_cpus=placed.emulator_cpus,
        memory_nodes=placed.memory_nodes,
        cell_memory=placed.cell_memory,
        firmware=firmware,
        secure_boot=secure_boot,
        arch=options.arch,
        machine=machine,
        kernel=_text(files.kernel),
        initrd=_text(files.ramdisk),
        cmdline=_cmdline(files, image_properties),
        boot_device=None if files.kernel else "hd",
        acpi=True,
        apic=options.arch == "x86_64",
        kvm_hidden=_kvm_hidden(flavor.extra_specs, image_properties) if options.virt_type == "kvm" else None,
        cpu=Cpu(_CPU_MODES.get(options.virt_type), shape, placed.cells),
        clock="localtime" if image_properties.get("os_type") == "windows" else "utc",
        timers=_timers(options.arch),
        disks=disks,
        controllers=(*disk_controllers, *_pcie_ports(options, machine)),
        interfaces=tuple(element for element in elements if isinstance(element, Interface)),
        # A pty can be attached to (virsh console) while virtlogd keeps what is written; no graphics and no video, as
        # these guests are reached over the network, and an emulated display would be the first one GPU programs find.
        serials=(Serial(log=_text(files.console_log), append=False if files.console_log else None),),
        # Only for guests whose display is a vGPU; the emulated card is left out, so that there is one display.
        graphics=Graphics() if shown else None,
        video=Video("none") if shown else None,
        hostdevs=(
            *hostdevs,
            *_vendor_functions(vgpus),
            *_accelerator_functions(accelerators),
            *(element for element in elements if isinstance(element, PciHostdev)),
        ),
        mdevs=(*_mediated_devices(vgpus), *_accelerator_mdevs(accelerators)),
        # With VFIO devices all guest memory is pinned and QEMU ignores requests to shrink; the balloon is kept for its statistics.
        balloon=Balloon(statistics_seconds=10),
        rngs=(Rng(),),
    )
    return Translation(guest, (*device_warnings, *((cpu_warning,) if cpu_warning else ())))


def _hostdevs(
    server: Server, requests: Sequence[PciRequest], devices: Sequence[PciDevice], virt_type: str
) -> tuple[tuple[PciHostdev, ...], tuple[str, ...]]:
    known = {request.request_id for request in requests}
    warnings = tuple(
        f"device {device.address} of server {server.uuid} has request {device.request_id}, which the server"
        " doesn't have: it is left out of the guest"
        for device in devices
        if device.request_id not in known
    )
    chosen = [
        device
        for request in requests
        if not request.from_port
        for device in devices
        if device.request_id == request.request_id
    ]
    if devices and virt_type not in _CPU_MODES:
        raise PciDeviceUnsupportedHypervisor(type=virt_type)
    return (
        tuple(PciHostdev(managed=device.managed, source=read_address(device.address)) for device in chosen),
        warnings,
    )


def _vendor_functions(vgpus: Sequence[GuestVgpu]) -> tuple[PciHostdev, ...]:
    # Not managed: the driver that gave them their type is also the one that gives them to VFIO.
    return tuple(PciHostdev(managed=False, source=read_address(vgpu.address)) for vgpu in vgpus if vgpu.address)


def _accelerator_functions(accelerators: Sequence[GuestAccelerator]) -> tuple[PciHostdev, ...]:
    return tuple(PciHostdev(managed=True, source=read_address(each.address)) for each in accelerators if each.address)


def _accelerator_mdevs(accelerators: Sequence[GuestAccelerator]) -> tuple[MdevHostdev, ...]:
    return tuple(MdevHostdev(uuid=each.mdev) for each in accelerators if each.mdev)


def _mediated_devices(vgpus: Sequence[GuestVgpu]) -> tuple[MdevHostdev, ...]:
    return tuple(
        MdevHostdev(uuid=vgpu.uuid, display=vgpu.display or None, ramfb=vgpu.ramfb or None)
        for vgpu in vgpus
        if vgpu.uuid
    )


def _identity(server: Server) -> Identity:
    return Identity(
        name=_xml_safe(server.display_name),
        flavor=_xml_safe(server.flavor.name),
        memory_mb=server.flavor.memory_mb,
        vcpus=server.flavor.vcpus,
        disk_gb=server.flavor.root_gb,
        user=server.user_id,
        project=server.project_id,
        image=server.image_ref or None,
    )


def _xml_safe(text: str) -> str:
    return _NOT_XML.sub("?", text)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _firmware(image_properties: Mapping[str, str]) -> tuple[str | None, bool | None]:
    """Firmware, and whether it verifies what it boots. Left open, libvirt may choose one that does: then no driver module
    without a signature loads, and GPU drivers built by DKMS have none."""
    kind = image_properties.get("hw_firmware_type", "bios")
    if kind not in ("bios", "uefi"):
        raise NotSupported(reason=f"image property hw_firmware_type={kind!r}: use bios or uefi")
    secure = image_properties.get("os_secure_boot", "disabled")
    if secure not in ("required", "optional", "disabled"):
        raise NotSupported(reason=f"image property os_secure_boot={secure!r}: use required, optional or disabled")
    if kind == "bios":
        if secure == "required":
            raise NotSupported(reason="image property os_secure_boot='required': it needs hw_firmware_type='uefi', too")
        return None, None
    return "efi", secure == "required"


def _cmdline(files: GuestFiles, image_properties: Mapping[str, str]) -> str | None:
    if files.kernel is None:
        return None  # libvirt refuses a command line without a kernel
    return _xml_safe(image_properties.get("os_command_line", "")) or None


def _kvm_hidden(extra_specs: Mapping[str, str], image_properties: Mapping[str, str]) -> bool | None:
    wish = extra_specs.get("hide_hypervisor_id") or image_properties.get("img_hide_hypervisor_id") or ""
    return True if wish.strip().lower() in ("1", "t", "true", "on", "y", "yes") else None


def _cpu_wishes(extra_specs: Mapping[str, str], image_properties: Mapping[str, str]) -> dict[str, str]:
    wishes = {}
    for part in ("sockets", "cores", "threads"):
        wish = extra_specs.get(f"hw:cpu_{part}", image_properties.get(f"hw_cpu_{part}"))
        if wish is not None:
            wishes[part] = wish
    return wishes


def _timers(arch: str) -> tuple[Timer, ...]:
    """Lost ticks are delayed or caught up with as operating systems expect; HPET only costs."""
    if arch != "x86_64":
        return ()
    return (Timer("pit", "delay"), Timer("rtc", "catchup"), Timer("hpet", present=False))


def _default_machine(arch: str) -> str:
    return "q35" if arch == "x86_64" else "virt"


def _pcie_ports(options: GuestOptions, machine: str) -> tuple[Controller, ...]:
    """Spare ports let devices be attached to a running guest. Only machines with PCI Express have them."""
    pcie = (options.arch == "x86_64" and "q35" in machine) or (options.arch == "aarch64" and machine.startswith("virt"))
    if not pcie or options.num_pcie_ports == 0:
        return ()
    if not 0 < options.num_pcie_ports <= _MAX_PCIE_PORTS:
        raise InvalidConfiguration(
            reason=f"[libvirt]num_pcie_ports = {options.num_pcie_ports}: use 0 to {_MAX_PCIE_PORTS}"
        )
    return (Controller("pci", 0, "pcie-root"), *(Controller("pci", None, "pcie-root-port"),) * options.num_pcie_ports)


def _disks(files: GuestFiles, bus: str) -> tuple[tuple[Disk, ...], tuple[Controller, ...]]:
    prefix = _DISK_PREFIXES.get(bus)
    if prefix is None:
        raise NotSupported(reason=f"image property hw_disk_bus={bus!r}: use one of {', '.join(sorted(_DISK_PREFIXES))}")
    disks = []
    if files.root_disk is not None:
        disks.append(Disk(format=files.root_format, path=str(files.root_disk), target=f"{prefix}a", bus=bus))
    if files.config_drive is not None:
        letter = "b" if prefix == "sd" and disks else "a"
        disks.append(
            Disk(device="cdrom", path=str(files.config_drive), target=f"sd{letter}", bus="sata", read_only=True)
        )
    return tuple(disks), (Controller("scsi", 0, "virtio-scsi"),) if bus == "scsi" else ()

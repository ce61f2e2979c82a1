"""Guests that tests share: each named case is one golden document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from jetbridge.model.flavor import Flavor
from jetbridge.model.server import PowerState, Server, VmState
from jetbridge.numa.topology import CpuPolicy, GuestCell, GuestTopology, HostCell, HostTopology
from jetbridge.pci.device import DeviceType, PciDevice
from jetbridge.pci.port import VnicType
from jetbridge.pci.request import PciRequest
from jetbridge.virt.connection import NetworkInfo
from jetbridge.virt.guest import GuestFiles, GuestNic, GuestOptions, GuestVgpu, Translation, guest_spec

GPU = {"vendor_id": "10de", "product_id": "1eb8"}
MDEVS = ("4b20d080-1b54-4048-85b3-a6a62d165c01", "4b20d080-1b54-4048-85b3-a6a62d165c02")
FOLDER = Path("/var/lib/jetbridge/instances/instance-0000002a")
FILES = GuestFiles(console_log=FOLDER / "console.log", root_disk=FOLDER / "root.qcow2")
NICS = (
    GuestNic("fa:16:3e:00:00:01", network=NetworkInfo("default", "network")),
    GuestNic("fa:16:3e:00:00:02", network=NetworkInfo("br-lab", "bridge")),
)
HOST = HostTopology(
    (
        HostCell(0, frozenset({0, 1, 2, 3}), frozenset({4, 5, 6, 7}), 65536),
        HostCell(1, frozenset({8, 9, 10, 11}), frozenset({12, 13, 14, 15}), 65536),
    )
)
FLAVOR = Flavor(
    id=7,
    flavorid="7",
    name="gpu.small",
    vcpus=4,
    memory_mb=4096,
    root_gb=20,
    extra_specs={"pci_passthrough:alias": "GPU:1"},
)
SERVER = Server(
    id=42,
    uuid="6c1d1f0e-7c3a-4bb3-9f4a-0d5d7d6a9c11",
    display_name="trainer & co",
    project_id="a0000000000000000000000000000001",
    user_id="a0000000000000000000000000000001",
    vm_state=VmState.BUILDING,
    task_state=None,
    power_state=PowerState.NOSTATE,
    flavor=FLAVOR,
    image_ref="0f6c8f2b-1d4e-4d6c-8f3b-2f3a5b6c7d8e",
    created_at=datetime(2026, 1, 1),
    host="gpu001",
)


def device(address: str, request_id: str | None, *, managed: bool = True) -> PciDevice:
    return PciDevice(
        compute_node_id=1,
        address=address,
        vendor_id=GPU["vendor_id"],
        product_id=GPU["product_id"],
        dev_type=DeviceType.PCI,
        instance_uuid=SERVER.uuid,
        request_id=request_id,
        managed=managed,
    )


def request(request_id: str, count: int = 1, alias: str | None = "GPU") -> PciRequest:
    return PciRequest(request_id, count, (GPU,), alias, requester_id=None if alias else "port-1")


def port_nics() -> Mapping[VnicType, GuestNic]:
    """One NIC of each kind of port that takes a device."""

    def nic(kind: VnicType, number: int, address: str, **more: Any) -> GuestNic:
        return GuestNic(f"fa:16:3e:00:01:0{number}", kind, address, **more)

    socket = "/run/virtio-forwarder/0000:a1:00.6.sock"
    made = [
        nic(VnicType.DIRECT, 1, "0000:a1:00.2", vlan=42),
        nic(VnicType.MACVTAP, 2, "0000:a1:00.3", vlan=42, path="enp161s0f0v1"),
        nic(VnicType.VDPA, 3, "0000:a1:01.2", path="/dev/vhost-vdpa-3"),
        nic(VnicType.REMOTE_MANAGED, 4, "0000:a1:00.4", vlan=42),
        nic(VnicType.DIRECT_PHYSICAL, 5, "0000:c1:00.0", vlan=42),
        nic(VnicType.VIRTIO_FORWARDER, 6, "0000:a1:00.6", path=socket),
        nic(VnicType.ACCELERATOR_DIRECT, 7, "0000:a1:00.7", vlan=42),
        nic(VnicType.ACCELERATOR_DIRECT_PHYSICAL, 8, "0000:d1:00.0", vlan=42),
    ]
    return {each.vnic_type: each for each in made}


def translate(
    *,
    server: Server = SERVER,
    image_properties: Mapping[str, str] | None = None,
    requests: tuple[PciRequest, ...] = (),
    devices: tuple[PciDevice, ...] = (),
    topology: GuestTopology | None = None,
    nics: Sequence[GuestNic] = (),
    files: GuestFiles = FILES,
    options: GuestOptions | None = None,
    vgpus: tuple[GuestVgpu, ...] = (),
) -> Translation:
    return guest_spec(
        server,
        image_properties=image_properties or {},
        requests=requests,
        devices=devices,
        topology=topology,
        host=HOST,
        nics=nics,
        files=files,
        options=options or GuestOptions(),
        vgpus=vgpus,
    )


def _server(vcpus: int = 4, **changes: object) -> Server:
    return replace(SERVER, flavor=replace(FLAVOR, vcpus=vcpus), **changes)  # type: ignore[arg-type]


def _pinned(**changes: object) -> GuestTopology:
    cells = (
        GuestCell(
            0,
            frozenset(),
            frozenset({0, 1}),
            2048,
            "1048576",
            1,
            1048576,
            {0: 12, 1: 13},
            reserved_cpus=frozenset({14}),
        ),
        GuestCell(1, frozenset(), frozenset({2, 3}), 2048, "1048576", 0, 1048576, {2: 4, 3: 5}),
    )
    return replace(GuestTopology(cells, CpuPolicy.DEDICATED), **changes)  # type: ignore[arg-type]


def golden_cases() -> Mapping[str, Translation]:
    """Golden document's name to the translation that makes it."""
    one_gpu = {"requests": (request("r1"),), "devices": (device("0000:3b:00.0", "r1"),)}
    shared = GuestTopology((GuestCell(0, frozenset(range(4)), frozenset(), 4096, None, 1, 4),))
    mixed = GuestTopology(
        (GuestCell(0, frozenset({0}), frozenset({1, 2, 3}), 4096, "large", 0, 2048, {1: 4, 2: 5, 3: 6}),),
        CpuPolicy.MIXED,
    )
    ports = port_nics()
    return {
        "one-gpu": translate(**one_gpu),
        "two-requests-unmanaged": translate(
            requests=(request("r2"), request("r1", 2)),
            devices=(
                device("0000:82:00.0", "r1"),
                device("0000:81:00.0", "r1"),
                device("0000:3b:00.4", "r2", managed=False),
            ),
        ),
        "no-devices": translate(),
        "networks-and-config-drive": translate(
            nics=NICS, files=replace(FILES, config_drive=FOLDER / "config-drive.iso"), **one_gpu
        ),
        "ports-of-every-kind": translate(nics=tuple(ports[kind] for kind in ports), **one_gpu),
        "an-open-vswitch-port": translate(
            nics=(replace(NICS[1], network=NetworkInfo("br-int", "bridge"), ovs_port=SERVER.uuid),)
        ),
        "uefi-and-pcie-ports": translate(
            image_properties={"hw_firmware_type": "uefi"}, options=GuestOptions(num_pcie_ports=3), **one_gpu
        ),
        "uefi-secure-boot": translate(image_properties={"hw_firmware_type": "uefi", "os_secure_boot": "required"}),
        "direct-kernel-boot-emulated": translate(
            image_properties={"os_command_line": "console=ttyS0 root=/dev/vda1"},
            files=replace(FILES, kernel=Path("/images/kernel"), ramdisk=Path("/images/ramdisk")),
            options=GuestOptions(virt_type="qemu"),
        ),
        "image-choices": translate(
            nics=NICS[:1],
            image_properties={
                "hw_disk_bus": "scsi",
                "hw_vif_model": "e1000e",
                "hw_machine_type": "pc-q35-7.2",
                "os_type": "windows",
                "img_hide_hypervisor_id": "true",
                "hw_cpu_cores": "2",
            },
            files=replace(FILES, config_drive=FOLDER / "config-drive.iso"),
        ),
        "pinned-hugepages-two-cells": translate(topology=_pinned(emulator_isolate=True), **one_gpu),
        "pinned-emulator-shares": translate(
            topology=_pinned(emulator_share=True), options=GuestOptions(shared_cpus=frozenset({0, 1, 8, 9}))
        ),
        "mixed-2-mib-pages": translate(topology=mixed),
        "shared-cpus-of-one-cell": translate(topology=shared, **one_gpu),
        "two-vgpus": translate(vgpus=(GuestVgpu(uuid=MDEVS[0]), GuestVgpu(uuid=MDEVS[1]))),
        "vgpu-with-display": translate(vgpus=(GuestVgpu(uuid=MDEVS[0], display=True, ramfb=True),)),
        "gpu-and-vendor-vgpu": translate(vgpus=(GuestVgpu(address="0000:65:00.4"),), **one_gpu),
        "kept-off-dedicated-cpus": translate(options=GuestOptions(shared_cpus=frozenset({0, 1, 2, 3, 8, 9}))),
    }

"""Configurations of the service in L1. One at a time serves; scenarios that need another one than ``COMMON`` say so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.hardware import ACCELERATOR, GROUP, VGPUS

USERS = "/etc/jetbridge/users"
Section = tuple[str, ...]

EVERYWHERE: Mapping[str, Section] = {
    "DEFAULT": ("reserved_host_memory_mb = 256", "update_resources_interval = 30", "service_down_time = 300"),
    "libvirt": ("virt_type = qemu",),
    "api": ("auth_strategy = http_basic", f"http_basic_auth_user_file = {USERS}"),
}
"""L1 has no KVM and little memory, and its service listens beyond loopback. Scenarios wait for passes, each of which takes seconds of
L1's time; and on a busy machine a sign of life may be late by more than a minute."""


@dataclass(frozen=True)
class Setup:
    """``sections``: lines of the configuration by section, besides those of ``EVERYWHERE``. ``flavors``: extra specs by name.
    ``name`` is part of the state folder's: another setup finds nothing of this one."""

    name: str
    sections: Mapping[str, Section] = field(default_factory=dict)
    flavors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def configuration(self) -> str:
        lines = []
        for section in dict.fromkeys((*EVERYWHERE, *self.sections)):
            lines += [f"[{section}]", *EVERYWHERE.get(section, ()), *self.sections.get(section, ())]
        return "\n".join([*lines, ""])


def device_spec(**fields: str) -> str:
    return f"device_spec = {json.dumps(fields)}"


def alias(name: str, ids: str, kind: str = "type-PCI", **more: str) -> str:
    vendor, product = ids.split(":")
    fields = {"name": name, "vendor_id": vendor, "product_id": product, "device_type": kind, **more}
    return f"alias = {json.dumps(fields)}"


COMMON = Setup(
    name="common",
    sections={
        "pci": (
            device_spec(vendor_id="1234", product_id="11e8"),
            device_spec(vendor_id="8086", product_id="10d3"),
            device_spec(vendor_id="8086", product_id="100c"),
            device_spec(vendor_id="8086", product_id="100f", managed="false"),
            device_spec(address=GROUP[0].address),
            device_spec(vendor_id="1b36", product_id="0010"),
            alias("EDU", "1234:11e8"),
            alias("NIC", "8086:10d3", numa_policy="legacy"),
            alias("NEARNIC", "8086:10d3", numa_policy="required"),
            alias("KEPT", "8086:100c"),
            alias("UNMANAGED", "8086:100f"),
            alias("HALF", "8086:100e"),
            alias("NVMEPF", "1b36:0010", "type-PF"),
            alias("NVMEVF", "1b36:0010", "type-VF"),
        ),
        "devices": ("enabled_mdev_types = labvgpu-1,mtty-2",),
        "mdev_labvgpu-1": (f"device_addresses = {VGPUS[0].address}",),
        "mdev_mtty-2": ("device_addresses = mtty_mtty", "mdev_class = CUSTOM_SERIAL", "max_instances = 2"),
        "accelerator": (device_spec(address=ACCELERATOR.address, type="NIC", traits="CUSTOM_TEACHING"),),
    },
    flavors={
        "edu": {"pci_passthrough:alias": "EDU:1"},
        "two-nics": {"pci_passthrough:alias": "NIC:2"},
        "near-nic": {"pci_passthrough:alias": "NEARNIC:1", "hw:numa_nodes": "1"},
        "unmanaged": {"pci_passthrough:alias": "UNMANAGED:1"},
        "kept": {"pci_passthrough:alias": "KEPT:1"},
        "half-group": {"pci_passthrough:alias": "HALF:1"},
        "nvme-pf": {"pci_passthrough:alias": "NVMEPF:1"},
        "nvme-vf": {"pci_passthrough:alias": "NVMEVF:1"},
        "vgpu": {"resources:VGPU": "1"},
        "two-vgpus": {"resources1:VGPU": "1", "resources2:CUSTOM_SERIAL": "1", "group_policy": "isolate"},
        "serial": {"resources:CUSTOM_SERIAL": "1"},
        "all-of-a-card": {"resources:VGPU": "4"},
        "accelerated": {"accel:device_profile": "teaching"},
    },
)
"""Passthrough by aliases, vGPUs and accelerators. Only choosing by Placement asks for another one: it can't be switched off again."""

"""Configurations of the service in L1. One at a time serves; scenarios that need another one than ``PASSTHROUGH`` say so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.hardware import GROUP

USERS = "/etc/jetbridge/users"
Section = tuple[str, ...]

EVERYWHERE: Mapping[str, Section] = {
    "DEFAULT": ("reserved_host_memory_mb = 256", "update_resources_interval = 10"),
    "libvirt": ("virt_type = qemu",),
    "api": ("auth_strategy = http_basic", f"http_basic_auth_user_file = {USERS}"),
}
"""L1 has no KVM and little memory, its service listens beyond loopback, and scenarios wait for passes."""


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


PASSTHROUGH = Setup(
    name="passthrough",
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
        )
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
    },
)

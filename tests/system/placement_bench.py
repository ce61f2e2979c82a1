"""A host whose devices and lines change, and what becomes of it in Placement, read back through osc-placement."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.system.clients import openstack_client
from tests.system.cloud import T4, Cloud, fleet, gpu, host, running
from tests.system.placement import Providers

MANAGED = {"COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"}
T4_CLASS = "CUSTOM_PCI_10DE_1EB8"
VF = {"vendor_id": "8086", "product_id": "1520"}
VF_CLASS = "CUSTOM_PCI_8086_1520"
PF = {"vendor_id": "8086", "product_id": "1521"}
NIC = {**PF, "address": "0000:3b:00.0", "driver": "igb"}


def nic(vfs: int) -> dict[str, Any]:
    """A card with so many VFs, 0000:3b:00.1 and so on."""
    return {**NIC, "pf": {"vfs": vfs, "max_vfs": 8, "vf_product_id": "1520"}}


@dataclass
class Bench:
    """A host that changes, in a cloud that goes on running."""

    cloud: Cloud
    providers: Providers
    hosts: dict[str, dict[str, Any]]
    config: Mapping[str, Any] = field(default_factory=dict)

    def content(self, hosts: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
        return cloud_of(self.hosts if hosts is None else hosts, **self.config)

    def host(
        self,
        name: str,
        devices: Sequence[Mapping[str, Any]],
        specs: Sequence[Mapping[str, Any]],
        *,
        report: bool = True,
        **options: Any,
    ) -> None:
        """The host is so from now on: its agent starts anew where its options changed. ``options``: more of ``[pci]``."""
        pci = {"device_spec": [dict(spec) for spec in specs], "report_in_placement": report, **options}
        self.hosts[name] = host(name, devices, config={"pci": pci})
        self.cloud.reload(self.content())
        self.settle(name)

    def refused(self, name: str, specs: Sequence[Mapping[str, Any]], *, report: bool = True) -> str:
        """What a start with these options says."""
        before = self.hosts[name]
        pci = {"device_spec": [dict(spec) for spec in specs], "report_in_placement": report}
        self.cloud.write_fleet(self.content({**self.hosts, name: {**before, "config": {"pci": pci}}}))
        answer = self.cloud.client.post(f"{self.cloud.url}/jetbridge/v1/fleet/reload")
        assert answer.status_code == 400, answer.text
        self.cloud.reload(self.content())
        self.settle(name)
        message: str = json.dumps(answer.json())
        return message

    def settle(self, name: str) -> None:
        """One pass of the agent has come to its end."""
        self.cloud.update_resources(name)

    def boot(self, name: str, alias: str, count: int = 1, status: str = "ACTIVE") -> str:
        flavors = self.cloud.client.get("/flavors").json()["flavors"]
        wanted = f"{alias}{count}"
        known = [flavor["id"] for flavor in flavors if flavor["name"] == wanted]
        flavor = known[0] if known else self.cloud.flavor(wanted, {"pci_passthrough:alias": f"{alias}:{count}"})
        server = self.cloud.boot(flavor, availability_zone=f"nova:{name}")
        self.cloud.wait(server, status)
        return server

    def delete(self, server: str) -> None:
        self.cloud.delete(server)
        self.cloud.wait_gone(server)

    def totals(self, name: str) -> dict[str, dict[str, int]]:
        """Of the host's children: totals by class."""
        tree = self.providers.tree(name)
        return {
            child: {resource: total for resource, (total, _) in self.providers.inventory(uuid).items()}
            for child, uuid in tree.items()
            if child != name
        }

    def devices(self, server: str, name: str) -> dict[str, dict[str, int]]:
        """The server's allocation of the host's children, by name."""
        names = {uuid: child for child, uuid in self.providers.tree(name).items()}
        allocation = self.providers.allocation(server)
        assert set(allocation) <= set(names)
        return {names[uuid]: resources for uuid, resources in allocation.items() if names[uuid] != name}


def cloud_of(hosts: Mapping[str, Mapping[str, Any]], **config: Any) -> dict[str, Any]:
    aliases = [
        {"name": "GPU", **T4, "device_type": "type-PCI"},
        {"name": "VF", **VF, "device_type": "type-VF"},
        {"name": "PF", **PF, "device_type": "type-PF"},
    ]
    return fleet(*hosts.values(), pci={"alias": aliases}, **config)


@contextmanager
def open_bench(folder: Path, **config: Any) -> Iterator[Bench]:
    """With one host, ``plain``, that doesn't report its devices. ``config``: more of the fleet's options."""
    hosts = {"plain": host("plain", [gpu(0x17)], numa={"cells": 1, "cpus_per_cell": 4, "memory_mb_per_cell": 4096})}
    for gone in ("vcpus", "memory_mb"):
        hosts["plain"].pop(gone)
    with running(folder, cloud_of(hosts, **config)) as cloud, openstack_client(cloud) as openstack:
        cloud.update_resources("plain")
        yield Bench(cloud, Providers(openstack), hosts, config)


def audit(bench: Bench, name: str) -> list[dict[str, Any]]:
    answer: dict[str, Any] = bench.cloud.client.get(
        f"{bench.cloud.url}/jetbridge/v1/audit", params={"host": name}
    ).json()
    assert answer["unseen"] == {}
    findings: list[dict[str, Any]] = answer["findings"]
    return findings


ADMIN = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.36"}


def placement_url(bench: Bench) -> str:
    return bench.cloud.placement_url


def stored_allocation(bench: Bench, consumer: str) -> dict[str, Any]:
    """As Placement tells it, ready to be written again."""
    found: dict[str, Any] = httpx.get(f"{placement_url(bench)}/allocations/{consumer}", headers=ADMIN).json()
    for each in found["allocations"].values():
        each.pop("generation", None)
    return found


def write_allocation(bench: Bench, consumer: str, body: Mapping[str, Any]) -> None:
    """As anybody with the right to do so."""
    answer = httpx.put(f"{placement_url(bench)}/allocations/{consumer}", headers=ADMIN, json=dict(body))
    assert answer.status_code == 204, answer.text

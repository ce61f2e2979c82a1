"""Devices scheduled by their providers in Placement, and what every server has there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jetbridge.model.events import Seam
from tests.system.clients import openstack_client
from tests.system.cloud import T4, Cloud, fleet, gpu, host, running
from tests.system.ledger import allocation, client_of, consumers, providers
from tests.system.placement import Providers

GPU_CLASS = "CUSTOM_PCI_10DE_1EB8"
IN_PLACEMENT = {"pci": {"report_in_placement": True}, "filter_scheduler": {"pci_in_placement": True}}
NIC = {"vendor_id": "15b3", "product_id": "101e"}


def card(bus: int, **more: Any) -> dict[str, Any]:
    """A card with two virtual functions."""
    pf = {"vfs": 2, "max_vfs": 8, "vf_product_id": "101e"}
    return {"address": f"0000:{bus:02x}:00.0", "vendor_id": "15b3", "product_id": "101d", "pf": pf, **more}


def in_placement(*hosts: dict[str, Any], **pci: Any) -> dict[str, Any]:
    config = {**IN_PLACEMENT, "pci": {**IN_PLACEMENT["pci"], **pci}}
    return fleet(*hosts, **config)


def asked(cloud: Cloud, server_id: str) -> list[str]:
    """What the scheduler asked Placement for a server."""
    return [
        event.what
        for event in cloud.events
        if event.seam is Seam.REST and event.source == "scheduler" and event.server == server_id
    ]


TRAITS = [
    {"address": "0000:3b:00.0", "traits": "fast"},
    {"address": "0000:3c:00.0"},
    {"address": "0000:3d:00.0"},
    {**NIC},
]
ALIASES = [
    {"name": "GPU", **T4, "device_type": "type-PCI"},
    {"name": "fast", **T4, "device_type": "type-PCI", "traits": "fast"},
    {"name": "never", "resource_class": "never_reported", "device_type": "type-PCI"},
    {"name": "odd", **T4, "device_type": "type-PCI", "traits": "odd"},
    {"name": "vf", **NIC, "device_type": "type-VF"},
]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One host: three T4s, one of them fast, and two cards with two VFs each."""
    devices = [gpu(0x3B), gpu(0x3C), gpu(0x3D), card(0x5E), card(0x5F)]
    content = in_placement(host("gpu1", devices), device_spec=TRAITS, alias=ALIASES)
    with running(tmp_path_factory.mktemp("placement"), content) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def osc(cloud: Cloud) -> Iterator[Providers]:
    with openstack_client(cloud) as openstack:
        yield Providers(openstack)


def boot(cloud: Cloud, name: str, specs: dict[str, str]) -> str:
    return cloud.boot(cloud.flavor(name, specs), name)


def gone(cloud: Cloud, *server_ids: str) -> None:
    for server_id in server_ids:
        cloud.delete(server_id)
    for server_id in server_ids:
        cloud.wait_gone(server_id)


def test_the_claim_follows_placement_to_the_device_with_the_trait(cloud: Cloud, osc: Providers) -> None:
    server = boot(cloud, "one-fast", {"pci_passthrough:alias": "fast:1"})
    cloud.wait(server, "ACTIVE")
    assert cloud.owned(server) == ["0000:3b:00.0"]
    assert osc.allocation_by_name(server) == {
        "gpu1": {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1},
        "gpu1_0000:3B:00.0": {GPU_CLASS: 1},
    }
    assert len(asked(cloud, server)) == 2
    told = cloud.client.get(f"{cloud.url}/jetbridge/v1/servers/{server}/verdicts").json()
    assert "gets 0000:3b:00.0" in json.dumps(told)
    gone(cloud, server)
    assert consumers(cloud) == set()


def test_requests_that_share_a_kind_are_chosen_jointly(cloud: Cloud) -> None:
    """The only fast device is left to who needs it."""
    server = boot(cloud, "mixed", {"pci_passthrough:alias": "GPU:2,fast:1"})
    cloud.wait(server, "ACTIVE")
    assert len(cloud.owned(server)) == 3
    assert len(asked(cloud, server)) == 3
    gone(cloud, server)


@pytest.mark.parametrize(
    ("alias", "says"),
    [
        ("odd:1", "Placement knows no CUSTOM_ODD"),
        ("never:1", "Placement knows no CUSTOM_NEVER_REPORTED"),
        ("fast:2", "1 of them is free in Placement"),
    ],
)
def test_case_85_what_nobody_has_is_no_host_and_changes_nothing(
    cloud: Cloud, osc: Providers, alias: str, says: str
) -> None:
    used = {uuid: osc.usage(uuid) for uuid in osc.tree("gpu1").values()}
    server = boot(cloud, f"no-{alias[:-2]}", {"pci_passthrough:alias": alias})
    cloud.wait(server, "ERROR")
    assert says in cloud.show(server)["fault"]["message"]
    assert osc.allocation(server) == {}
    assert {uuid: osc.usage(uuid) for uuid in used} == used
    assert set(cloud.statuses()) <= {"available", "unavailable"}
    gone(cloud, server)


def test_case_87_several_devices_of_one_provider_are_followed_exactly(cloud: Cloud, osc: Providers) -> None:
    server = boot(cloud, "three-vfs", {"pci_passthrough:alias": "vf:3"})
    cloud.wait(server, "ACTIVE")
    allocated = osc.allocation_by_name(server)
    held = {name: amounts["CUSTOM_PCI_15B3_101E"] for name, amounts in allocated.items() if name != "gpu1"}
    assert sorted(held.values()) == [1, 2]
    owned = cloud.owned(server)
    for name, amount in held.items():
        bus = name.removeprefix("gpu1_").lower()[:7]
        assert sum(address.startswith(bus) for address in owned) == amount
    gone(cloud, server)


def test_case_88_isolated_devices_are_of_different_providers(cloud: Cloud, osc: Providers) -> None:
    server = boot(cloud, "apart", {"pci_passthrough:alias": "vf:2", "group_policy": "isolate"})
    cloud.wait(server, "ACTIVE")
    assert {address[:7] for address in cloud.owned(server)} == {"0000:5e", "0000:5f"}
    devices = {name: amounts for name, amounts in osc.allocation_by_name(server).items() if name != "gpu1"}
    one = {"CUSTOM_PCI_15B3_101E": 1}
    assert devices == {"gpu1_0000:5E:00.0": one, "gpu1_0000:5F:00.0": one}
    third = boot(cloud, "apart-3", {"pci_passthrough:alias": "vf:3", "group_policy": "isolate"})
    cloud.wait(third, "ERROR")
    gone(cloud, server, third)


def test_reserved_by_an_operator_is_not_given(cloud: Cloud) -> None:
    client = client_of(cloud)
    names = {name: uuid for uuid, name in providers(cloud).items()}
    for name in ("gpu1_0000:3C:00.0", "gpu1_0000:3D:00.0"):
        generation, inventories = client.inventories(names[name])
        client.set_inventories(names[name], generation, {GPU_CLASS: {**inventories[GPU_CLASS], "reserved": 1}})
    server = boot(cloud, "reserved", {"pci_passthrough:alias": "GPU:1"})
    cloud.wait(server, "ACTIVE")
    assert cloud.owned(server) == ["0000:3b:00.0"]
    for name in ("gpu1_0000:3C:00.0", "gpu1_0000:3D:00.0"):
        generation, inventories = client.inventories(names[name])
        client.set_inventories(names[name], generation, {GPU_CLASS: {**inventories[GPU_CLASS], "reserved": 0}})
    gone(cloud, server)


def test_traits_of_the_host_are_required_and_forbidden(cloud: Cloud) -> None:
    client = client_of(cloud)
    (root,) = [uuid for uuid, name in providers(cloud).items() if name == "gpu1"]
    refused = boot(cloud, "needs-rack", {"trait:CUSTOM_RACK_7": "required"})
    cloud.wait(refused, "ERROR")
    assert "the host lacks the trait CUSTOM_RACK_7" in cloud.show(refused)["fault"]["message"]
    client.ensure_trait("CUSTOM_RACK_7")
    generation, traits = client.traits(root)
    client.set_traits(root, generation, traits | {"CUSTOM_RACK_7"})
    cloud.update_resources("gpu1")
    taken = boot(cloud, "has-rack", {"trait:CUSTOM_RACK_7": "required"})
    cloud.wait(taken, "ACTIVE")
    refused_too = boot(cloud, "no-rack", {"trait:CUSTOM_RACK_7": "forbidden"})
    cloud.wait(refused_too, "ERROR")
    assert "which the flavor forbids" in cloud.show(refused_too)["fault"]["message"]
    gone(cloud, refused, taken, refused_too)


def test_other_classes_are_found_or_explained(cloud: Cloud) -> None:
    server = boot(cloud, "vgpu", {"resources:VGPU": "1"})
    cloud.wait(server, "ERROR")
    assert "Placement has no free VGPU" in cloud.show(server)["fault"]["message"]
    gone(cloud, server)


def test_a_vgpu_of_something_that_is_no_card_ends_the_build(cloud: Cloud) -> None:
    """VGPU that somebody wrote to the host's own provider: the server was active without a vGPU."""
    client = client_of(cloud)
    (root,) = [uuid for uuid, name in providers(cloud).items() if name == "gpu1"]
    generation, inventories = client.inventories(root)
    client.set_inventories(root, generation, {**inventories, "VGPU": {"total": 4}})
    for key in ("resources:VGPU", "resources1:VGPU"):
        server = boot(cloud, key.replace(":", "-"), {key: "1"})
        shown = cloud.wait(server, "ERROR", "ACTIVE")
        assert shown["status"] == "ERROR"
        assert "Placement gave VGPU of provider gpu1, which is no card of host gpu1" in shown["fault"]["message"]
        gone(cloud, server)
    generation, _ = client.inventories(root)
    client.set_inventories(root, generation, inventories)


def test_eight_at_once_on_eight_free_devices_of_one_host(tmp_path: Path) -> None:
    with running(tmp_path, in_placement(host("gpu1", [gpu(0x30 + n) for n in range(8)]))) as cloud:
        flavor = cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"})
        with ThreadPoolExecutor(8) as pool:
            servers = list(pool.map(lambda number: cloud.boot(flavor, f"s{number}"), range(8)))
        for server in servers:
            cloud.wait(server, "ACTIVE")
        assert sorted(address for server in servers for address in cloud.owned(server)) == sorted(
            f"0000:{0x30 + n:02x}:00.0" for n in range(8)
        )
        ninth = cloud.boot(flavor, "ninth")
        cloud.wait(ninth, "ERROR")
        assert consumers(cloud) == set(servers)
        for server in servers:
            (device,) = [name for name in allocation(cloud, server) if name != "gpu1"]
            assert [f"gpu1_{address.upper()}" for address in cloud.owned(server)] == [device]


def test_eight_of_sixteen_on_the_free_cell_are_found_at_once(tmp_path: Path) -> None:
    """Of 16 providers there are 518,918,400 ordered choices of eight, and those that a list of candidates begins with are on the cell
    that has no CPU left."""
    devices = [gpu(0x30 + number, numa_node=number // 8) for number in range(16)]
    cells = {"cells": 2, "cpus_per_cell": 8, "memory_mb_per_cell": 8192}
    only = host("gpu1", devices, numa=cells)
    for told_by_cells in ("vcpus", "memory_mb"):
        del only[told_by_cells]
    with running(tmp_path, in_placement(only)) as cloud:
        one_cell = {"hw:numa_nodes": "1", "hw:cpu_policy": "dedicated"}
        filler = cloud.boot(cloud.flavor("filler", one_cell, vcpus=8, ram=4096), "filler")
        cloud.wait(filler, "ACTIVE")
        ((fitted,),) = cloud.sql("SELECT numa_topology FROM instance_extra")
        assert [cell["id"] for cell in json.loads(fitted)["cells"]] == [0]
        specs = {**one_cell, "hw:pci_numa_affinity_policy": "required", "pci_passthrough:alias": "GPU:8"}
        server = cloud.boot(cloud.flavor("eight", specs, vcpus=4), "eight")
        cloud.wait(server, "ACTIVE")
        assert cloud.owned(server) == [f"0000:{0x38 + number:02x}:00.0" for number in range(8)]
        assert len(asked(cloud, server)) == 2
        assert len(allocation(cloud, server)) == 9

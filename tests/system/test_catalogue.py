"""Cases of the specification's catalogue of servers (13.7), from the request to all ledgers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.cloud import T4_ALIAS, Cloud, fleet, gpu, host
from tests.system.conftest import Launch
from tests.system.invariants import check_at_rest

PIP: dict[str, Any] = {"pci": {"report_in_placement": True}, "filter_scheduler": {"pci_in_placement": True}}
CARD = {
    "address": "0000:a1:00.0",
    "vendor_id": "15b3",
    "product_id": "101d",
    "driver": "mlx5_core",
    "pf": {"vfs": 2, "max_vfs": 8, "vf_product_id": "101e"},
}
BY_ALIAS: dict[str, Any] = {
    "device_spec": [{"vendor_id": "15b3"}],
    "alias": [
        {"name": "pf", "vendor_id": "15b3", "product_id": "101d", "device_type": "type-PF"},
        {"name": "vf", "vendor_id": "15b3", "product_id": "101e", "device_type": "type-VF"},
    ],
}


def boot(cloud: Cloud, flavor: str, count: int = 1) -> list[dict[str, Any]]:
    """The servers of one request, each as it ends."""
    cloud.boot(flavor, min_count=count, max_count=count)
    made = cloud.sql("SELECT uuid FROM instances WHERE deleted = 0 ORDER BY id DESC LIMIT :count", count=count)
    return [cloud.wait(server_id, "ACTIVE", "ERROR") for (server_id,) in made]


def delete(cloud: Cloud, servers: list[dict[str, Any]]) -> None:
    for server in servers:
        cloud.delete(server["id"])
        cloud.wait_gone(server["id"])


def statuses(servers: list[dict[str, Any]]) -> list[str]:
    return [server["status"] for server in servers]


def test_case_90_a_card_and_its_virtual_functions_exclude_each_other(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [CARD]), pci=BY_ALIAS))
    pf, vf = (cloud.flavor(name, {"pci_passthrough:alias": f"{name}:1"}) for name in ("pf", "vf"))
    of_pf, of_vf = ["allocated", "unavailable", "unavailable"], ["allocated", "available", "unavailable"]
    for first, second, devices in ((pf, vf, of_pf), (vf, pf, of_vf), (pf, vf, of_pf)):
        servers = boot(cloud, first)
        assert cloud.statuses() == devices
        servers += boot(cloud, second)
        assert statuses(servers) == ["ACTIVE", "ERROR"]
        assert "1 refused by PciPassthroughFilter" in servers[1]["fault"]["message"]  # before any claim
        delete(cloud, servers)
    assert set(cloud.statuses()) == {"available"}


def test_f12_both_of_one_card_are_one_refusal_and_no_storm(launch: Launch) -> None:
    cloud = launch(fleet(host("h[1-5]", [CARD]), pci=BY_ALIAS))
    (server,) = boot(cloud, cloud.flavor("both", {"pci_passthrough:alias": "pf:1,vf:1"}))
    assert "5 hosts considered: 5 refused by PciPassthroughFilter" in server["fault"]["message"]
    assert "a PF and its VFs exclude each other" in server["fault"]["message"]
    assert cloud.sql("SELECT attempts, host FROM builds") == [(0, None)]
    assert cloud.log().count("Filter PciPassthroughFilter returned 0 hosts") == 1


@pytest.mark.parametrize("model", [{}, PIP], ids=["pools", "placement"])
def test_case_94_two_servers_of_one_request_get_two_of_three_devices(launch: Launch, model: dict[str, Any]) -> None:
    cloud = launch(fleet(host("h1", [gpu(1), gpu(2), gpu(3)]), **model))
    flavor = cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"})
    two = boot(cloud, flavor, 2)
    assert statuses(two) == ["ACTIVE"] * 2
    assert len({address for server in two for address in cloud.owned(server["id"])}) == 2
    assert cloud.statuses() == ["allocated", "allocated", "available"]
    check_at_rest(cloud)
    delete(cloud, two)
    four = boot(cloud, flavor, 4)
    assert statuses(four) == ["ERROR"] * 4
    assert all("No valid host was found" in server["fault"]["message"] for server in four)
    assert cloud.statuses() == ["available"] * 3
    check_at_rest(cloud)


def test_case_100_pinned_guests_by_policy_and_the_device_s_node(launch: Launch) -> None:
    """The GPU is on node 0. A pinned guest without devices keeps off it, one with the GPU gets it; once node 0 has no CPUs left
    only policy preferred boots, and the flavor's policy overrides the alias' in both directions."""
    numa = {"cells": 2, "cpus_per_cell": 4, "memory_mb_per_cell": 8192, "sockets": 2}
    policies = {"L": "legacy", "R": "required", "P": "preferred"}
    aliases = [{**T4_ALIAS, "name": name, "numa_policy": policy} for name, policy in policies.items()]
    hosts = {"name": "h1", "numa": numa, "devices": [gpu(1, 0)]}
    cloud = launch(fleet(hosts, pci={"alias": aliases}, compute={"cpu_dedicated_set": "0-7"}))

    def flavor(name: str, **extra: str) -> str:
        specs = {key.replace("__", ":"): value for key, value in extra.items()}
        return cloud.flavor(name, {"hw:cpu_policy": "dedicated", **specs}, vcpus=4)

    plain = flavor("plain")
    both = [*boot(cloud, plain), *boot(cloud, flavor("gpu", pci_passthrough__alias="L:1"))]
    assert statuses(both) == ["ACTIVE"] * 2
    delete(cloud, both)
    on_node_1, on_node_0 = boot(cloud, plain), boot(cloud, plain)
    delete(cloud, on_node_1)
    boots = {}
    for alias, policy in (("L", None), ("R", None), ("P", None), ("R", "preferred"), ("P", "required")):
        own = {} if policy is None else {"hw__pci_numa_affinity_policy": policy}
        servers = boot(cloud, flavor(f"{alias}-{policy}", pci_passthrough__alias=f"{alias}:1", **own))
        boots[alias, policy] = statuses(servers) == ["ACTIVE"]
        delete(cloud, servers)
    assert boots == {
        ("L", None): False,
        ("R", None): False,
        ("P", None): True,
        ("R", "preferred"): True,
        ("P", "required"): False,
    }
    delete(cloud, on_node_0)

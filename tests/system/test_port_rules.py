"""Ports beside what else decides about devices: Placement, NUMA nodes, and what the Compute API can't do yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jetbridge.compute import interfaces
from tests.system.clients import OpenStack, openstack_client
from tests.system.cloud import T4, T4_ALIAS, Cloud, gpu, host
from tests.system.conftest import deployed
from tests.system.invariants import check_at_rest
from tests.system.placement import Providers

PF, VF = "101d", "101e"
CELLS = {"cells": 2, "cpus_per_cell": 4, "memory_mb_per_cell": 8192, "sockets": 2}


def card(bus: int, *, vdpa: bool = False, **more: Any) -> dict[str, Any]:
    """A card with two VFs. Nobody knows which node it is near to, if ``more`` doesn't say so."""
    pf = {"vfs": 2, "max_vfs": 8, "vf_product_id": VF, "vf_interface": f"p{bus:x}v", "vdpa": vdpa}
    names = {"interface": f"p{bus:x}", "mac": f"0c:42:a1:00:{bus:02x}:00", "driver": "mlx5_core"}
    return {"address": f"0000:{bus:02x}:00.0", "vendor_id": "15b3", "product_id": PF, **names, "pf": pf, **more}


SPEC = [
    T4,
    {"vendor_id": "15b3", "product_id": VF, "address": "0000:a1:00.0", "physical_network": "n1"},
    {"vendor_id": "15b3", "product_id": VF, "address": "0000:b1:00.0", "physical_network": "n2"},
    {"vendor_id": "15b3", "product_id": VF, "address": "0000:c1:00.0", "physical_network": "n3"},
]
FLEET: dict[str, Any] = {
    "hosts": [
        {
            **host("net1", [gpu(0x3B, 0), card(0xA1), card(0xB1, numa_node=1), card(0xC1, vdpa=True)]),
            "numa": CELLS,
        }
    ],
    "config": {
        "pci": {"device_spec": SPEC, "alias": [T4_ALIAS], "report_in_placement": True},
        "filter_scheduler": {"pci_in_placement": True},
    },
}
for key in ("vcpus", "memory_mb"):
    del FLEET["hosts"][0][key]  # those of the cells
PROVIDER = ("--provider-network-type", "vlan", "--provider-physical-network")


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with deployed(request, tmp_path_factory.mktemp("port-rules"), FLEET) as started:
        yield started


@pytest.fixture(scope="module")
def openstack(cloud: Cloud) -> Iterator[OpenStack]:
    with openstack_client(cloud) as client:
        for number, name in enumerate(("n1", "n2", "n3"), 42):
            client.ok("network", "create", *PROVIDER, name, "--provider-segment", str(number), name)
        size = ("--ram", "512", "--vcpus", "1", "--disk", "1")
        near = ("--property", "hw:numa_nodes=1")
        client.ok("flavor", "create", *size, "plain")
        client.ok("flavor", "create", *size, "--property", "pci_passthrough:alias=GPU:1", "gpu")
        client.ok("flavor", "create", *size, *near, "near")
        client.ok("flavor", "create", *size, *near, "--property", "pci_passthrough:alias=GPU:1", "gpu-near")
        client.ok("flavor", "create", *size, *near, "--property", "hw:pci_numa_affinity_policy=required", "strict")
        yield client


@pytest.fixture(autouse=True)
def leaves_nothing(cloud: Cloud) -> Iterator[None]:
    yield
    for (server_id,) in cloud.sql("SELECT uuid FROM instances WHERE deleted = 0"):
        cloud.delete(server_id)
        cloud.wait_gone(server_id)
    cloud.until(lambda: cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)], "all builds ended")
    check_at_rest(cloud)
    assert set(cloud.statuses()) == {"available"}
    for (port_id,) in cloud.sql("SELECT id FROM ports"):
        assert cloud.client.delete(f"{cloud.url}/network/v2.0/ports/{port_id}").status_code == 204


def make_port(openstack: OpenStack, network: str, *words: str, kind: str = "direct") -> str:
    return str(openstack.json("port", "create", "--network", network, "--vnic-type", kind, *words, "p")["id"])


def create(openstack: OpenStack, cloud: Cloud, flavor: str, port: str) -> dict[str, Any]:
    words = ("--flavor", flavor, "--image", cloud.image(), "--port", port, "s")
    return cloud.wait(openstack.json("server", "create", *words)["id"], "ACTIVE", "ERROR")


def test_15_7_placement_is_asked_for_the_flavor_s_device_and_pools_for_the_port_s(
    openstack: OpenStack, cloud: Cloud
) -> None:
    server = create(openstack, cloud, "gpu", make_port(openstack, "n1"))
    assert server["status"] == "ACTIVE", server["fault"]
    assert cloud.owned(server["id"]) == ["0000:3b:00.0", "0000:a1:00.2"]
    providers = Providers(openstack)
    assert set(providers.tree("net1")) == {"net1", "net1_0000:3B:00.0"}
    assert providers.allocation_by_name(server["id"]) == {
        "net1": {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1},
        "net1_0000:3B:00.0": {"CUSTOM_PCI_10DE_1EB8": 1},
    }


@pytest.mark.parametrize(
    ("own", "flavor", "network", "fits"),
    [
        (None, "near", "n1", True),
        ("required", "near", "n1", False),
        ("required", "near", "n2", True),
        (None, "strict", "n1", False),
        ("preferred", "strict", "n1", True),
    ],
)
def test_the_numa_policy_of_a_port_counts_before_the_flavor_s(
    openstack: OpenStack, cloud: Cloud, own: str | None, flavor: str, network: str, fits: bool
) -> None:
    """The VFs of n1 have no node, those of n2 are near to node 1."""
    port = make_port(openstack, network, *(() if own is None else (f"--numa-policy-{own}",)))
    server = create(openstack, cloud, flavor, port)
    if fits:
        assert server["status"] == "ACTIVE", server["fault"]
        return
    fault = server["fault"]["message"]
    assert "policy required refuses devices without a NUMA node" in fault
    assert "2 devices match, on NUMA node unknown" in fault


def test_a_port_that_is_put_in_gets_a_device_near_enough_to_where_the_guest_lies(
    openstack: OpenStack, cloud: Cloud
) -> None:
    """The guest lies on node 0, with its GPU; the VFs of n1 have no node, those of n2 are near to node 1."""
    words = ("--flavor", "gpu-near", "--image", cloud.image(), "--nic", "none", "s")
    server = cloud.wait(openstack.json("server", "create", *words)["id"], "ACTIVE")["id"]
    for network, policy, fits in (("n1", "legacy", True), ("n1", "required", False), ("n2", "legacy", False)):
        port = make_port(openstack, network, f"--numa-policy-{policy}")
        add = ("server", "add", "port", server, port)
        if fits:
            openstack.ok(*add)
            assert len(cloud.owned(server)) == 2
            continue
        told = openstack.refused(*add)
        assert "Failed to claim PCI device" in told
        assert f"policy {policy} allows only the guest's NUMA node 0" in told
    openstack.ok("server", "add", "port", server, make_port(openstack, "n2", "--numa-policy-preferred"))
    assert len(cloud.owned(server)) == 3


def test_networks_and_ports_are_listed_shown_and_deleted(openstack: OpenStack, cloud: Cloud) -> None:
    made = openstack.json("network", "create", *PROVIDER, "n9", "--provider-segment", "9", "gone")
    assert made["id"] in [each["ID"] for each in openstack.json("network", "list")]
    shown = openstack.json("network", "show", "gone")
    wire = [shown[f"provider:{name}"] for name in ("network_type", "physical_network", "segmentation_id")]
    assert (shown["id"], wire) == (made["id"], ["vlan", "n9", 9])
    port = make_port(openstack, "gone", kind="macvtap")
    assert [each["ID"] for each in openstack.json("port", "list", "--network", "gone")] == [port]
    assert openstack.json("port", "show", port)["binding_vnic_type"] == "macvtap"
    openstack.ok("port", "delete", port)
    openstack.ok("network", "delete", "gone")
    assert "gone" not in [each["Name"] for each in openstack.json("network", "list")]
    assert "No Port found" in openstack.refused("port", "show", port)


@pytest.mark.all_in_one  # looks into the process
def test_a_guest_that_never_lets_go_keeps_its_port_also_when_it_starts_anew(
    openstack: OpenStack, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirt says that all is well, and has the NIC out of the definition, if it is asked for both at once."""
    monkeypatch.setattr(interfaces, "UNPLUG_SECONDS", 0.5)
    port = make_port(openstack, "n1")
    server = create(openstack, cloud, "plain", port)
    slot = openstack.json("port", "show", port)["binding_profile"]["pci_slot"]
    cloud.reload({**FLEET, "hosts": [{**FLEET["hosts"][0], "simulate": {"deaf": "true"}}]})
    for times in (1, 2):
        openstack.ok("server", "remove", "port", server["id"], port)
        log = f"Port {port} of server {server['id']} on host net1 is not taken out"
        cloud.until(lambda n=times, log=log: cloud.log().count(log) == n, "the guest does not let go")  # type: ignore[misc]
    assert "did not let go of it" in cloud.log()
    cloud.act(server["id"], "reboot", {"type": "HARD"})
    cloud.wait(server["id"], "ACTIVE")
    [domain] = cloud.domains("net1").values()
    assert (cloud.owned(server["id"]), list(domain["held"])) == ([slot], [slot])
    cloud.reload(FLEET)
    openstack.ok("server", "remove", "port", server["id"], port)
    cloud.until(lambda: cloud.owned(server["id"]) == [], "the device is free")
    [domain] = cloud.domains("net1").values()
    assert "<interface" not in domain["live_xml"] + domain["xml"]


def test_case_103_a_vdpa_guest_is_stopped_and_started_and_what_can_not_be_done_yet_is_refused(
    openstack: OpenStack, cloud: Cloud
) -> None:
    port = make_port(openstack, "n3", kind="vdpa")
    server = create(openstack, cloud, "plain", port)
    assert server["status"] == "ACTIVE", server["fault"]
    before = openstack.json("port", "show", port)
    assert set(before["binding_profile"]) == {"pci_vendor_info", "pci_slot", "physical_network"}
    for words in (("suspend",), ("migrate", "--live-migration"), ("shelve",)):
        told = openstack.refused("server", words[0], server["id"], *words[1:])
        assert "400" in told
        assert "There is no such action" in told
        assert "Use one of os-start, os-stop, reboot" in told
    shown = cloud.show(server["id"])
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("ACTIVE", None)
    openstack.ok("server", "stop", server["id"])
    cloud.wait(server["id"], "SHUTOFF")
    assert cloud.owned(server["id"]) == [before["binding_profile"]["pci_slot"]]
    openstack.ok("server", "start", server["id"])
    cloud.wait(server["id"], "ACTIVE")
    [domain] = cloud.domains("net1").values()
    assert '<source dev="/dev/vhost-vdpa-1"/>' in domain["live_xml"]
    assert openstack.json("port", "show", port)["binding_profile"] == before["binding_profile"]

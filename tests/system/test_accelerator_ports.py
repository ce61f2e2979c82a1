"""Ports whose device comes from a device profile: from the `openstack` command to the guest, and what is left afterwards: nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.system.clients import OpenStack, openstack_client
from tests.system.cloud import T4, Cloud, gpu, host
from tests.system.conftest import deployed
from tests.system.invariants import check_at_rest

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
PF, VF = "101d", "101e"
MELLANOX = {"vendor_id": "15b3"}


def card(bus: int, vfs: int) -> dict[str, Any]:
    pf = {"vfs": vfs, "max_vfs": 8, "vf_product_id": VF, "vf_interface": f"p{bus:x}v"}
    names = {"interface": f"p{bus:x}", "mac": f"0c:42:a1:00:{bus:02x}:00", "driver": "mlx5_core"}
    return {**MELLANOX, "product_id": PF, "address": f"0000:{bus:02x}:00.0", **names, "pf": pf}


def nic(address: str, product: str, network: str | None, **more: Any) -> dict[str, Any]:
    line = {**MELLANOX, "product_id": product, "address": address, "type": "NIC", **more}
    return line if network is None else {**line, "physical_network": network}


LINES = [
    {**T4, "type": "GPU"},
    nic("0000:a1:00.0", VF, "n1"),
    nic("0000:b1:00.0", PF, "n1", resource_class="CUSTOM_CARD"),
    nic("0000:c1:00.0", VF, "n1", resource_class="CUSTOM_SHARED"),
    nic("0000:d1:00.0", VF, "n2", resource_class="CUSTOM_ELSEWHERE"),
    nic("0000:e1:00.0", VF, None, resource_class="CUSTOM_NOWHERE"),
]
PCI = [{**MELLANOX, "product_id": PF, "address": "0000:c1:00.0", "physical_network": "n1"}]
DEVICES = [gpu(0x3B), card(0xA1, 2), card(0xB1, 0), card(0xC1, 1), card(0xD1, 1), card(0xE1, 1)]
FLEET: dict[str, Any] = {
    "hosts": [
        host("net1", DEVICES, config={"pci": {"device_spec": PCI}, "accelerator": {"device_spec": LINES}}),
    ]
}
PROFILES = {
    "nic": '[{"resources:CUSTOM_NIC": "1"}]',
    "card": '[{"resources:CUSTOM_CARD": "1"}]',
    "shared": '[{"resources:CUSTOM_SHARED": "1"}]',
    "elsewhere": '[{"resources:CUSTOM_ELSEWHERE": "1"}]',
    "nowhere": '[{"resources:CUSTOM_NOWHERE": "1"}]',
    "two": '[{"resources:CUSTOM_NIC": "2"}]',
    "gpu": '[{"resources:PGPU": "1"}]',
}
LEDGERS = {
    "requests": "SELECT uuid, state FROM accelerator_requests",
    "known": "SELECT instance_uuid, arq_uuid FROM server_arqs",
    "handles": "SELECT address FROM attach_handles WHERE arq_uuid IS NOT NULL",
    "ports": "SELECT id FROM ports WHERE device_id != '' OR host IS NOT NULL",
    "NICs": "SELECT instance_uuid FROM virtual_interfaces",
    "builds": "SELECT id FROM builds WHERE state = 'running'",
}


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with deployed(request, tmp_path_factory.mktemp("accelerator-ports"), FLEET) as started:
        yield started


@pytest.fixture(scope="module")
def openstack(cloud: Cloud) -> Iterator[OpenStack]:
    with openstack_client(cloud) as client:
        provider = ("--provider-network-type", "vlan", "--provider-physical-network", "n1", "--provider-segment", "42")
        client.ok("network", "create", *provider, "data")
        for name, groups in PROFILES.items():
            client.ok("accelerator", "device", "profile", "create", name, groups)
        size = ("--ram", "512", "--vcpus", "1", "--disk", "1")
        client.ok("flavor", "create", *size, "plain")
        client.ok("flavor", "create", *size, "--property", "accel:device_profile=gpu", "gpu")
        cloud.until(
            lambda: cloud.sql("SELECT count(*) FROM accelerators WHERE rp_uuid IS NULL") == [(0,)],
            "Placement knows the accelerators",
        )
        yield client


@pytest.fixture(autouse=True)
def leaves_nothing(cloud: Cloud) -> Iterator[None]:
    """All servers of a test are gone after it, and what they had is everybody's."""
    yield
    for (server_id,) in cloud.sql("SELECT uuid FROM instances WHERE deleted = 0"):
        cloud.delete(server_id)
        cloud.wait_gone(server_id)

    def left() -> dict[str, Any]:
        found = {name: cloud.sql(query) for name, query in LEDGERS.items()}
        return {name: rows for name, rows in found.items() if rows}

    cloud.until(lambda: not left(), "nothing is left", left)
    check_at_rest(cloud)
    assert set(cloud.statuses()) == {"available"}
    for (port_id,) in cloud.sql("SELECT id FROM ports"):
        assert cloud.client.delete(f"{cloud.url}/network/v2.0/ports/{port_id}").status_code == 204


def make_port(openstack: OpenStack, profile: str | None, kind: str = "accelerator-direct") -> dict[str, Any]:
    more = () if profile is None else ("--device-profile", profile)
    made: dict[str, Any] = openstack.json("port", "create", "--network", "data", "--vnic-type", kind, *more, "p")
    return made


def create(openstack: OpenStack, cloud: Cloud, *words: str, flavor: str = "plain") -> dict[str, Any]:
    made = openstack.json("server", "create", "--flavor", flavor, "--image", cloud.image(), *words, "s")
    return cloud.wait(made["id"], "ACTIVE", "ERROR")


def boot(openstack: OpenStack, cloud: Cloud, *words: str, flavor: str = "plain") -> dict[str, Any]:
    server = create(openstack, cloud, *words, flavor=flavor)
    assert server["status"] == "ACTIVE", server["fault"]
    return server


def refused(openstack: OpenStack, cloud: Cloud, port: str) -> str:
    """Why a server with the port is in ERROR."""
    server = create(openstack, cloud, "--port", port)
    assert server["status"] == "ERROR"
    return str(server["fault"]["message"])


def devices_of(cloud: Cloud, server: Mapping[str, Any]) -> etree._Element:
    """Those of the running domain, valid against libvirt's schema."""
    root = etree.fromstring(cloud.domains("net1")[server["OS-EXT-SRV-ATTR:instance_name"]]["live_xml"])
    schema = etree.RelaxNG(etree.parse(str(SCHEMA)))
    assert schema.validate(root), schema.error_log
    return root.find("devices")


def place(source: etree._Element) -> str:
    """As the accelerator service writes it."""
    domain, bus, slot, function = (int(source.get(name), 16) for name in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


@pytest.mark.parametrize(
    ("kind", "profile", "card_at"),
    [("accelerator-direct", "nic", "0000:a1:"), ("accelerator-direct-physical", "card", "0000:b1:")],
)
def test_a_port_gets_its_device_from_its_profile_and_gives_it_back(
    openstack: OpenStack, cloud: Cloud, kind: str, profile: str, card_at: str
) -> None:
    port = make_port(openstack, profile, kind)
    assert (port["device_profile"], port["binding_vnic_type"]) == (profile, kind)
    server = boot(openstack, cloud, "--port", port["id"])
    (arq,) = openstack.json("accelerator", "arq", "list", "--long")
    assert (arq["state"], arq["device_profile_name"], arq["hostname"]) == ("Bound", profile, "net1")
    assert arq["instance_uuid"] == server["id"]
    bound = openstack.json("port", "show", port["id"])
    slot = bound["binding_profile"]["pci_slot"]
    assert bound["binding_profile"] == {"physical_network": "n1", "pci_slot": slot, "arq_uuid": arq["uuid"]}
    assert slot.startswith(card_at)
    assert (bound["device_id"], bound["binding_host_id"], bound["status"]) == (server["id"], "net1", "ACTIVE")
    assert bound["mac_address"] == port["mac_address"]
    check_device(kind, devices_of(cloud, server), slot, port["mac_address"])
    cloud.act(server["id"], "reboot", {"type": "HARD"})
    cloud.wait(server["id"], "ACTIVE")
    check_device(kind, devices_of(cloud, server), slot, port["mac_address"])
    assert openstack.json("accelerator", "arq", "list", "--long") == [arq]
    openstack.ok("server", "delete", "--wait", server["id"])
    left = openstack.json("port", "show", port["id"])
    assert (left["binding_profile"], left["device_id"], left["binding_vif_type"]) == ({}, "", "unbound")
    assert left["device_profile"] == profile
    again = boot(openstack, cloud, "--port", port["id"])
    assert openstack.json("port", "show", port["id"])["device_id"] == again["id"]


def check_device(kind: str, devices: etree._Element, slot: str, mac: str) -> None:
    nics, hostdevs = devices.findall("interface"), devices.findall("hostdev")
    (device,) = nics + hostdevs
    assert (device.get("type"), device.get("managed")) == ("pci" if hostdevs else "hostdev", "yes")
    assert bool(hostdevs) is (kind == "accelerator-direct-physical")
    assert place(device.find("source/address")) == slot
    if nics:
        assert (device.find("mac").get("address"), device.find("vlan/tag").get("id")) == (mac, "42")


def test_a_flavor_s_accelerator_and_two_ports_are_bound_together(openstack: OpenStack, cloud: Cloud) -> None:
    first, second = make_port(openstack, "nic"), make_port(openstack, "nic")
    ports = ("--port", first["id"], "--port", second["id"], "--network", "default")
    server = boot(openstack, cloud, *ports, flavor="gpu")
    arqs = {arq["uuid"]: arq for arq in openstack.json("accelerator", "arq", "list", "--long")}
    assert [arq["state"] for arq in arqs.values()] == ["Bound"] * 3
    of_ports = [openstack.json("port", "show", port["id"])["binding_profile"] for port in (first, second)]
    assert {arqs[profile["arq_uuid"]]["device_profile_name"] for profile in of_ports} == {"nic"}
    devices = devices_of(cloud, server)
    assert [place(each) for each in devices.findall("hostdev/source/address")] == ["0000:3b:00.0"]
    assert [each.get("type") for each in devices.findall("interface")] == ["hostdev", "hostdev", "network"]
    places = [place(each) for each in devices.findall("interface/source/address")]
    assert places == [profile["pci_slot"] for profile in of_ports]
    assert sorted(places) == ["0000:a1:00.1", "0000:a1:00.2"]
    late = make_port(openstack, "nic")
    assert "No valid host" in refused(openstack, cloud, late["id"])
    assert len(openstack.json("accelerator", "arq", "list")) == 3
    assert openstack.json("port", "show", late["id"])["device_id"] == ""


def test_a_card_of_the_pools_and_its_functions_of_the_service_exclude_each_other(
    openstack: OpenStack, cloud: Cloud
) -> None:
    function = make_port(openstack, "shared")
    whole = openstack.json("port", "create", "--network", "data", "--vnic-type", "direct-physical", "whole")
    for first, second in ((function, whole), (whole, function)):
        server = boot(openstack, cloud, "--port", first["id"])
        fault = refused(openstack, cloud, second["id"])
        assert "No valid host" in fault or "BindFailed" in fault, fault
        cloud.delete(server["id"])
        cloud.wait_gone(server["id"])
        leftover = cloud.sql("SELECT uuid FROM instances WHERE deleted = 0")
        for (server_id,) in leftover:
            cloud.delete(server_id)
            cloud.wait_gone(server_id)


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("elsewhere", "0000:d1:00.1 on physical network n2, and network data is on n1"),
        ("nowhere", "has no physical_network, which a port needs"),
    ],
)
def test_a_device_that_the_port_s_network_does_not_reach_is_not_given(
    openstack: OpenStack, cloud: Cloud, profile: str, said: str
) -> None:
    port = make_port(openstack, profile)
    assert said in refused(openstack, cloud, port["id"])
    assert openstack.json("accelerator", "arq", "list") == []
    assert openstack.json("port", "show", port["id"])["device_id"] == ""
    assert cloud.domains("net1") == {}


def test_a_build_that_fails_after_its_ports_are_bound_gives_all_back(openstack: OpenStack, cloud: Cloud) -> None:
    port = make_port(openstack, "nic")
    fails = {"fail": {"define_domain": {"times": 1, "error": "internal error: no"}}}
    cloud.reload({"hosts": [{**FLEET["hosts"][0], "simulate": fails}]})
    assert "internal error: no" in refused(openstack, cloud, port["id"])
    assert openstack.json("accelerator", "arq", "list") == []
    assert openstack.json("port", "show", port["id"])["binding_profile"] == {}
    cloud.reload(FLEET)
    boot(openstack, cloud, "--port", port["id"])


def test_ports_without_a_profile_of_one_device_are_refused_at_once(openstack: OpenStack, cloud: Cloud) -> None:
    for profile, said in ((None, "set device_profile"), ("two", "asks for 2 devices"), ("missing", "got nothing")):
        port = make_port(openstack, profile)
        words = ("--flavor", "plain", "--image", cloud.image(), "--port", port["id"], "s")
        told = openstack.refused("server", "create", *words)
        assert "400" in told
        assert said in told


def test_what_can_not_be_done_with_such_a_port_is_refused(openstack: OpenStack, cloud: Cloud) -> None:
    port, other = make_port(openstack, "nic"), make_port(openstack, "nic")
    server = boot(openstack, cloud, "--port", port["id"])
    for words in (("add", "port", server["id"], other["id"]), ("remove", "port", server["id"], port["id"])):
        told = openstack.refused("server", *words)
        assert "400" in told
        assert "accelerator" in told
    for action, argument in (("suspend", None), ("migrate", None), ("shelve", None), ("resize", {"flavorRef": "1"})):
        answer = cloud.client.post(f"/servers/{server['id']}/action", json={action: argument})
        assert answer.status_code == 400, action
        assert port["id"] in answer.text
    assert "can't be changed" in openstack.refused("port", "set", "--vnic-type", "normal", port["id"])
    assert "in use by server" in openstack.refused("port", "delete", port["id"])
    cloud.act(server["id"], "os-stop")
    cloud.wait(server["id"], "SHUTOFF")
    cloud.act(server["id"], "os-start")
    cloud.wait(server["id"], "ACTIVE")
    assert len(devices_of(cloud, server).findall("interface")) == 1

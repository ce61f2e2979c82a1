"""Ports that take devices, from making them to deleting their servers, by the clients that people use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from openstack import exceptions
from openstack.config import OpenStackConfig
from openstack.connection import Connection

from tests.system.clients import OpenStack, openstack_client
from tests.system.cloud import T4, T4_ALIAS, Cloud, gpu, host
from tests.system.conftest import deployed
from tests.system.invariants import check_at_rest as at_rest

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
PF, VF = "101d", "101e"
CARD = {"vendor_id": "15b3", "product_id": PF, "driver": "mlx5_core", "vpd": {"card_serial_number": "MT-C1"}}


def card(bus: int, vfs: int, **more: Any) -> dict[str, Any]:
    """A card of one port at 0000:BUS:00.0, its VFs from 0000:BUS:00.1 on."""
    pf = {"vfs": vfs, "max_vfs": 8, "vf_product_id": VF, "vf_interface": f"p{bus:x}v", **more}
    return {
        **CARD,
        "address": f"0000:{bus:02x}:00.0",
        "interface": f"p{bus:x}",
        "mac": f"0c:42:a1:00:{bus:02x}:00",
        "pf": pf,
    }


def reload(cloud: Cloud, **host_keys: Any) -> None:
    """The host as it is, or misbehaving."""
    cloud.reload({**FLEET, "hosts": [{**FLEET["hosts"][0], **host_keys}]})


def offered(address: str, product: str, **tags: Any) -> dict[str, Any]:
    return {"vendor_id": "15b3", "product_id": product, "address": address, **tags}


SPEC = [
    T4,
    offered("0000:a1:00.0", VF, physical_network="n1"),
    offered("0000:a1:00.1", VF, physical_network="n1"),
    offered("0000:c1:00.0", VF, physical_network=None, remote_managed="true"),
    offered("0000:d1:00.0", VF, physical_network="n2", trusted="true"),
    offered("0000:d1:00.0", PF, physical_network="n2"),
    offered("0000:e1:00.0", VF),  # for aliases, not for networks
    offered("0000:f1:00.0", VF, physical_network="n3", live_migratable="yes"),
]
ALIASES = [
    T4_ALIAS,
    {"name": "MOVES", "vendor_id": "15b3", "product_id": VF, "device_type": "type-VF", "live_migratable": "yes"},
]
DEVICES = [gpu(0x3B), card(0xC1, 2), card(0xD1, 2), card(0xE1, 2), card(0xF1, 1)]
FLEET: dict[str, Any] = {
    "hosts": [host("net1", DEVICES, hardware=["connectx6"])],
    "config": {"pci": {"device_spec": SPEC, "alias": ALIASES}},
}


def check_at_rest(cloud: Cloud) -> None:
    """A server is gone for its users a moment before its delete is over for its host."""
    cloud.until(lambda: cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)], "all builds ended")
    at_rest(cloud)


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with deployed(request, tmp_path_factory.mktemp("ports"), FLEET) as started:
        yield started


@pytest.fixture(scope="module")
def openstack(cloud: Cloud) -> Iterator[OpenStack]:
    with openstack_client(cloud) as client:
        provider = ("--provider-network-type", "vlan", "--provider-physical-network")
        client.ok("network", "create", *provider, "n1", "--provider-segment", "42", "data")
        client.ok("network", "create", *provider, "n2", "--provider-segment", "43", "fast")
        client.ok("network", "create", *provider, "n3", "--provider-segment", "44", "moving")
        client.ok("network", "create", "--provider-network-type", "geneve", "overlay")
        size = ("--ram", "512", "--vcpus", "1", "--disk", "1")
        client.ok("flavor", "create", *size, "plain")
        client.ok("flavor", "create", *size, "--property", "pci_passthrough:alias=GPU:1", "gpu")
        client.ok("flavor", "create", *size, "--property", "pci_passthrough:alias=MOVES:1", "moves")
        yield client


@pytest.fixture(scope="module")
def sdk(cloud: Cloud) -> Connection:
    config = OpenStackConfig(config_files=[str(cloud.state / "clouds.yaml")], load_envvars=False)
    return Connection(config=config.get_one("jetbridge"))


@pytest.fixture(autouse=True)
def leaves_nothing(cloud: Cloud) -> Iterator[None]:
    """All servers and ports of a test are gone after it, and all devices free."""
    yield
    for (server_id,) in cloud.sql("SELECT uuid FROM instances WHERE deleted = 0"):
        cloud.delete(server_id)
        cloud.wait_gone(server_id)
    check_at_rest(cloud)
    assert set(cloud.statuses()) == {"available"}
    assert cloud.sql("SELECT count(*) FROM virtual_interfaces") == [(0,)]
    assert cloud.sql("SELECT count(*) FROM ports WHERE device_id != '' OR host IS NOT NULL") == [(0,)]
    for (port_id,) in cloud.sql("SELECT id FROM ports"):
        assert cloud.client.delete(f"{cloud.url}/network/v2.0/ports/{port_id}").status_code == 204


def make_port(openstack: OpenStack, kind: str, network: str = "data", *more: str) -> dict[str, Any]:
    made: dict[str, Any] = openstack.json(
        "port", "create", "--network", network, "--vnic-type", kind, *more, f"{kind}-port"
    )
    return made


def boot(openstack: OpenStack, cloud: Cloud, *words: str, flavor: str = "plain") -> dict[str, Any]:
    made = openstack.json("server", "create", "--flavor", flavor, "--image", cloud.image(), *words, "s")
    server = cloud.wait(made["id"], "ACTIVE", "ERROR")
    assert server["status"] == "ACTIVE", server["fault"]
    return server


def domain(cloud: Cloud, server: Mapping[str, Any]) -> etree._Element:
    """The running domain, valid against libvirt's schema."""
    xml = cloud.domains("net1")[server["OS-EXT-SRV-ATTR:instance_name"]]["live_xml"]
    root = etree.fromstring(xml)
    schema = etree.RelaxNG(etree.parse(str(SCHEMA)))
    assert schema.validate(root), schema.error_log
    return root


def address_of(source: etree._Element) -> str:
    numbers = [int(source.get(name), 16) for name in ("domain", "bus", "slot", "function")]
    return "{:04x}:{:02x}:{:02x}.{}".format(*numbers)


X6_PF = "0c:42:a1:6e:20:10"
FEATURES = ["rx", "tx", "sg", "tso", "gso", "gro", "rxvlan", "txvlan"]


def vf_profile(slot: str, number: int, network: str | None, pf_mac: str, serial: str) -> dict[str, Any]:
    return {
        "pci_vendor_info": "15b3:101e",
        "pci_slot": slot,
        "physical_network": network,
        "pf_mac_address": pf_mac,
        "vf_num": number,
        "card_serial_number": serial,
        "capabilities": FEATURES,
    }


N1 = vf_profile("0000:a1:00.5", 3, "n1", X6_PF, "MT2124X09876")
KINDS = {
    "direct": ("data", N1),
    "macvtap": ("data", N1),
    "virtio-forwarder": ("data", N1),
    "remote-managed": ("overlay", vf_profile("0000:c1:00.2", 1, None, "0c:42:a1:00:c1:00", "MT-C1")),
    "vdpa": ("data", {"pci_vendor_info": "15b3:101e", "pci_slot": "0000:a1:01.5", "physical_network": "n1"}),
    "direct-physical": (
        "fast",
        {
            "pci_vendor_info": "15b3:101d",
            "pci_slot": "0000:d1:00.0",
            "physical_network": "n2",
            "device_mac_address": "0c:42:a1:00:d1:00",
        },
    ),
}
WRITTEN = {name for _, profile in KINDS.values() for name in profile}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_port_boots_with_its_device(openstack: OpenStack, cloud: Cloud, kind: str) -> None:
    network, profile = KINDS[kind]
    port = make_port(openstack, kind, network)
    server = boot(openstack, cloud, "--port", port["id"])
    assert cloud.owned(server["id"]) == [profile["pci_slot"]]
    bound = openstack.json("port", "show", port["id"])
    assert bound["binding_profile"] == profile
    assert (bound["device_id"], bound["binding_host_id"], bound["status"]) == (server["id"], "net1", "ACTIVE")
    check_element(kind, domain(cloud, server), profile["pci_slot"], bound["mac_address"])
    if kind == "direct-physical":
        assert bound["mac_address"] == "0c:42:a1:00:d1:00"
    cloud.act(server["id"], "reboot", {"type": "HARD"})
    cloud.wait(server["id"], "ACTIVE")
    openstack.ok("server", "delete", "--wait", server["id"])
    left = openstack.json("port", "show", port["id"])
    assert left["binding_profile"] == {name: value for name, value in profile.items() if name == "capabilities"}
    assert (left["device_id"], left["device_owner"], left["binding_vif_type"]) == ("", "", "unbound")
    assert left["mac_address"] == port["mac_address"]
    assert " WARNING " not in "".join(line for line in cloud.log().splitlines() if server["id"] in line)


def check_element(kind: str, root: etree._Element, slot: str, mac: str) -> None:
    nics, hostdevs = root.findall("devices/interface"), root.findall("devices/hostdev")
    if kind == "direct-physical":
        ((hostdev,), ()) = hostdevs, nics
        assert address_of(hostdev.find("source/address")) == slot
        return
    (nic,) = nics
    assert hostdevs == []
    assert nic.find("mac").get("address") == mac
    source = nic.find("source")
    vlan = nic.find("vlan/tag")
    match kind:
        case "direct" | "remote-managed":
            assert (nic.get("type"), nic.get("managed")) == ("hostdev", "yes")
            assert address_of(source.find("address")) == slot
            assert (None if vlan is None else vlan.get("id")) == ("42" if kind == "direct" else None)
        case "macvtap":
            assert (nic.get("type"), source.get("dev"), source.get("mode")) == ("direct", "enp161s0f0v3", "passthrough")
            assert vlan.get("id") == "42"
        case "vdpa":
            assert (nic.get("type"), source.get("dev")) == ("vdpa", "/dev/vhost-vdpa-3")
        case "virtio-forwarder":
            assert (nic.get("type"), source.get("path")) == ("vhostuser", f"/run/virtio-forwarder/{slot}.sock")


def test_a_guest_with_a_vf_and_one_with_its_pf_exclude_each_other(openstack: OpenStack, cloud: Cloud) -> None:
    card_port = make_port(openstack, "direct-physical", "fast")
    vf_port = make_port(openstack, "direct", "fast")
    for first, second in ((card_port, vf_port), (vf_port, card_port)):
        server = boot(openstack, cloud, "--port", first["id"])
        refused = openstack.json(
            "server", "create", "--flavor", "plain", "--image", cloud.image(), "--port", second["id"], "refused"
        )
        fault = cloud.wait(refused["id"], "ERROR", "ACTIVE")["fault"]["message"]
        assert "No valid host was found" in fault
        assert openstack.json("port", "show", second["id"])["device_id"] == ""
        openstack.ok("server", "delete", "--wait", refused["id"], server["id"])


def test_a_port_and_a_flavor_device_in_one_server(openstack: OpenStack, cloud: Cloud) -> None:
    port = make_port(openstack, "direct")
    server = boot(openstack, cloud, "--port", port["id"], "--network", "default", flavor="gpu")
    assert cloud.owned(server["id"]) == ["0000:3b:00.0", "0000:a1:00.5"]
    root = domain(cloud, server)
    assert [address_of(found) for found in root.findall("devices/hostdev/source/address")] == ["0000:3b:00.0"]
    assert [nic.get("type") for nic in root.findall("devices/interface")] == ["hostdev", "network"]
    [(requests,)] = cloud.sql("SELECT pci_requests FROM instance_extra WHERE instance_uuid = :id", id=server["id"])
    flavors, ports = json.loads(requests)["requests"]
    assert (flavors["alias_name"], flavors["requester_id"]) == ("GPU", None)
    assert (ports["alias_name"], ports["requester_id"]) == (None, port["id"])
    assert ports["spec"] == [{"physical_network": "n1", "remote_managed": "False"}]


def test_trusted_ports_and_overlays_take_only_what_is_tagged_for_them(openstack: OpenStack, cloud: Cloud) -> None:
    trusted = make_port(openstack, "direct", "fast", "--binding-profile", "trusted=true")
    server = boot(openstack, cloud, "--port", trusted["id"])
    assert cloud.owned(server["id"]) == ["0000:d1:00.2"]
    assert openstack.json("port", "show", trusted["id"])["binding_profile"]["trusted"] == "true"
    for kind, network, profile in (
        ("direct", "overlay", ()),
        ("direct", "data", ("--binding-profile", "trusted=true")),
    ):
        port = make_port(openstack, kind, network, *profile)
        made = openstack.json(
            "server", "create", "--flavor", "plain", "--image", cloud.image(), "--port", port["id"], "x"
        )
        fault = cloud.wait(made["id"], "ERROR", "ACTIVE")["fault"]["message"]
        assert "PciPassthroughFilter" in fault


def test_f10_live_migratable_counts_on_a_device_with_a_physical_network(openstack: OpenStack, cloud: Cloud) -> None:
    server = boot(openstack, cloud, "--nic", "none", flavor="moves")
    assert cloud.owned(server["id"]) == ["0000:f1:00.1"]


ATTACHED = {kind: case for kind, case in KINDS.items() if kind != "virtio-forwarder"}


@pytest.mark.parametrize("kind", ATTACHED)
def test_a_port_is_put_into_a_running_server_and_taken_out(openstack: OpenStack, cloud: Cloud, kind: str) -> None:
    network, profile = ATTACHED[kind]
    server = boot(openstack, cloud, "--nic", "none", flavor="gpu")
    port = make_port(openstack, kind, network)
    openstack.ok("server", "add", "port", server["id"], port["id"])
    assert cloud.owned(server["id"]) == sorted(["0000:3b:00.0", profile["pci_slot"]])
    assert {status for status, owner in cloud.devices().values() if owner == server["id"]} == {"allocated"}
    bound = openstack.json("port", "show", port["id"])
    assert (bound["binding_profile"], bound["device_id"]) == (profile, server["id"])
    root = domain(cloud, server)
    gpu_hostdev = root.findall("devices/hostdev")[0]
    gpu_hostdev.getparent().remove(gpu_hostdev)
    check_element(kind, root, profile["pci_slot"], bound["mac_address"])
    [(requests,)] = cloud.sql("SELECT pci_requests FROM instance_extra WHERE instance_uuid = :id", id=server["id"])
    assert [request["requester_id"] for request in json.loads(requests)["requests"]] == [None, port["id"]]
    cloud.act(server["id"], "reboot", {"type": "HARD"})
    cloud.wait(server["id"], "ACTIVE")
    check_at_rest(cloud)

    openstack.ok("server", "remove", "port", server["id"], port["id"])
    cloud.until(lambda: cloud.owned(server["id"]) == ["0000:3b:00.0"], "the device is free")
    cloud.until(lambda: openstack.json("port", "list", "--server", server["id"]) == [], "the port is free")
    left = openstack.json("port", "show", port["id"])
    assert (left["device_id"], left["mac_address"]) == ("", port["mac_address"])
    assert left["binding_profile"] == {name: value for name, value in profile.items() if name == "capabilities"}
    root = domain(cloud, server)
    assert (len(root.findall("devices/hostdev")), root.findall("devices/interface")) == (1, [])
    actions = [event["Action"] for event in openstack.json("server", "event", "list", server["id"])]
    assert actions[0] == "detach_interface"
    assert "attach_interface" in actions


def test_a_network_is_added_to_a_server_and_removed(openstack: OpenStack, cloud: Cloud, sdk: Connection) -> None:
    server = boot(openstack, cloud, "--nic", "none")
    openstack.ok("server", "add", "network", server["id"], "default")
    (nic,) = sdk.compute.server_interfaces(server["id"])
    (port,) = sdk.network.ports(device_id=server["id"])
    assert (nic.port_id, nic.mac_addr, nic.net_id, nic.port_state) == (
        port.id,
        port.mac_address,
        port.network_id,
        "ACTIVE",
    )
    assert [each.get("type") for each in domain(cloud, server).findall("devices/interface")] == ["network"]
    assert openstack.json("server", "show", server["id"])["addresses"] == {"default": []}
    openstack.ok("server", "remove", "network", server["id"], "default")
    cloud.until(lambda: list(sdk.network.ports()) == [], "the port that was made for the server is gone")
    assert domain(cloud, server).findall("devices/interface") == []


def test_a_port_is_put_into_a_stopped_server(openstack: OpenStack, cloud: Cloud, sdk: Connection) -> None:
    server = boot(openstack, cloud, "--nic", "none")
    cloud.act(server["id"], "os-stop")
    cloud.wait(server["id"], "SHUTOFF")
    port = sdk.network.create_port(network_id=sdk.network.find_network("data").id, binding_vnic_type="direct")
    nic = sdk.compute.create_server_interface(server["id"], port_id=port.id)
    assert nic.port_id == port.id
    cloud.act(server["id"], "os-start")
    cloud.wait(server["id"], "ACTIVE")
    assert len(domain(cloud, server).findall("devices/interface")) == 1
    sdk.compute.delete_server_interface(nic, server=server["id"])
    cloud.until(lambda: cloud.owned(server["id"]) == [], "the device is free")


@pytest.mark.parametrize(("kind", "why"), [("direct", "internal error: no"), ("normal", "the host has only default")])
def test_an_attach_that_fails_leaves_nothing(
    openstack: OpenStack, cloud: Cloud, sdk: Connection, kind: str, why: str
) -> None:
    """The direct port fails in the hypervisor, the normal one after it was bound."""
    server = boot(openstack, cloud, "--nic", "none")
    port = make_port(openstack, kind, "data")
    before = cloud.devices()
    reload(cloud, simulate={"fail": {"attach_device": {"times": 1, "error": "internal error: no"}}})
    with pytest.raises(exceptions.HttpException, match=why) as refusal:
        sdk.compute.create_server_interface(server["id"], port_id=port["id"])
    assert refusal.value.status_code == 500
    assert cloud.devices() == before
    assert openstack.json("port", "show", port["id"])["device_id"] == ""
    assert cloud.sql("SELECT count(*) FROM virtual_interfaces") == [(0,)]
    check_at_rest(cloud)
    reload(cloud)
    if kind == "direct":
        openstack.ok("server", "add", "port", server["id"], port["id"])


def test_a_guest_that_does_not_let_go_keeps_its_port(openstack: OpenStack, cloud: Cloud) -> None:
    port = make_port(openstack, "direct")
    server = boot(openstack, cloud, "--port", port["id"])
    reload(cloud, simulate={"fail": {"detach_device": {"times": 1, "error": "device is busy"}}})
    openstack.ok("server", "remove", "port", server["id"], port["id"])

    def detached() -> dict[str, Any]:
        listed = cloud.client.get(f"/servers/{server['id']}/os-instance-actions").json()["instanceActions"]
        return next((each for each in listed if each["action"] == "detach_interface" and each["message"]), {})

    cloud.until(detached, "the detach has failed")
    assert cloud.owned(server["id"]) == ["0000:a1:00.5"]
    reload(cloud)
    openstack.ok("server", "remove", "port", server["id"], port["id"])
    cloud.until(lambda: cloud.owned(server["id"]) == [], "the device is free")


@pytest.mark.all_in_one  # a compute process of its own keeps its hosts
def test_ports_of_a_server_that_was_deleted_while_its_host_was_away_are_released(
    openstack: OpenStack, cloud: Cloud
) -> None:
    port = make_port(openstack, "direct")
    server = boot(openstack, cloud, "--port", port["id"])
    cloud.reload({**FLEET, "hosts": [host("net2", [])]})
    cloud.delete(server["id"])
    cloud.wait_gone(server["id"])
    assert openstack.json("port", "show", port["id"])["device_id"] == server["id"]
    reload(cloud)
    assert openstack.json("port", "show", port["id"])["device_id"] == ""


def test_refusals_of_attaching(openstack: OpenStack, cloud: Cloud) -> None:
    server = boot(openstack, cloud, "--nic", "none")
    missing = make_port(openstack, "direct", "overlay")
    said = openstack.refused("server", "add", "port", server["id"], missing["id"])
    assert "BadRequestException: 400" in said
    assert "Failed to claim PCI device" in said
    assert "physical_network" in said
    forwarded = make_port(openstack, "virtio-forwarder")
    assert "share its memory" in openstack.refused("server", "add", "port", server["id"], forwarded["id"])
    taken = make_port(openstack, "direct")
    openstack.ok("server", "add", "port", server["id"], taken["id"])
    assert "in use by server" in openstack.refused("server", "add", "port", server["id"], taken["id"])
    path = f"/servers/{server['id']}/os-interface"
    assert cloud.client.delete(f"{path}/{missing['id']}").status_code == 404
    for body in (
        {"port_id": "x", "net_id": "y"},
        {"fixed_ips": [{"ip_address": "10.0.0.1"}]},
        {"port_id": "x", "q": 1},
    ):
        assert cloud.client.post(path, json={"interfaceAttachment": body}).status_code == 400
    assert cloud.client.post(path, json={"interfaceAttachment": {"port_id": "nope"}}).status_code == 404


def test_a_second_nic_of_one_mac_address_is_refused(openstack: OpenStack, cloud: Cloud) -> None:
    """Networks may both have it; a guest's NICs are known by it, and taking the second one out took the first."""
    first = make_port(openstack, "direct")
    second = make_port(openstack, "direct", "moving", "--mac-address", first["mac_address"])
    server = boot(openstack, cloud, "--port", first["id"])
    said = openstack.refused("server", "add", "port", server["id"], second["id"])
    assert "BadRequestException: 400" in said
    assert f"Port {second['id']} has the MAC address {first['mac_address']}, as port {first['id']}" in said
    assert len(domain(cloud, server).findall("devices/interface")) == 1
    assert cloud.devices()[("net1", "0000:f1:00.1")] == ("available", None)


def attached(sdk: Connection, server_id: str, port_id: str) -> bool:
    """Whether the port could be put in; it can't where there is no VF left."""
    answer = sdk.compute.post(f"/servers/{server_id}/os-interface", json={"interfaceAttachment": {"port_id": port_id}})
    assert answer.status_code == 200 or "Failed to claim PCI device" in answer.text, answer.text
    return bool(answer.status_code == 200)


def test_an_attach_that_races_a_boot_for_the_last_vf(openstack: OpenStack, cloud: Cloud, sdk: Connection) -> None:
    """One VF is left: whoever wins, the other is refused and nothing leaks."""
    server = boot(openstack, cloud, "--nic", "none")
    mine, other = make_port(openstack, "direct", "moving"), make_port(openstack, "direct", "moving")
    flavor = sdk.compute.find_flavor("plain").id
    for _ in range(4):
        with ThreadPoolExecutor(1) as pool:
            attaching = pool.submit(attached, sdk, server["id"], mine["id"])
            racer = cloud.boot(flavor, networks=[{"port": other["id"]}])
        booted = cloud.wait(racer, "ACTIVE", "ERROR")["status"] == "ACTIVE"
        assert attaching.result() is not booted
        winner = racer if booted else server["id"]
        assert cloud.devices()[("net1", "0000:f1:00.1")] == ("allocated", winner)
        check_at_rest(cloud)
        cloud.delete(racer)
        cloud.wait_gone(racer)
        if not booted:
            openstack.ok("server", "remove", "port", server["id"], mine["id"])
        cloud.until(lambda: cloud.devices()[("net1", "0000:f1:00.1")] == ("available", None), "the VF is free")


def test_refusals_of_ports(openstack: OpenStack, cloud: Cloud) -> None:
    port = make_port(openstack, "direct")
    boot(openstack, cloud, "--port", port["id"])
    boot_again = ("server", "create", "--flavor", "plain", "--image", cloud.image(), "--port", port["id"])
    assert "in use by server" in openstack.refused(*boot_again, "again")
    assert "in use by server" in openstack.refused("port", "delete", port["id"])
    assert "can't be changed" in openstack.refused("port", "set", "--vnic-type", "normal", port["id"])
    assert "data has" in openstack.refused("network", "delete", "data")

"""The product beside a Network service of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lxml import etree

from jetbridge.config.settings import Settings
from tests.servers.neutron import Neutron, neutron
from tests.system.cloud import VF_CARD, VF_SPEC, Cloud, host, running
from tests.system.invariants import check_at_rest as at_rest

HOSTS = [host(name, [VF_CARD], networks=["br-int"]) for name in ("h1", "h2")]
FLEET = {"hosts": HOSTS, "config": {"pci": {"device_spec": VF_SPEC}}}


def check_at_rest(cloud: Cloud) -> None:
    """A server is gone for its users a moment before its delete is over for its host."""
    cloud.until(lambda: cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)], "all builds ended")
    at_rest(cloud)


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Neutron, str]]:
    with neutron() as started:
        yield started


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, service: tuple[Neutron, str]) -> Iterator[Cloud]:
    settings = Settings(neutron_endpoint_override=service[1])
    with running(tmp_path_factory.mktemp("neutron"), FLEET, settings) as started:
        yield started


@pytest.fixture(scope="module")
def data(service: tuple[Neutron, str]) -> str:
    provider = {"provider:network_type": "vlan", "provider:physical_network": "n1", "provider:segmentation_id": 42}
    return service[0].network("data", **provider)


def nics(cloud: Cloud, server: dict[str, Any]) -> list[etree._Element]:
    domain = cloud.domains(server["OS-EXT-SRV-ATTR:host"])[server["OS-EXT-SRV-ATTR:instance_name"]]
    return etree.fromstring(domain["live_xml"]).findall("devices/interface")


def test_a_server_on_ports_of_a_network_service(cloud: Cloud, service: tuple[Neutron, str], data: str) -> None:
    port = service[0].port(data, **{"binding:vnic_type": "direct"})
    server_id = cloud.boot(cloud.flavor("f", {}), networks=[{"port": port["id"]}, {"uuid": data}])
    server = cloud.wait(server_id, "ACTIVE", "ERROR")
    assert server["status"] == "ACTIVE", server["fault"]
    given, made = service[0].ports.values()
    assert given["binding:profile"]["pci_slot"] == cloud.owned(server_id)[0]
    assert {port["binding:host_id"] for port in (given, made)} == {server["OS-EXT-SRV-ATTR:host"]}
    vf, normal = nics(cloud, server)
    assert (vf.get("type"), vf.find("vlan/tag").get("id")) == ("hostdev", "42")
    assert normal.find("source").get("bridge") == "br-int"
    assert normal.find("virtualport/parameters").get("interfaceid") == made["id"]
    path = f"/servers/{server_id}/os-interface"
    assert cloud.client.delete(f"{path}/{given['id']}").status_code == 202
    cloud.until(lambda: cloud.owned(server_id) == [], "the port is out")
    assert cloud.client.post(path, json={"interfaceAttachment": {"port_id": given["id"]}}).status_code == 200
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert list(service[0].ports) == [given["id"]]
    assert (given["device_id"], given["binding:profile"]) == (
        "",
        {"capabilities": given["binding:profile"]["capabilities"]},
    )
    check_at_rest(cloud)
    answer = cloud.client.get(f"{cloud.url}/network/v2.0/networks")
    assert (answer.status_code, service[1] in answer.text) == (404, True)


def test_a_port_that_can_not_be_bound_on_one_host_is_bound_on_another(
    cloud: Cloud, service: tuple[Neutron, str], data: str
) -> None:
    port = service[0].port(data, **{"binding:vnic_type": "direct"})
    service[0].dead.add("h1")
    server_id = cloud.boot(cloud.flavor("g", {}), networks=[{"port": port["id"]}])
    server = cloud.wait(server_id, "ACTIVE", "ERROR")
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "h2")
    assert set(cloud.statuses("h1")) == {"available"}
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    service[0].dead.clear()
    check_at_rest(cloud)


def test_case_128_a_port_that_can_not_be_bound_when_it_is_put_in_leaves_its_device_free(
    cloud: Cloud, service: tuple[Neutron, str], data: str
) -> None:
    port = service[0].port(data, **{"binding:vnic_type": "direct"})
    server_id = cloud.boot(cloud.flavor("i", {}))
    host_name = cloud.wait(server_id, "ACTIVE")["OS-EXT-SRV-ATTR:host"]
    service[0].dead.add(host_name)
    path, wanted = f"/servers/{server_id}/os-interface", {"interfaceAttachment": {"port_id": port["id"]}}
    answer = cloud.client.post(path, json=wanted)
    assert (answer.status_code, "vif_type is binding_failed" in answer.text) == (500, True)
    assert set(cloud.statuses()) == {"available"}
    assert (port["device_id"], port["binding:profile"].get("pci_slot")) == ("", None)
    check_at_rest(cloud)
    service[0].dead.clear()
    assert cloud.client.post(path, json=wanted).status_code == 200
    assert len(cloud.owned(server_id)) == 1
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    check_at_rest(cloud)


def test_case_99_a_vnic_type_that_is_changed_under_a_server_changes_nothing_of_it(
    cloud: Cloud, service: tuple[Neutron, str], data: str
) -> None:
    """What a port was when the server was made stands with the server, and the log says that it isn't so any more."""
    port = service[0].port(data, **{"binding:vnic_type": "direct"})
    server_id = cloud.boot(cloud.flavor("h", {}), networks=[{"port": port["id"]}])
    before = cloud.wait(server_id, "ACTIVE", "ERROR")
    assert before["status"] == "ACTIVE", before["fault"]
    (address,) = cloud.owned(server_id)
    port["binding:vnic_type"] = "macvtap"
    cloud.stop()
    cloud.start()
    told = (
        f"Port {port['id']} of server {server_id} on host {before['OS-EXT-SRV-ATTR:host']} was of VNIC type direct when"
    )
    cloud.until(lambda: told in cloud.log(), "the change is told")
    cloud.act(server_id, "reboot", {"type": "HARD"})
    server = cloud.wait(server_id, "ACTIVE")
    assert [nic.get("type") for nic in nics(cloud, server)] == ["hostdev"]
    assert cloud.owned(server_id) == [address]
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert (port["device_id"], port["binding:host_id"]) == ("", None)
    check_at_rest(cloud)

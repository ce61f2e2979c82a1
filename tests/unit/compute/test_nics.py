"""Ports of servers on their host: what is said of those that aren't as they were, and of a card whose MAC address nobody can read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jetbridge.compute.host import AgentHost
from jetbridge.compute.interfaces import attach_interface
from jetbridge.compute.nics import bind_port, function_of, release_ports, tell_changed_ports
from jetbridge.config.settings import Settings
from jetbridge.db import interfaces, servers
from jetbridge.errors import InterfaceAttachPciClaimFailed
from jetbridge.model.context import ADMIN_ID
from jetbridge.model.network import Network, Port
from jetbridge.model.server import NetworkRequest, Server, VmState
from jetbridge.network.embedded import EmbeddedPorts
from jetbridge.network.neutron import NeutronPorts
from jetbridge.network.nics import Wish
from jetbridge.pci.port import VnicType
from tests.servers.neutron import Neutron, neutron
from tests.unit.compute.conftest import CONTEXT, MakeBench

MAC = "fa:16:3e:00:00:01"
CARD = {"address": "0000:b1:00.0", "vendor_id": "15b3", "product_id": "101d", "pf": {"vfs": 0, "max_vfs": 8}}
WITH_INTERFACE = {"driver": "mlx5_core", "interface": "p0", "mac": "0c:42:a1:00:b1:00"}
SPEC = [{"vendor_id": "15b3", "product_id": "101d", "physical_network": "n1"}]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def nic(host: AgentHost, server: Server, port: Port) -> NetworkRequest:
    """The NIC of the server that the port is for."""
    wanted = NetworkRequest(
        "data", port.mac, network_id=port.network_id, port_id=port.id, vnic_type=port.vnic_type, made=False
    )
    (added,) = host.database.write(lambda conn: interfaces.add(conn, server.uuid, [wanted]))
    return added


@pytest.mark.parametrize(
    ("more", "mac", "told"), [(WITH_INTERFACE, "0c:42:a1:00:b1:00", False), ({"driver": "vfio-pci"}, MAC, True)]
)
def test_a_port_takes_over_the_mac_address_of_its_card_where_it_can_be_read(
    bench: MakeBench, caplog: pytest.LogCaptureFixture, more: dict[str, Any], mac: str, told: bool
) -> None:
    made = bench(devices=[{**CARD, **more}], device_spec=SPEC)
    host, server, ports = made.host, made.server(), EmbeddedPorts(made.host.database)
    network = ports.create_network(Network("", "data", network_type="flat", physical_network="n1"))
    port = ports.create_port(Port("p1", network.id, ADMIN_ID, MAC, vnic_type=VnicType.DIRECT_PHYSICAL))
    wanted, device = nic(host, server, port), made.devices()["0000:b1:00.0"]
    guest = bind_port(host, CONTEXT, server, wanted, function_of(host, wanted, device))
    assert (guest.address, guest.mac, ports.port("p1").mac) == ("0000:b1:00.0", mac, mac)
    assert ports.port("p1").profile.get("device_mac_address") == (None if told else mac)
    said = f"The MAC address of PF 0000:b1:00.0 of host h1 can't be read: port p1 keeps {MAC}"
    assert warned(caplog) == ([said] if told else [])
    release_ports(host, CONTEXT, server.uuid)
    assert (ports.port("p1").mac == MAC) is told


def test_case_128_a_host_that_tracks_no_device_says_so(bench: MakeBench) -> None:
    made = bench(devices=[], device_spec=[])
    host, waiting, ports = made.host, made.server(), EmbeddedPorts(made.host.database)
    active = {"vm_state": VmState.ACTIVE, "task_state": None, "host": "h1", "compute_node_id": made.node_id}
    host.database.write(lambda conn: servers.update(conn, waiting.uuid, **active))
    network = ports.create_network(Network("", "data", network_type="flat", physical_network="n1"))
    ports.create_port(Port("p1", network.id, ADMIN_ID, MAC, vnic_type=VnicType.DIRECT))
    with pytest.raises(InterfaceAttachPciClaimFailed, match=f"attached to server {waiting.uuid}") as refusal:
        attach_interface(host, CONTEXT, made.get(waiting), Wish(port="p1"))
    assert refusal.value.http_status == 400
    assert ports.port("p1").device_id == ""
    with host.database.read() as conn:
        assert interfaces.of_server(conn, waiting.uuid) == ()


@pytest.fixture
def service() -> Iterator[tuple[Neutron, str]]:
    with neutron() as started:
        yield started


def bound(host: AgentHost, server: Server, service: Neutron, kind: str) -> dict[str, Any]:
    """A port of the service that the host has bound for the server."""
    made = service.port(service.network("data"), **{"binding:vnic_type": kind, "binding:host_id": host.name})
    noted = nic(host, server, host.ports.port(made["id"]))
    host.database.write(lambda conn: interfaces.update(conn, noted.id, host=host.name))
    return made


def test_case_99_a_port_that_is_of_another_kind_by_now_is_told_with_its_server(
    bench: MakeBench, service: tuple[Neutron, str], caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(devices=[])
    host = replace(made.host, neutron=NeutronPorts(Settings(neutron_endpoint_override=service[1])))
    tell_changed_ports(host)
    assert service[0].asked == [], "a host without ports asks nobody"
    first, second = made.server(), made.server()
    bound(host, first, service[0], "direct")
    changes = bound(host, first, service[0], "direct")
    unserved = bound(host, second, service[0], "vdpa")
    tell_changed_ports(host)
    assert warned(caplog) == []
    changes["binding:vnic_type"], unserved["binding:vnic_type"] = "macvtap", "baremetal"
    tell_changed_ports(host)
    (one, other) = sorted(warned(caplog), key=lambda text: changes["id"] not in text)
    assert f"Port {changes['id']} of server {first.uuid} on host h1 was of VNIC type direct" in one
    assert "is macvtap now" in one
    assert f"Port {unserved['id']} of server {second.uuid} on host h1 was of VNIC type vdpa" in other
    assert "is baremetal now" in other


def test_a_network_service_that_does_not_answer_stops_no_host(
    bench: MakeBench, service: tuple[Neutron, str], caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(devices=[])
    host = replace(made.host, neutron=NeutronPorts(Settings(neutron_endpoint_override=service[1])))
    bound(host, made.server(), service[0], "direct")
    service[0].refusing = 403
    tell_changed_ports(host)
    (told,) = warned(caplog)
    assert "Whether ports of host h1 have changed can't be seen" in told
    assert service[1] in told

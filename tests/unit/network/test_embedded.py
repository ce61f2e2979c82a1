from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.db import compute_nodes, networks
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.networks import HostNetwork
from jetbridge.errors import Conflict, Forbidden, Invalid, NotFound, PortInUse
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.network import Binding, Network, NewPort, Port
from jetbridge.network.embedded import EmbeddedPorts, mac_address, network_id
from jetbridge.network.nics import Requested, Wish, choose
from jetbridge.network.ports import seen_networks
from jetbridge.pci.port import VnicType


def report(database: Database, host: str, *found: tuple[str, str]) -> None:
    """The agent of ``host`` says which networks it has, as (name, kind)."""

    def write(conn: Connection) -> None:
        node = ComputeNode(
            uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, host)),
            host=host,
            hypervisor_hostname=host,
            hypervisor_type="QEMU",
            hypervisor_version=9000000,
            vcpus=1,
            memory_mb=1,
            local_gb=1,
            cpu_allocation_ratio=1,
            ram_allocation_ratio=1,
            disk_allocation_ratio=1,
        )
        stored = compute_nodes.upsert(conn, node)
        networks.replace(conn, stored.id, [HostNetwork(name, kind) for name, kind in found])

    database.write(write)


ADMIN = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-1")
MEMBER = RequestContext("u2", "p2", frozenset({"member"}), "req-2")


def test_networks_of_all_hosts_appear_once_by_name(database: Database) -> None:
    report(database, "h1", ("default", "network"), ("br0", "bridge"))
    report(database, "h2", ("default", "network"), ("br0", "network"))
    assert [(network.name, network.kinds) for network in EmbeddedPorts(database).networks()] == [
        ("br0", ("bridge", "network")),
        ("default", ("network",)),
    ]


def test_network_is_found_by_id_and_by_name(database: Database) -> None:
    report(database, "h1", ("default", "network"))
    ports = EmbeddedPorts(database)
    assert ports.network("default") == ports.network(network_id("default"))
    with pytest.raises(NotFound):
        ports.network("other")


def test_a_network_that_somebody_made_is_one_with_that_of_the_hosts(database: Database) -> None:
    report(database, "h1", ("br-data", "bridge"))
    ports = EmbeddedPorts(database)
    data = Network("", "br-data", shared=False, network_type="vlan", physical_network="n1", segmentation_id=42)
    made = ports.create_network(data)
    assert (made.id, made.kinds, made.vlan) == (network_id("br-data"), ("bridge",), 42)
    assert ports.networks() == (made,)
    assert seen_networks(ports, MEMBER) == []
    with pytest.raises(Conflict, match="already"):
        ports.create_network(data)
    port = ports.create_port(Port("p", made.id, ADMIN_ID, ""))
    with pytest.raises(Conflict, match="1 ports"):
        ports.delete_network("br-data")
    ports.delete_port(port.id)
    ports.delete_network("br-data")
    assert ports.networks() == (Network(network_id("br-data"), "br-data", kinds=("bridge",)),)
    with pytest.raises(Forbidden, match="that of hosts"):
        ports.delete_network("br-data")


def wishes(*names: str) -> list[Wish]:
    return [Wish(network=name) for name in names]


@pytest.mark.parametrize(
    ("names", "requested", "resolved"),
    [
        (["a", "b"], "none", []),
        (["a"], [], []),
        (["a"], "auto", ["a"]),
        (["a", "default", "b"], "auto", ["default"]),
        (["a", "b"], wishes("b", "a", "b"), ["b", "a", "b"]),
        (["a", "b"], wishes(network_id("b"), "a"), ["b", "a"]),
    ],
)
def test_what_is_asked_for_becomes_nics_in_order(
    database: Database, names: Sequence[str], requested: Requested, resolved: Sequence[str]
) -> None:
    report(database, "h1", *((name, "network") for name in names))
    assert [nic.network.name for nic in choose(EmbeddedPorts(database), ADMIN, requested)] == resolved


@pytest.mark.parametrize(
    ("names", "requested", "words"),
    [
        (["a", "b"], "auto", ["auto", "'default'", "a, b"]),
        ([], "auto", ["virsh net-start"]),
        (["a"], wishes("a", "zz"), ["Network zz"]),
        (["a"], [Wish(port="zz")], ["Port zz"]),
    ],
)
def test_nics_that_can_not_be_had_are_refused(
    database: Database, names: Sequence[str], requested: Requested, words: Sequence[str]
) -> None:
    report(database, "h1", *((name, "network") for name in names))
    with pytest.raises((Invalid, NotFound)) as refusal:
        choose(EmbeddedPorts(database), ADMIN, requested)
    assert [word for word in words if word not in refusal.value.message] == []


@given(st.text())
def test_mac_addresses_are_ours_and_depend_only_on_the_seed(seed: str) -> None:
    assert re.fullmatch(r"fa:16:3e(:[0-9a-f]{2}){3}", mac_address(seed))
    assert mac_address(seed) == mac_address(seed)


def test_mac_addresses_of_many_nics_differ() -> None:
    macs = {mac_address(f"server:{number}") for number in range(500)}
    assert len(macs) == 500


# --- binding ---------------------------------------------------------------------------------------

VF = {"pci_slot": "0000:a1:00.2", "pci_vendor_info": "15b3:101e", "physical_network": "n1", "capabilities": ["rx"]}
PF = {**VF, "device_mac_address": "0c:42:a1:6e:20:10"}


@pytest.fixture
def ports(database: Database) -> EmbeddedPorts:
    made = EmbeddedPorts(database)
    made.create_network(Network("", "n", network_type="vlan", physical_network="n1", segmentation_id=42))
    return made


def port(ports: EmbeddedPorts, kind: VnicType = VnicType.DIRECT, **more: Any) -> Port:
    return ports.create_port(Port(str(uuid.uuid4()), network_id("n"), "p2", "", vnic_type=kind, **more))


def test_a_port_is_bound_once_and_released_key_by_key(ports: EmbeddedPorts) -> None:
    before = port(ports, profile={"trusted": "true"})
    bound = ports.bind(before.id, Binding("s1", "h1", VF))
    assert ports.bind(before.id, Binding("s1", "h1", VF)) == bound == ports.port(before.id)
    assert bound.profile == {"trusted": "true", **VF}
    assert (bound.host, bound.device_id, bound.device_owner, bound.status) == ("h1", "s1", "compute:nova", "ACTIVE")
    assert (bound.vif_type, bound.vif_details["vlan"]) == ("hw_veb", "42")
    with pytest.raises(PortInUse, match="s1"):
        ports.bind(before.id, Binding("s2", "h1", VF))
    with pytest.raises(PortInUse, match="s1"):
        ports.delete_port(before.id)
    with pytest.raises(PortInUse):
        choose(ports, ADMIN, [Wish(port=before.id)])
    ports.release(before.id, "s2", delete=True)  # too late, or another server's
    assert ports.port(before.id) == bound
    ports.release(before.id, "s1", delete=False)
    ports.release(before.id, "s1", delete=False)
    assert ports.port(before.id) == replace(before, profile={"trusted": "true", "capabilities": ["rx"]})


def test_a_whole_card_lends_its_mac_address_to_its_port(ports: EmbeddedPorts) -> None:
    first, second = port(ports, VnicType.DIRECT_PHYSICAL), port(ports, VnicType.DIRECT_PHYSICAL)
    for number, each in enumerate((first, second, first)):
        bound = ports.bind(each.id, Binding(f"s{number}", "h1", PF, mac=PF["device_mac_address"]))
        assert (bound.mac, bound.vif_type) == (PF["device_mac_address"], "hostdev_physical")
        ports.release(each.id, f"s{number}", delete=False)
        assert ports.port(each.id).mac == each.mac


def test_a_port_made_for_a_server_is_one_however_often_it_is_asked_for(ports: EmbeddedPorts) -> None:
    new = NewPort(network_id("n"), "p2", "fa:16:3e:00:00:01")
    made = ports.make(new, Binding("s1", "h1"))
    assert ports.make(new, Binding("s1", "h1")) == made
    assert ports.ports_of("s1") == (made,)
    ports.release(made.id, "s1", delete=True)
    assert ports.ports() == ()


def test_two_ports_of_a_network_have_different_mac_addresses(ports: EmbeddedPorts) -> None:
    first = port(ports)
    with pytest.raises(Conflict, match=first.mac):
        ports.create_port(Port("other", network_id("n"), "p2", first.mac))


def test_ports_of_other_projects_are_not_there(ports: EmbeddedPorts) -> None:
    foreign = ports.create_port(Port("foreign", network_id("n"), "p9", ""))
    with pytest.raises(NotFound):
        choose(ports, MEMBER, [Wish(port=foreign.id)])


def test_what_a_port_can_not_be_is_said(ports: EmbeddedPorts) -> None:
    twice = port(ports)
    with pytest.raises(Invalid, match="more than once"):
        choose(ports, ADMIN, [Wish(port=twice.id), Wish(port=twice.id)])
    ports.create_network(Network("", "other", ADMIN.project))
    alike = ports.create_port(Port("alike", network_id("other"), ADMIN.project, twice.mac))
    with pytest.raises(Invalid, match=f"Port alike has the MAC address {twice.mac}, as port {twice.id}.*give one"):
        choose(ports, ADMIN, [Wish(port=twice.id), Wish(port=alike.id)])

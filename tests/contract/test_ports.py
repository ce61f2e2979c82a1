"""Ports in our own tables and in a Neutron are bound and released alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from jetbridge.config.settings import Settings
from jetbridge.errors import (
    InvalidConfiguration,
    JetbridgeError,
    NetworkServiceFailed,
    NotFound,
    NotSupported,
    PortBindingFailed,
    PortInUse,
)
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.network import Binding, Network, NewPort, Port
from jetbridge.network.embedded import EmbeddedPorts
from jetbridge.network.neutron import NeutronPorts
from jetbridge.network.nics import Wish, choose
from jetbridge.network.ports import Ports
from jetbridge.pci.port import VnicType
from jetbridge.pci.request import NumaPolicy
from tests.schema import new_database
from tests.servers.neutron import Neutron, neutron

CONTEXT = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-1")
VF = {"pci_slot": "0000:a1:00.2", "pci_vendor_info": "15b3:101e", "physical_network": "n1", "capabilities": ["rx"]}


@dataclass(frozen=True)
class Bench:
    ports: Ports
    network_id: str
    service: Neutron | EmbeddedPorts

    def port(self, kind: VnicType = VnicType.DIRECT, **more: Any) -> str:
        if isinstance(self.service, EmbeddedPorts):
            made = self.service.create_port(
                Port(f"port-{len(self.service.ports())}", self.network_id, "p1", "", vnic_type=kind, **more)
            )
            return made.id
        given = {"binding:vnic_type": kind.value, "binding:profile": dict(more.pop("profile", {})), **more}
        return str(self.service.port(self.network_id, **given)["id"])


@pytest.fixture(params=["embedded", "neutron"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "neutron":
        with neutron() as (service, url):
            provider = {
                "provider:network_type": "vlan",
                "provider:physical_network": "n1",
                "provider:segmentation_id": 42,
            }
            network = service.network("data", **provider)
            yield Bench(NeutronPorts(Settings(neutron_endpoint_override=url)), network, service)
        return
    database = new_database(tmp_path / "jetbridge.sqlite3")
    embedded = EmbeddedPorts(database)
    made = embedded.create_network(Network("", "data", "p1", True, "vlan", "n1", 42))
    yield Bench(embedded, made.id, embedded)
    database.close()


def test_networks_are_found_by_id_and_name(bench: Bench) -> None:
    (network,) = bench.ports.networks()
    assert bench.ports.network(bench.network_id) == bench.ports.network("data") == network
    assert (network.physical_network, network.vlan, network.shared) == ("n1", 42, True)
    with pytest.raises(NotFound):
        bench.ports.network("other")


def test_a_port_is_bound_once_and_released_key_by_key(bench: Bench) -> None:
    port_id = bench.port(profile={"trusted": "true"})
    before = bench.ports.port(port_id)
    bound = bench.ports.bind(port_id, Binding("s1", "h1", VF))
    assert bench.ports.bind(port_id, Binding("s1", "h1", VF)) == bound == bench.ports.port(port_id)
    assert bound.profile == {"trusted": "true", **VF}
    assert (bound.host, bound.device_id, bound.device_owner) == ("h1", "s1", "compute:nova")
    assert (bound.vif_type, bound.vif_details["vlan"]) == ("hw_veb", "42")
    assert [port.id for port in bench.ports.ports_of("s1")] == [port_id]
    with pytest.raises(PortInUse, match="s1"):
        bench.ports.bind(port_id, Binding("s2", "h1", VF))
    bench.ports.release(port_id, "s2", delete=True)  # too late, or another server's
    assert bench.ports.port(port_id) == bound
    for _ in range(2):
        bench.ports.release(port_id, "s1", delete=False)
    assert bench.ports.port(port_id) == replace(before, profile={"trusted": "true", "capabilities": ["rx"]})


def test_a_port_that_is_bound_again_says_nothing_of_the_device_before(bench: Bench) -> None:
    """As after a build that went on to another host while the first could not be reached."""
    port_id = bench.port(profile={"trusted": "true"})
    bench.ports.bind(port_id, Binding("s1", "h1", {**VF, "vf_num": 1, "pf_mac_address": "0c:42:a1:6e:20:10"}))
    fewer = {"pci_slot": "0000:c1:00.2", "pci_vendor_info": "15b3:101e", "physical_network": "n1"}
    bound = bench.ports.bind(port_id, Binding("s1", "h2", fewer))
    assert bound.profile == {"trusted": "true", "capabilities": ["rx"], **fewer}
    assert bound.host == "h2"


def test_a_port_has_its_own_numa_policy(bench: Bench) -> None:
    word = NumaPolicy.REQUIRED
    named = {"numa_policy": word} if isinstance(bench.service, EmbeddedPorts) else {"numa_affinity_policy": word.value}
    assert bench.ports.port(bench.port(**named)).numa_policy is NumaPolicy.REQUIRED
    assert bench.ports.port(bench.port()).numa_policy is None


def test_a_port_takes_over_the_mac_address_of_a_whole_card(bench: Bench) -> None:
    port_id = bench.port(VnicType.DIRECT_PHYSICAL)
    bound = bench.ports.bind(port_id, Binding("s1", "h1", VF, mac="0c:42:a1:00:00:01"))
    assert bench.ports.port(port_id).mac == bound.mac == "0c:42:a1:00:00:01"


def test_a_port_made_for_a_server_is_one_however_often_it_is_asked_for(bench: Bench) -> None:
    new = NewPort(bench.network_id, "p1", "fa:16:3e:00:01:01", ("10.0.0.9",))
    made = bench.ports.make(new, Binding("s1", "h1"))
    assert bench.ports.make(new, Binding("s1", "h1")) == made
    assert (made.mac, made.fixed_ips, made.project_id, made.vnic_type) == (
        new.mac,
        new.fixed_ips,
        "p1",
        VnicType.NORMAL,
    )
    for _ in range(2):
        bench.ports.release(made.id, "s1", delete=True)
    assert list(bench.ports.ports_of("s1")) == []
    with pytest.raises(NotFound):
        bench.ports.port(made.id)
    with pytest.raises(NotFound):
        bench.ports.bind(made.id, Binding("s1", "h1"))


def test_a_port_with_an_accelerator_says_its_profile_and_forgets_its_request(bench: Bench) -> None:
    port_id = bench.port(VnicType.ACCELERATOR_DIRECT, device_profile="nic")
    before = bench.ports.port(port_id)
    assert (before.vnic_type, before.device_profile) == (VnicType.ACCELERATOR_DIRECT, "nic")
    given = {"physical_network": "n1", "pci_slot": "0000:3b:0.1", "arq_uuid": "a1"}
    bound = bench.ports.bind(port_id, Binding("s1", "h1", given))
    assert (bound.profile, bound.vif_details["vlan"]) == (given, "42")
    bench.ports.release(port_id, "s1", delete=False)
    assert bench.ports.port(port_id) == before


# --- what only a service elsewhere can do ----------------------------------------------------------


@pytest.fixture
def elsewhere() -> Iterator[tuple[Neutron, NeutronPorts]]:
    with neutron() as (service, url):
        yield service, NeutronPorts(Settings(neutron_endpoint_override=url))


def test_the_first_segment_with_a_physical_network_counts(elsewhere: tuple[Neutron, NeutronPorts]) -> None:
    service, ports = elsewhere
    tunnel = {"provider:network_type": "geneve", "provider:physical_network": None, "provider:segmentation_id": 7}
    vlan = {"provider:network_type": "vlan", "provider:physical_network": "n2", "provider:segmentation_id": 8}
    network = ports.network(service.network("many", segments=[tunnel, vlan]))
    assert (network.physical_network, network.vlan) == ("n2", 8)


def test_a_vnic_type_that_no_host_serves_is_refused(elsewhere: tuple[Neutron, NeutronPorts]) -> None:
    service, ports = elsewhere
    port = service.port(service.network("n"), **{"binding:vnic_type": "baremetal"})
    with pytest.raises(NotSupported, match="baremetal"):
        ports.port(port["id"])


def test_of_two_servers_that_want_a_port_one_gets_it(elsewhere: tuple[Neutron, NeutronPorts]) -> None:
    service, ports = elsewhere
    port = service.port(service.network("n"), **{"binding:vnic_type": "direct"})
    service.taken_after_a_look[port["id"]] = "s2"
    with pytest.raises(PortBindingFailed, match="another revision"):
        ports.bind(port["id"], Binding("s1", "h1", VF))
    assert (port["device_id"], port["binding:profile"]) == ("s2", {})


@pytest.mark.parametrize(
    ("status", "error"), [(401, NetworkServiceFailed), (403, NetworkServiceFailed), (409, PortBindingFailed)]
)
def test_a_refusal_of_us_is_not_one_of_the_port(
    elsewhere: tuple[Neutron, NeutronPorts], status: int, error: type[JetbridgeError]
) -> None:
    """Another host would be refused as well."""
    service, ports = elsewhere
    port = service.port(service.network("n"), **{"binding:vnic_type": "direct"})
    ports.port(port["id"])
    service.refusing = status
    with pytest.raises(error, match="so not"):
        ports.bind(port["id"], Binding("s1", "h1", VF))


def test_a_port_that_asks_for_bandwidth_is_refused(elsewhere: tuple[Neutron, NeutronPorts]) -> None:
    service, ports = elsewhere
    port = service.port(service.network("n"), resource_request={"resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}})
    with pytest.raises(NotSupported, match=f"port {port['id']} asks for bandwidth"):
        choose(ports, CONTEXT, [Wish(port=port["id"])])


def test_a_service_that_does_not_answer_is_named() -> None:
    ports = NeutronPorts(Settings(neutron_endpoint_override="http://127.0.0.1:9", neutron_timeout=1))
    with pytest.raises(NetworkServiceFailed, match=r"http://127.0.0.1:9 failed: .*\[neutron\]"):
        ports.port("x")


def test_options_that_lack_something_are_told_at_the_start() -> None:
    with pytest.raises(InvalidConfiguration, match=r"\[neutron\]auth_type = password needs username and password"):
        NeutronPorts(
            Settings(neutron_auth_type="password", neutron_auth_url="http://k", neutron_project_name="service")
        )

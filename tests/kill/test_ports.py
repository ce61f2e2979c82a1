"""SIGKILL at every moment while a port is put into a server or taken out: afterwards it is wholly in or wholly out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from jetbridge.compute.registry import FLOWS
from jetbridge.network.embedded import network_id
from jetbridge.steps.runtime import Moment
from tests.system.child import SENT, Death, MortalCloud
from tests.system.cloud import VF_CARD, VF_SPEC, host
from tests.system.invariants import Journals, check_at_rest

FLEET = {"hosts": [host("h1", [VF_CARD])], "config": {"pci": {"device_spec": VF_SPEC}}}
MOMENTS = {
    flow: [Death(step.name, moment) for step in FLOWS[flow] for moment in Moment] for flow in ("attach", "detach")
}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MortalCloud]:
    made = MortalCloud(tmp_path)
    made.write_fleet(FLEET)
    yield made
    made.stop()


def name(death: Death) -> str:
    return f"{death.step}-{death.moment}"


def make_port(cloud: MortalCloud) -> str:
    data = {"name": "data", "provider:network_type": "flat", "provider:physical_network": "n1"}
    cloud.client.post(f"{cloud.url}/network/v2.0/networks", json={"network": data})
    port = {"network_id": network_id("data"), "binding:vnic_type": "direct"}
    answer = cloud.client.post(f"{cloud.url}/network/v2.0/ports", json={"port": port})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["port"]["id"])


def port_of(cloud: MortalCloud, port_id: str) -> dict[str, Any]:
    shown: dict[str, Any] = cloud.client.get(f"{cloud.url}/network/v2.0/ports/{port_id}").json()["port"]
    return shown


def check(cloud: MortalCloud, server_id: str, port_id: str, *, there: bool) -> None:
    check_at_rest(cloud)
    assert cloud.show(server_id)["status"] == "ACTIVE"
    assert (port_of(cloud, port_id)["device_id"] == server_id) is there
    assert len(cloud.owned(server_id)) == (1 if there else 0)
    [domain] = cloud.domains("h1").values()
    assert ("<interface" in domain["live_xml"]) is there
    assert ("<interface" in domain["xml"]) is there
    assert len(domain["held"]) == (1 if there else 0)
    nics = cloud.client.get(f"/servers/{server_id}/os-interface").json()["interfaceAttachments"]
    assert len(nics) == (1 if there else 0)
    assert cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)]


@pytest.mark.parametrize("death", MOMENTS["attach"], ids=name)
def test_a_killed_attach_is_undone_or_done(cloud: MortalCloud, death: Death) -> None:
    journals = Journals(cloud)
    cloud.start()
    server_id, port_id = cloud.boot(cloud.flavor("f", {})), make_port(cloud)
    cloud.wait(server_id, "ACTIVE")
    cloud.arm(death)
    with suppress(httpx.TransportError):
        cloud.client.post(f"/servers/{server_id}/os-interface", json={"interfaceAttachment": {"port_id": port_id}})
    cloud.await_death()
    journals.killed()
    cloud.start()
    check(cloud, server_id, port_id, there=death == Death("keep", Moment.CHANGED))
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    check_at_rest(cloud)
    assert port_of(cloud, port_id)["device_id"] == ""
    journals.check()


def test_a_detach_that_is_killed_before_the_host_gets_it_is_answered(cloud: MortalCloud) -> None:
    """It puts its server into no task, and nobody had begun it: its request waited forever."""
    cloud.start()
    port_id = make_port(cloud)
    server_id = cloud.boot(cloud.flavor("f", {}), networks=[{"port": port_id}])
    cloud.wait(server_id, "ACTIVE")
    cloud.arm(Death("detach_interface", SENT))
    with suppress(httpx.TransportError):
        cloud.client.delete(f"/servers/{server_id}/os-interface/{port_id}")
    cloud.await_death()
    cloud.start()
    check(cloud, server_id, port_id, there=True)
    [detach, _] = cloud.client.get(f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    assert (detach["action"], detach["message"]) == ("detach_interface", "Error")


@pytest.mark.parametrize("death", MOMENTS["detach"], ids=name)
def test_a_killed_detach_is_finished(cloud: MortalCloud, death: Death) -> None:
    journals = Journals(cloud)
    cloud.start()
    flavor, port_id = cloud.flavor("f", {}), make_port(cloud)
    server_id = cloud.boot(flavor, networks=[{"port": port_id}])
    cloud.wait(server_id, "ACTIVE")
    cloud.arm(death)
    with suppress(httpx.TransportError):
        cloud.client.delete(f"/servers/{server_id}/os-interface/{port_id}")
    cloud.await_death()
    journals.killed()
    cloud.start()
    check(cloud, server_id, port_id, there=False)
    journals.check()


@pytest.mark.parametrize("moment", list(Moment))
def test_a_build_that_is_killed_while_it_binds_ports_releases_them(cloud: MortalCloud, moment: Moment) -> None:
    cloud.start()
    flavor, port_id = cloud.flavor("f", {}), make_port(cloud)
    cloud.arm(Death("ports", moment))
    with suppress(httpx.TransportError):
        cloud.boot(flavor, networks=[{"port": port_id}, {"uuid": network_id("default")}])
    cloud.await_death()
    cloud.start()
    check_at_rest(cloud)
    assert port_of(cloud, port_id)["device_id"] == ""
    assert [port["id"] for port in cloud.client.get(f"{cloud.url}/network/v2.0/ports").json()["ports"]] == [port_id]
    assert cloud.statuses() == ["available"] * 2

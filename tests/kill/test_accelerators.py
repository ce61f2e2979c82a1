"""SIGKILL of the process around each call by which a server gets accelerators, its flavor's and a port's: after a restart nothing is owned,
bound or known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetbridge.conductor.accelerators import ACCELERATOR_STEPS
from jetbridge.network.embedded import network_id
from jetbridge.steps.runtime import Moment
from tests.system.child import SENT, Death, MortalCloud, dying
from tests.system.test_accelerators import HOSTS, Accelerators

STEPS = [Death(step.name, moment) for step in ACCELERATOR_STEPS for moment in Moment]
CALLS = [Death(f"{method} /accelerator_requests", SENT) for method in ("POST", "PATCH", "GET", "DELETE")]
ON_THE_HOST = [Death(step, moment) for step in ("accelerators", "ports") for moment in Moment]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MortalCloud]:
    made = MortalCloud(tmp_path)
    made.write_fleet(HOSTS)
    made.start()
    Accelerators(made).prepare()
    yield made
    made.stop()


def make_port(cloud: MortalCloud) -> str:
    """Whose device is an accelerator's."""
    network = {"name": "data", "provider:network_type": "flat", "provider:physical_network": "n1"}
    cloud.client.post(f"{cloud.url}/network/v2.0/networks", json={"network": network})
    port = {
        "network_id": network_id("data"),
        "binding:vnic_type": "accelerator-direct-physical",
        "device_profile": "nic",
    }
    answer = cloud.client.post(f"{cloud.url}/network/v2.0/ports", json={"port": port})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["port"]["id"])


def name(death: Death) -> str:
    return f"{death.step}-{death.moment}".replace(" /", "-")


@pytest.mark.parametrize("death", [*STEPS, *CALLS, *ON_THE_HOST], ids=name)
def test_whatever_a_killed_process_had_begun_is_given_back(cloud: MortalCloud, death: Death) -> None:
    cloud.stop()
    with dying(cloud, death):
        server = Accelerators(cloud).boot("two", networks=[{"port": make_port(cloud)}])
        cloud.wait(server, "ACTIVE")
        cloud.delete(server)
    cloud.start()
    accelerators = Accelerators(cloud)
    server = cloud.only_server()
    if cloud.client.get(f"/servers/{server}").status_code == 200:
        assert cloud.show(server)["status"] == "ERROR"
        cloud.delete(server)
        cloud.wait_gone(server)
    cloud.update_resources("h1")
    accelerators.check_nothing_left()
    assert cloud.domains("h1") == {}
    (port,) = cloud.client.get(f"{cloud.url}/network/v2.0/ports").json()["ports"]
    assert (port["device_id"], port["binding:profile"]) == ("", {})
    again = accelerators.boot("two", networks=[{"port": port["id"]}])
    cloud.wait(again, "ACTIVE")
    cloud.delete(again)
    cloud.wait_gone(again)
    accelerators.check_nothing_left()

"""SIGKILL of the process around each call by which a server gets an accelerator: after a restart nothing is owned, bound or known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetbridge.conductor.accelerators import ACCELERATOR_STEPS
from jetbridge.steps.runtime import Moment
from tests.system.child import SENT, Death, MortalCloud, dying
from tests.system.test_accelerators import HOSTS, Accelerators

STEPS = [Death(step.name, moment) for step in ACCELERATOR_STEPS for moment in Moment]
CALLS = [Death(f"{method} /accelerator_requests", SENT) for method in ("POST", "PATCH", "GET", "DELETE")]
ON_THE_HOST = [Death("accelerators", moment) for moment in Moment]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MortalCloud]:
    made = MortalCloud(tmp_path)
    made.write_fleet(HOSTS)
    made.start()
    Accelerators(made).prepare()
    yield made
    made.stop()


def name(death: Death) -> str:
    return f"{death.step}-{death.moment}".replace(" /", "-")


@pytest.mark.parametrize("death", [*STEPS, *CALLS, *ON_THE_HOST], ids=name)
def test_whatever_a_killed_process_had_begun_is_given_back(cloud: MortalCloud, death: Death) -> None:
    cloud.stop()
    with dying(cloud, death):
        server = Accelerators(cloud).boot("two")
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
    again = accelerators.boot("two")
    cloud.wait(again, "ACTIVE")
    cloud.delete(again)
    cloud.wait_gone(again)
    accelerators.check_nothing_left()

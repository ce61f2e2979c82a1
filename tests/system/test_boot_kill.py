"""The process dies in the middle: after a restart nothing is held without a living server, and every request has an answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from jetbridge.compute.build import BUILD_STEPS
from jetbridge.compute.delete import DELETE_STEPS
from jetbridge.steps.runtime import Moment
from tests.system.cloud import Cloud, fleet, gpu, host

FLEET = fleet(host("h1", [gpu(1), gpu(2)]))


@contextmanager
def dying(cloud: Cloud, step: str, moment: Moment) -> Iterator[subprocess.Popen[str]]:
    """The service in a child that kills itself; ``cloud``'s client talks to it."""
    command = [sys.executable, "-m", "tests.system.child", str(cloud.fleet_file), str(cloud.state), step, moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as child:
        try:
            assert child.stdout is not None
            cloud.url = child.stdout.readline().strip()
            assert cloud.url, "the child didn't start"
            cloud.client = httpx.Client(
                base_url=f"{cloud.url}/compute/v2.1", headers={"OpenStack-API-Version": "compute 2.96"}, timeout=30
            )
            yield child
        finally:
            child.kill()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path)
    made.write_fleet(FLEET)
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        ("claim", Moment.BEFORE_RECORD),
        ("claim", Moment.CHANGED),
        ("root-disk", Moment.CHANGED),
        ("define", Moment.CHANGED),
        ("start", Moment.RECORDED),
        ("start", Moment.CHANGED),
        ("allocate", Moment.CHANGED),
    ],
)
def test_a_killed_build_is_undone_and_its_owner_is_told(cloud: Cloud, step: str, moment: Moment) -> None:
    assert step in [known.name for known in BUILD_STEPS]
    with dying(cloud, step, moment) as child:
        server_id = cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"}))
        child.wait(30)
    cloud.start()
    server = cloud.show(server_id)
    assert server["status"] == "ERROR"
    named = "scheduling" if moment is Moment.BEFORE_RECORD else step
    assert f"stopped in step {named}" in server["fault"]["message"]
    assert cloud.statuses() == ["available", "available"]
    assert cloud.domains("h1") == {}
    assert list((cloud.state / "sim" / "h1").glob("guests/*/*")) == []
    assert cloud.sql("SELECT compute_node_id FROM instances") == [(None,)]
    assert cloud.sql("SELECT state FROM builds") == [("failed",)]
    cloud.delete(server_id)
    cloud.wait_gone(server_id)


def test_a_build_that_is_done_is_not_undone(cloud: Cloud) -> None:
    with dying(cloud, "activate", Moment.CHANGED) as child:
        server_id = cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"}))
        child.wait(30)
    cloud.start()
    assert cloud.show(server_id)["status"] == "ACTIVE"
    assert cloud.statuses() == ["allocated", "available"]


@pytest.mark.parametrize(
    ("step", "moment"),
    [("stop", Moment.CHANGED), ("undefine", Moment.CHANGED), ("leave", Moment.RECORDED), ("leave", Moment.CHANGED)],
)
def test_a_killed_delete_is_finished(cloud: Cloud, step: str, moment: Moment) -> None:
    assert step in [known.name for known in DELETE_STEPS]
    with dying(cloud, step, moment) as child:
        server_id = cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"}))
        cloud.wait(server_id, "ACTIVE")
        cloud.client.delete(f"/servers/{server_id}")
        child.wait(30)
    cloud.start()
    cloud.wait_gone(server_id)
    assert cloud.statuses() == ["available", "available"]
    assert cloud.domains("h1") == {}
    assert cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)]

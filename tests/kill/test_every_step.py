"""SIGKILL at every moment of every step of the registry: after a restart, whose start is one pass, nothing is left and nobody waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from jetbridge.compute.registry import FLOWS
from jetbridge.steps.runtime import Moment
from tests.system import points
from tests.system.child import SENT, Death, MortalCloud, dying
from tests.system.cloud import fleet, gpu, host
from tests.system.invariants import Journals, check_always, check_at_rest
from tests.system.ledger import check_allocations

FLEET = fleet(host("h1", [gpu(1), gpu(2)]))
GPU = {"pci_passthrough:alias": "GPU:1"}
EVERYWHERE = [Death(step.name, moment) for step in FLOWS["build"] for moment in Moment]
BUILT = {step.name for step in FLOWS["build"]}
DELETES = [
    # A build that has a step of this name is to get over it.
    Death(step.name, moment, spared=int(step.name in BUILT))
    for step in FLOWS["delete"]
    for moment in Moment
]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MortalCloud]:
    made = MortalCloud(tmp_path)
    made.write_fleet(FLEET)
    yield made
    made.stop()


POINTS = [(flow, point) for flow, found in points.discovered().items() for point in found]


@pytest.mark.parametrize(
    ("flow", "point"), POINTS, ids=[f"{flow}-{point.name}-{point.moment}" for flow, point in POINTS]
)
def test_what_is_killed_beside_the_steps_is_ended_and_leaves_nothing(
    cloud: MortalCloud, flow: str, point: points.Point
) -> None:
    cloud.write_fleet(points.FLEET)
    journals = Journals(cloud)
    with dying(cloud, Death(point.name, point.moment)):
        points.go(cloud, flow, points.make_flavor(cloud, flow))
    journals.killed()
    check_always(cloud)
    cloud.start()
    check_at_rest(cloud)
    for server in cloud.client.get("/servers").json()["servers"]:
        cloud.delete(server["id"])
        cloud.wait_gone(server["id"])
    cloud.until(lambda: cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)], "all builds ended")
    check_at_rest(cloud)
    assert cloud.statuses() == ["available"] * 3
    journals.check()
    check_allocations(cloud, ())


def name(death: Death) -> str:
    return f"{death.step}-{death.moment}"


def test_every_flow_is_killed_here() -> None:
    """A new flow needs a test that brings it to its steps."""
    assert set(FLOWS) == {"build", "delete", "attach", "detach"}  # the latter two in test_ports


@pytest.mark.parametrize("death", EVERYWHERE, ids=name)
def test_a_killed_build_is_undone_or_done_and_its_owner_is_told(cloud: MortalCloud, death: Death) -> None:
    journals = Journals(cloud)
    with dying(cloud, death):
        cloud.boot(cloud.flavor("g", GPU), config_drive=True)
    server_id = cloud.only_server()
    journals.killed()
    check_always(cloud)
    cloud.start()
    check_at_rest(cloud)
    server = cloud.show(server_id)
    if death == Death(FLOWS["build"][-1].name, Moment.CHANGED):
        assert server["status"] == "ACTIVE"
    else:
        assert server["status"] == "ERROR"
        assert f"stopped in step {_recorded(death)} " in server["fault"]["message"]
        assert cloud.owned(server_id) == []
        assert cloud.domains("h1") == {}
    check_allocations(cloud, [server_id] if server["status"] == "ACTIVE" else [])
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    cloud.until(lambda: cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)], "all builds ended")
    check_at_rest(cloud)
    assert cloud.statuses() == ["available", "available"]
    journals.check()
    check_allocations(cloud, ())


@pytest.mark.parametrize("message", ["build_servers", "select_destinations", "build_server", "define_domain"])
def test_a_build_whose_process_dies_between_services_is_ended(cloud: MortalCloud, message: str) -> None:
    with dying(cloud, Death(message, SENT)):
        cloud.boot(cloud.flavor("g", GPU))
    cloud.start()
    check_at_rest(cloud)
    assert cloud.sql("SELECT vm_state FROM instances") == [("error",)]
    assert cloud.statuses() == ["available", "available"]
    assert cloud.domains("h1") == {}


@pytest.mark.parametrize("message", ["delete_server", "destroy_domain", "undefine_domain"])
def test_a_delete_whose_process_dies_between_services_is_finished(cloud: MortalCloud, message: str) -> None:
    with dying(cloud, Death(message, SENT)):
        server_id = cloud.boot(cloud.flavor("g", GPU))
        cloud.wait(server_id, "ACTIVE")
        cloud.delete(server_id)
    cloud.start()
    check_at_rest(cloud)
    assert cloud.client.get(f"/servers/{server_id}").status_code == 404
    assert cloud.statuses() == ["available", "available"]


@pytest.mark.parametrize("death", DELETES, ids=name)
def test_a_killed_delete_is_finished_and_its_request_answered(cloud: MortalCloud, death: Death) -> None:
    journals = Journals(cloud)
    with dying(cloud, death):
        server_id = cloud.boot(cloud.flavor("g", GPU))
        cloud.wait(server_id, "ACTIVE")
        cloud.delete(server_id)
    journals.killed()
    check_always(cloud)
    cloud.start()
    check_at_rest(cloud)
    assert cloud.client.get(f"/servers/{server_id}").status_code == 404
    assert cloud.statuses() == ["available", "available"]
    assert cloud.domains("h1") == {}
    journals.check()
    check_allocations(cloud, ())


@pytest.mark.parametrize("action", ["os-stop", "reboot"])
def test_an_operation_whose_process_dies_ends_and_its_request_is_answered(cloud: MortalCloud, action: str) -> None:
    cloud.start()
    server_id = cloud.boot(cloud.flavor("g", GPU))
    cloud.wait(server_id, "ACTIVE")
    cloud.arm(Death("stop_server" if action == "os-stop" else "reboot_server", SENT))
    with suppress(httpx.TransportError):
        cloud.act(server_id, action, {"type": "HARD"} if action == "reboot" else None)
    cloud.await_death()
    cloud.start()
    check_at_rest(cloud)
    history = cloud.client.get(f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    assert [(entry["action"], entry["message"]) for entry in history][:1] == [(action.removeprefix("os-"), "Error")]
    cloud.act(server_id, "reboot", {"type": "HARD"})
    cloud.wait(server_id, "ACTIVE")


def _recorded(death: Death) -> str:
    """The step that the record names: a step counts from its record on; the first one from when the host took the build."""
    names = [step.name for step in FLOWS["build"]]
    before = max(names.index(death.step) - 1, 0)
    return names[before] if death.moment is Moment.BEFORE_RECORD else death.step

"""The process dies in the middle: after a restart nothing is held without a living server, and every request has an answer. A few points;
tests/kill has all of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from jetbridge.conductor.gone_hosts import answer_for_gone_hosts
from jetbridge.db.clock import utcnow
from jetbridge.db.engine import Database
from jetbridge.steps.runtime import Moment
from tests.system.child import SENT, Death, MortalCloud, dying
from tests.system.cloud import fleet, gpu, host
from tests.system.invariants import Journals, check_at_rest

GPU = {"pci_passthrough:alias": "GPU:1"}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MortalCloud]:
    made = MortalCloud(tmp_path)
    made.write_fleet(fleet(host("h1", [gpu(1), gpu(2)])))
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("step", "moment"), [("claim", Moment.CHANGED), ("start", Moment.RECORDED), ("start", Moment.CHANGED)]
)
def test_a_killed_build_is_undone_and_its_owner_is_told(cloud: MortalCloud, step: str, moment: Moment) -> None:
    journals = Journals(cloud)
    with dying(cloud, Death(step, moment)):
        cloud.boot(cloud.flavor("g", GPU))
    server_id = cloud.only_server()
    journals.killed()
    cloud.start()
    check_at_rest(cloud)
    server = cloud.show(server_id)
    assert server["status"] == "ERROR"
    assert f"stopped in step {step} " in server["fault"]["message"]
    assert cloud.statuses() == ["available", "available"]
    assert cloud.domains("h1") == {}
    assert cloud.sql("SELECT compute_node_id FROM instances") == [(None,)]
    assert cloud.sql("SELECT state FROM builds") == [("failed",)]
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    journals.check()


def test_a_build_that_is_done_is_not_undone(cloud: MortalCloud) -> None:
    with dying(cloud, Death("activate", Moment.CHANGED)):
        cloud.boot(cloud.flavor("g", GPU))
    server_id = cloud.only_server()
    cloud.start()
    check_at_rest(cloud)
    assert cloud.show(server_id)["status"] == "ACTIVE"
    assert cloud.statuses() == ["allocated", "available"]


@pytest.mark.parametrize(("step", "moment"), [("stop", Moment.BEFORE_RECORD), ("leave", Moment.CHANGED)])
def test_a_killed_delete_is_finished_and_its_request_answered(cloud: MortalCloud, step: str, moment: Moment) -> None:
    """Killed before the first record, the delete was waited for forever; killed at its end, its action never ended."""
    with dying(cloud, Death(step, moment)):
        server_id = cloud.boot(cloud.flavor("g", GPU))
        cloud.wait(server_id, "ACTIVE")
        cloud.delete(server_id)
    cloud.start()
    check_at_rest(cloud)
    assert cloud.client.get(f"/servers/{server_id}").status_code == 404
    assert cloud.statuses() == ["available", "available"]
    assert cloud.domains("h1") == {}


def test_files_of_a_killed_delete_go_though_a_conductor_finished_it_in_the_tables_meanwhile(cloud: MortalCloud) -> None:
    """The domain was gone already and the server deleted: nobody looked for the files."""
    with dying(cloud, Death("undefine", Moment.CHANGED)):
        server_id = cloud.boot(cloud.flavor("g", GPU))
        cloud.wait(server_id, "ACTIVE")
        cloud.delete(server_id)
    assert list((cloud.state / "sim/h1/guests").iterdir())
    database = Database(cloud.database_url.render_as_string(hide_password=False))
    later = utcnow() + timedelta(hours=1)
    assert answer_for_gone_hosts(database, now=lambda: later, service_down_time=60) == 1
    database.close()
    cloud.start()
    check_at_rest(cloud)
    assert not list((cloud.state / "sim/h1/guests").iterdir())
    assert cloud.statuses() == ["available", "available"]


def history(cloud: MortalCloud, server_id: str) -> list[tuple[str, str | None, list[str]]]:
    """What was asked of the server, newest first: how it ended, and which events it had."""
    path = f"/servers/{server_id}/os-instance-actions"
    answers = []
    for entry in cloud.client.get(path).json()["instanceActions"]:
        action = cloud.client.get(f"{path}/{entry['request_id']}").json()["instanceAction"]
        events = [event["event"] for event in action["events"]]
        answers.append((action["action"], action["message"], events))
    return answers


@pytest.mark.parametrize(("point", "moment"), [("delete_server", SENT), ("stop", Moment.BEFORE_RECORD)])
def test_a_killed_delete_that_fails_when_it_is_taken_up_is_answered(
    cloud: MortalCloud, point: str, moment: Moment | str
) -> None:
    """Its answer went to the request that had made the server, and the one that asked for the delete was never answered."""
    failing = {"fail": {"undefine_domain": {"times": 1, "error": "internal error: not now"}}}
    cloud.write_fleet(fleet(host("h1", [gpu(1), gpu(2)], simulate=failing)))
    with dying(cloud, Death(point, moment)):
        server_id = cloud.boot(cloud.flavor("g", GPU))
        cloud.wait(server_id, "ACTIVE")
        cloud.delete(server_id)
    cloud.start()
    check_at_rest(cloud)
    server = cloud.show(server_id)
    assert (server["status"], "not now" in server["fault"]["message"]) == ("ERROR", True)
    [deleted, created] = history(cloud, server_id)
    assert (deleted[0], deleted[1], set(deleted[2])) == ("delete", "Error", {"compute_terminate_instance"})
    assert (created[0], created[1], "compute_terminate_instance" in created[2]) == ("create", None, False)
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert cloud.statuses() == ["available", "available"]


def test_a_killed_request_of_a_server_that_is_in_no_task_is_answered(cloud: MortalCloud) -> None:
    """As a request leaves it that waits behind another one of the same server, which ends the task of both."""
    with dying(cloud, Death("reboot_server", SENT)):
        server_id = cloud.boot(cloud.flavor("g", GPU))
        cloud.wait(server_id, "ACTIVE")
        cloud.act(server_id, "reboot", {"type": "HARD"})
    cloud.change("UPDATE instances SET task_state = NULL")
    cloud.start()
    check_at_rest(cloud)
    assert cloud.show(server_id)["status"] == "ACTIVE"
    assert history(cloud, server_id)[0][:2] == ("reboot", "Error")

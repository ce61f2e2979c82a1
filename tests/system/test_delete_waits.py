"""A server that is deleted while something else is done with it stays in that task, so that nobody who dies forgets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetbridge.config.settings import Settings
from jetbridge.steps.runtime import Moment
from tests.system import points
from tests.system.cloud import T4, Cloud, fleet, gpu, host
from tests.system.conftest import Launch
from tests.system.ledger import client_of, consumers

pytestmark = pytest.mark.all_in_one


@pytest.mark.parametrize("failing", [False, True], ids=["the reboot ends well", "the reboot fails"])
def test_a_delete_that_waits_for_a_reboot_is_not_forgotten(launch: Launch, failing: bool) -> None:
    delay = {"delay": {"destroy_domain": 1}}
    broken: dict[str, Any] = {"fail": {"start_domain": {"times": 1}}} if failing else {}
    cloud = launch(fleet(host("h1", [gpu(1)], simulate=delay)))
    server_id = cloud.boot(cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server_id, "ACTIVE")
    cloud.reload(fleet(host("h1", [gpu(1)], simulate={**delay, **broken})))
    cloud.act(server_id, "reboot", {"type": "HARD"})
    cloud.delete(server_id)
    tasks = []

    def gone() -> bool:
        rows = cloud.sql("SELECT task_state FROM instances WHERE deleted = 0")
        tasks.extend(task for (task,) in rows)
        return not rows

    cloud.until(gone, "the server is gone")
    assert set(tasks) == {"deleting"}
    assert cloud.statuses() == ["available"]


def test_a_build_begins_with_no_step_for_a_server_that_is_being_deleted(tmp_path: Path) -> None:
    marked: list[str] = []
    steps: list[str] = []

    def mark(point: str, moment: str) -> None:
        if (point, moment) == ("compute.build._begin", points.WRITES) and not marked:
            marked.append(moment)  # as far as a delete comes while no conductor takes it
            cloud.change("UPDATE instances SET task_state = 'deleting'")

    cloud = Cloud(tmp_path)
    cloud.write_fleet(fleet(host("h1", [gpu(1)])))
    end = points.watch(mark)
    cloud.start(lambda step, moment: steps.append(step))
    try:
        server_id = cloud.boot(cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"}))
        cloud.until(lambda: marked, "its host is about to begin")
        cloud.until(lambda: not cloud.sql("SELECT 1 FROM builds WHERE state = 'running'"), "its build is over")
        assert steps == []
        assert "aborted: it is being deleted" in cloud.log()
        cloud.delete(server_id)
        cloud.wait_gone(server_id)
    finally:
        cloud.stop()
        end()


def test_what_is_chosen_for_a_server_that_was_deleted_is_given_back_at_once(tmp_path: Path) -> None:
    """Its delete found nothing: the scheduler allocated after that, and accelerators were bound."""
    deleted = []

    def observe(step: str, moment: Moment) -> None:
        if (step, moment) == ("create-arqs", Moment.BEFORE_RECORD) and not deleted:
            ((server_id,),) = cloud.sql("SELECT uuid FROM instances WHERE deleted = 0")
            chosen = client_of(cloud).allocations(server_id)
            cloud.delete(server_id)
            cloud.wait_gone(server_id)
            cloud.until(lambda: not consumers(cloud), "its delete took back what it had")
            client_of(cloud).put_allocations(server_id, chosen.by_provider, str(chosen.project), str(chosen.user))
            deleted.append(server_id)

    cloud = Cloud(tmp_path, Settings(update_resources_interval=3600))  # nobody looks by himself
    own = {"pci": {"device_spec": []}, "accelerator": {"device_spec": [{**T4, "type": "GPU"}]}}
    cloud.write_fleet(fleet(host("h1", [gpu(1)], config=own)))
    cloud.start(observe)
    try:
        profile = [{"name": "one", "groups": [{"resources:PGPU": "1"}]}]
        assert cloud.client.post(f"{cloud.url}/accelerator/v2/device_profiles", json=profile).status_code == 201
        flavor = cloud.flavor("acc", {"accel:device_profile": "one"})
        server_id = cloud.boot(flavor)
        cloud.until(lambda: deleted == [server_id], "it is deleted before its accelerators are bound")
        cloud.until(lambda: not cloud.sql("SELECT 1 FROM builds WHERE state = 'running'"), "its build is over")
        cloud.until(lambda: not cloud.sql("SELECT 1 FROM accelerator_requests"), "its accelerator is nobody's")
        cloud.until(lambda: not consumers(cloud), "its allocation is gone")
        cloud.wait(cloud.boot(flavor), "ACTIVE")
    finally:
        cloud.stop()

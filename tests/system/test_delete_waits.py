"""A server that is deleted while something else is done with it stays in that task, so that nobody who dies forgets it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.cloud import fleet, gpu, host
from tests.system.conftest import Launch

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

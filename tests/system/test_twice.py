"""A bus delivers at least once: each message to a host comes a second time, and nothing happens."""

from __future__ import annotations

from typing import Any

import pytest

from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.verdict import Selection
from tests.system.cloud import Cloud, fleet, gpu, host
from tests.system.conftest import Launch

pytestmark = pytest.mark.all_in_one


def again(cloud: Cloud, server_id: str, method: str, **payload: Any) -> None:
    """The message comes once more, under the request that made the server, and is handled when this returns."""
    assert cloud.service is not None
    [(request_id,)] = cloud.sql(
        "SELECT request_id FROM instance_actions WHERE instance_uuid = :id ORDER BY id LIMIT 1", id=server_id
    )
    context = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), request_id)
    message = {"server_uuid": server_id, **payload}
    cloud.service.bus.call(context, "compute", method, message, source="test", server="h1")


def actions(cloud: Cloud) -> list[tuple[Any, ...]]:
    return cloud.sql("SELECT action, message, finish_time FROM instance_actions ORDER BY id")


def test_a_build_message_that_comes_again_builds_nothing(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1), gpu(2)])))
    server_id = cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server_id, "ACTIVE")
    [(build_id, node_id)] = cloud.sql("SELECT b.id, n.id FROM builds b, compute_nodes n")
    before = cloud.ledgers()
    again(cloud, server_id, "build_server", build_id=build_id, selection=Selection("h1", node_id, 1).to_message())
    assert cloud.ledgers() == before


def test_a_build_message_that_comes_again_while_it_is_built_is_one_build(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1), gpu(2)], simulate={"delay": {"create_root_disk": 0.5}})))
    server_id = cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"}))
    cloud.until(lambda: "claimed" in cloud.statuses(), "a device is claimed")
    [(build_id, node_id)] = cloud.sql("SELECT b.id, n.id FROM builds b, compute_nodes n")
    again(cloud, server_id, "build_server", build_id=build_id, selection=Selection("h1", node_id, 1).to_message())
    assert cloud.wait(server_id, "ACTIVE", "ERROR")["status"] == "ACTIVE"
    assert cloud.statuses() == ["allocated", "available"]
    assert len(cloud.domains("h1")) == 1


@pytest.mark.parametrize("method", ["stop_server", "start_server", "reboot_server"])
def test_a_task_that_comes_again_does_not_touch_a_server_in_use(launch: Launch, method: str) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server_id, "ACTIVE")
    before, told = cloud.ledgers(), actions(cloud)
    again(cloud, server_id, method, hard=True)
    assert cloud.ledgers() == before
    assert actions(cloud) == told


def test_a_delete_that_comes_again_is_over(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server_id, "ACTIVE")
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    cloud.until(lambda: cloud.sql("SELECT id FROM builds WHERE state = 'running'") == [], "the delete ended")
    before, told = cloud.ledgers(), actions(cloud)
    again(cloud, server_id, "delete_server")
    assert cloud.ledgers() == before
    assert actions(cloud) == told

"""A fleet file is read again while servers are built: each is built all the same."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jetbridge.config.settings import Settings
from jetbridge.steps.runtime import Moment
from tests.system.cloud import T4, Cloud, fleet, gpu, host
from tests.system.conftest import Launch

pytestmark = pytest.mark.all_in_one

GPU = {"pci_passthrough:alias": "GPU:1"}


def six_builds(cloud: Cloud) -> list[str]:
    """Servers of one request, all sent to h1, which has two workers for them: what waits for a worker now waits for all but one."""
    cloud.boot(cloud.flavor("gpu", GPU), min_count=6, max_count=6)
    sent = "SELECT count(*) FROM builds WHERE host = 'h1'"
    cloud.until(lambda: cloud.sql(sent) == [(6,)], "all builds are sent to h1")
    return [server_id for (server_id,) in cloud.sql("SELECT uuid FROM instances WHERE deleted = 0")]


def in_build(cloud: Cloud, ids: list[str]) -> int:
    return sum(cloud.show(server_id)["status"] == "BUILD" for server_id in ids)


def test_a_host_gets_other_options_before_and_under_builds(launch: Launch) -> None:
    def content(*specs: dict[str, str]) -> dict[str, object]:
        slow = {"simulate": {"delay": {"start_domain": 1.5}}, "config": {"pci": {"device_spec": list(specs)}}}
        return fleet(host("h1", [gpu(number) for number in range(6)], **slow))

    cloud = launch(content(T4), Settings(workers=2))
    ids = six_builds(cloud)
    began = time.monotonic()
    answer = cloud.reload(content(T4, {"vendor_id": "8086", "product_id": "1572"}))
    took = time.monotonic() - began
    assert answer["changed"] == ["h1"]
    assert in_build(cloud, ids) > 1, f"a reload waits for no build that waits for a worker: {took} s"
    ends = [cloud.wait(server_id, "ACTIVE", "ERROR") for server_id in ids]
    assert [server.get("fault") for server in ends] == [None] * 6
    assert cloud.statuses() == ["allocated"] * 6


def test_a_host_answers_while_its_options_change(launch: Launch) -> None:
    def content(*specs: dict[str, str]) -> dict[str, object]:
        slow = {"simulate": {"delay": {"node_devices": 1}}, "config": {"pci": {"device_spec": list(specs)}}}
        return fleet(host("h1", [gpu(number) for number in range(6)], **slow))

    cloud = launch(content(T4))
    flavor = cloud.flavor("gpu", GPU)
    with ThreadPoolExecutor(1) as reader:
        reload = reader.submit(cloud.reload, content(T4, {"vendor_id": "8086", "product_id": "1572"}))
        ids = []
        while not reload.done() and len(ids) < 6:
            ids.append(cloud.boot(flavor, f"s{len(ids)}"))
            time.sleep(0.1)
        assert reload.result()["changed"] == ["h1"]
    assert len(ids) > 1, "some were asked for while it changed"
    assert [cloud.wait(server_id, "ACTIVE", "ERROR").get("fault") for server_id in ids] == [None] * len(ids)


def test_a_host_that_is_added_under_builds_can_be_used_before_they_end(launch: Launch) -> None:
    slow = host("h1", [gpu(number) for number in range(6)], simulate={"delay": {"start_domain": 1.5}})
    cloud = launch(fleet(slow), Settings(workers=2))
    ids = six_builds(cloud)
    cloud.reload(fleet(slow, host("h2", [gpu(1)])))
    reported = "SELECT reported FROM compute_nodes WHERE host = 'h2' AND deleted = 0"
    cloud.until(lambda: [bool(each) for (each,) in cloud.sql(reported)] == [True], "h2 is in Placement")
    assert in_build(cloud, ids) > 1, "its report waits for no build that waits for one of the two workers"
    for server_id in ids:
        cloud.wait(server_id, "ACTIVE")


def test_a_host_leaves_before_a_build_claims_on_it(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    other = host("h2", [gpu(1), gpu(2)])
    left = []

    def observe(step: str, moment: Moment) -> None:
        if (step, moment) == ("claim", Moment.BEFORE_RECORD) and not left:
            left.append(cloud.reload(fleet(other))["removed"])

    cloud.write_fleet(fleet(host("h1", [gpu(1)]), other))
    cloud.start(observe)
    try:
        server = cloud.wait(cloud.boot(cloud.flavor("gpu", GPU)), "ACTIVE", "ERROR")
        assert left == [["h1"]]
        assert server.get("fault") is None
        assert server["OS-EXT-SRV-ATTR:host"] == "h2"
        assert "Traceback" not in cloud.log()
    finally:
        cloud.stop()

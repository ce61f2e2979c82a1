"""A fleet file is read again while servers are built: each is built all the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jetbridge.config.settings import Settings
from jetbridge.steps.runtime import Moment
from tests.system.cloud import T4, Cloud, fleet, gpu, host
from tests.system.conftest import Launch

pytestmark = pytest.mark.all_in_one

GPU = {"pci_passthrough:alias": "GPU:1"}


def test_a_host_gets_other_options_before_and_under_builds(launch: Launch) -> None:
    def content(*specs: dict[str, str]) -> dict[str, object]:
        slow = {"simulate": {"delay": {"start_domain": 1.5}}, "config": {"pci": {"device_spec": list(specs)}}}
        return fleet(host("h1", [gpu(number) for number in range(6)], **slow))

    cloud = launch(content(T4), Settings(workers=2))
    flavor = cloud.flavor("gpu", GPU)
    ids = [cloud.boot(flavor, f"s{number}") for number in range(6)]
    cloud.until(lambda: "allocated" in cloud.statuses() or "claimed" in cloud.statuses(), "builds are under way")
    began = time.monotonic()
    answer = cloud.reload(content(T4, {"vendor_id": "8086", "product_id": "1572"}))
    took = time.monotonic() - began
    waiting = sum(cloud.show(server_id)["status"] == "BUILD" for server_id in ids)
    assert answer["changed"] == ["h1"]
    assert waiting, f"a reload waits for no build that waits for a worker: {took} s"
    ends = [cloud.wait(server_id, "ACTIVE", "ERROR") for server_id in ids]
    assert [server.get("fault") for server in ends] == [None] * 6
    assert cloud.statuses() == ["allocated"] * 6


def test_a_host_that_is_added_under_builds_can_be_used_before_they_end(launch: Launch) -> None:
    slow = host("h1", [gpu(number) for number in range(6)], simulate={"delay": {"start_domain": 1.5}})
    cloud = launch(fleet(slow), Settings(workers=2))
    flavor = cloud.flavor("gpu", GPU)
    ids = [cloud.boot(flavor, f"s{number}") for number in range(6)]
    cloud.until(lambda: "allocated" in cloud.statuses() or "claimed" in cloud.statuses(), "builds are under way")
    cloud.reload(fleet(slow, host("h2", [gpu(1)])))
    reported = "SELECT reported FROM compute_nodes WHERE host = 'h2' AND deleted = 0"
    cloud.until(lambda: [bool(each) for (each,) in cloud.sql(reported)] == [True], "h2 is in Placement")
    waiting = sum(cloud.show(server_id)["status"] == "BUILD" for server_id in ids)
    assert waiting > 2, "its report waits for no build that waits for one of the two workers"
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

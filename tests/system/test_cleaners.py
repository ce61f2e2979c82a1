"""Cleaners that take their time keep nobody else waiting."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jetbridge.config.settings import Settings
from tests.system.cloud import fleet, gpu, host, running

pytestmark = pytest.mark.all_in_one

BUSY = 40


def test_servers_are_built_and_the_service_stops_while_more_devices_are_cleaned_than_there_are_workers(
    tmp_path: Path,
) -> None:
    """They took all workers: nothing was built or deleted, no process gave a sign of life, and a stop waited for the cleaners."""
    cleaner = tmp_path / "wipe"
    cleaner.write_text(f"#!/bin/sh\nexec sleep {BUSY}\n")
    cleaner.chmod(0o755)
    content = fleet(host("h1", [gpu(bus) for bus in range(4)]), pci={"cleaner": str(cleaner)})
    with running(tmp_path, content, Settings(workers=2)) as cloud:
        user = cloud.boot(cloud.flavor("gpus", {"pci_passthrough:alias": "GPU:4"}))
        cloud.wait(user, "ACTIVE")
        cloud.delete(user)
        cloud.wait_gone(user)
        state = "SELECT state FROM device_cleanings"
        cloud.until(lambda: cloud.sql(state) == [("running",)] * 4, "all are cleaned", lambda: cloud.sql(state))
        cleaning_since = time.monotonic()
        cloud.wait(cloud.boot(cloud.flavor("plain", {})), "ACTIVE")
        cloud.stop()
        assert time.monotonic() - cleaning_since < BUSY - 5
        assert {found for (found,) in cloud.sql(state)} <= {"running", "cut"}
        cleaner.write_text("#!/bin/sh\n")
        cloud.start()
        cloud.until(lambda: cloud.statuses() == ["available"] * 4, "all are free", cloud.devices)
        condition = "SELECT condition FROM pci_devices WHERE deleted = 0"
        cloud.until(lambda: cloud.sql(condition) == [("ok",)] * 4, "all are clean", lambda: cloud.sql(condition))

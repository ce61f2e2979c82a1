"""Files of the state folder that can't be used: the start says which."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from jetbridge.errors import JetbridgeError
from tests.servers.external_placement import CHOSEN
from tests.system.cloud import Cloud, fleet, gpu, host
from tests.system.ledger import consumers

pytestmark = pytest.mark.all_in_one


@pytest.mark.parametrize("name", ["clouds.yaml", "jetbridge.log", "database.url"])
def test_a_folder_in_the_way_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    cloud = Cloud(tmp_path)
    cloud.write_fleet(fleet(host("h1", [gpu(1)])))
    (cloud.state / name).mkdir(parents=True)
    with pytest.raises(JetbridgeError, match=rf"{re.escape(str(cloud.state / name))} can't be written: Is a directory"):
        cloud.start()
    (cloud.state / name).rmdir()
    cloud.start()  # nothing was held
    cloud.stop()


@pytest.mark.skipif(CHOSEN in os.environ, reason="is about the embedded one")
def test_placements_database_that_is_none_is_named_and_can_be_moved_away(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    cloud.write_fleet(fleet(host("h1", [gpu(1)])))
    cloud.start()
    server_id = cloud.boot(cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server_id, "ACTIVE")
    cloud.stop()
    database = cloud.state / "placement.sqlite3"
    assert not list(cloud.state.glob("placement.sqlite3-*")), "the file alone is all of it, and can be replaced"
    database.write_bytes(b"garbage" * 1000)
    with pytest.raises(JetbridgeError, match=rf"{re.escape(str(database))}: file is not a database.*move it away"):
        cloud.start()
    database.rename(tmp_path / "away")
    cloud.start()
    try:
        cloud.reported()
        cloud.update_resources("h1")
        cloud.until(lambda: consumers(cloud) == {server_id}, "the server has its allocation back")
    finally:
        cloud.stop()

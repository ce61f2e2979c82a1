"""The database server restarts or crashes while servers are built and deleted: nobody notices more than a pause."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import DatabaseServers
from tests.servers.databases import SERVERS
from tests.system.cloud import fleet, gpu, host
from tests.system.conftest import Launch
from tests.system.test_boot_races import check_journals

SERVERS_WANTED = 20
DEVICES = 10


@pytest.mark.parametrize("database", SERVERS, indirect=True)
@pytest.mark.parametrize(
    "crash", [pytest.param(False, id="restart", marks=pytest.mark.at_length), pytest.param(True, id="crash")]
)
def test_boots_and_deletes_go_on_when_the_database_server_comes_back(
    request: pytest.FixtureRequest, launch: Launch, database_server: DatabaseServers, crash: bool
) -> None:
    server = database_server(request.node.callspec.params["database"])
    hosts = [host(f"h{number}", [gpu(bus) for bus in range(1, 6)]) for number in range(2)]
    cloud = launch(fleet(*hosts))
    flavor = cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"})
    happened = threading.Semaphore(0)

    def boot(number: int) -> str:
        server_id = cloud.boot(flavor, f"s{number}")
        happened.release()
        return server_id

    def delete(server_id: str) -> None:
        cloud.delete(server_id)
        happened.release()

    def restart_in_the_middle() -> None:
        for _ in range(5):
            assert happened.acquire(timeout=60)
        server.restart(crash=crash)

    with ThreadPoolExecutor(SERVERS_WANTED) as pool:
        boots = [pool.submit(boot, number) for number in range(SERVERS_WANTED)]
        restart_in_the_middle()
        ids = [each.result(120) for each in boots]
        ended = list(pool.map(lambda server_id: cloud.wait(server_id, "ACTIVE", "ERROR"), ids))
        assert sorted(each["status"] for each in ended) == ["ACTIVE"] * DEVICES + ["ERROR"] * DEVICES
        for each in ended:
            if each["status"] == "ERROR":
                assert "No valid host" in each["fault"]["message"]
        assert cloud.statuses() == ["allocated"] * DEVICES

        while happened.acquire(blocking=False):
            pass
        deletes = [pool.submit(delete, server_id) for server_id in ids]
        restart_in_the_middle()
        for each in deletes:
            each.result(120)
        list(pool.map(cloud.wait_gone, ids))
    cloud.until(lambda: cloud.statuses() == ["available"] * DEVICES, "all devices are free", cloud.devices)
    assert [cloud.domains(f"h{number}") for number in range(2)] == [{}, {}]
    check_journals(cloud)

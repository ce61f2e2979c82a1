"""Many boots at once: nobody is refused while a device is free, and no device is given twice."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system.cloud import Cloud, fleet, gpu, host
from tests.system.conftest import Launch, on_every_database_at_length


def boot_at_once(cloud: Cloud, flavor: str, count: int) -> list[dict[str, object]]:
    with ThreadPoolExecutor(count) as pool:
        ids = list(pool.map(lambda number: cloud.boot(flavor, f"s{number}"), range(count)))
        return list(pool.map(lambda server_id: cloud.wait(server_id, "ACTIVE", "ERROR"), ids))


def delete_all(cloud: Cloud, servers: list[dict[str, object]]) -> None:
    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(lambda server: cloud.delete(str(server["id"])), servers))
        list(pool.map(lambda server: cloud.wait_gone(str(server["id"])), servers))


@on_every_database_at_length
def test_eight_boots_at_once_on_eight_free_gpus_are_eight_active_time_and_again(
    launch: Launch, database: str | None, request: pytest.FixtureRequest
) -> None:
    cloud = launch(fleet(host("gpu1", [gpu(bus) for bus in range(0x10, 0x18)])))
    flavor = cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"})
    for _ in range(20 if database is None and request.config.getoption("--long") else 5):
        servers = boot_at_once(cloud, flavor, 8)
        assert [server["status"] for server in servers] == ["ACTIVE"] * 8
        assert cloud.statuses() == ["allocated"] * 8
        assert all(len(cloud.owned(str(server["id"]))) == 1 for server in servers)
        delete_all(cloud, servers)
        assert cloud.statuses() == ["available"] * 8
        assert cloud.domains("gpu1") == {}


@on_every_database_at_length
def test_forty_boots_at_once_on_ten_devices_of_three_hosts_are_ten_active(launch: Launch) -> None:
    hosts = [
        host("h1", [gpu(bus) for bus in range(5)]),
        host("h2", [gpu(1), gpu(2), gpu(3)]),
        host("h3", [gpu(1), gpu(2)]),
    ]
    cloud = launch(fleet(*hosts))
    flavor = cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"})
    servers = boot_at_once(cloud, flavor, 40)
    active = [server for server in servers if server["status"] == "ACTIVE"]
    assert len(active) == 10
    assert cloud.statuses() == ["allocated"] * 10
    for server in servers:
        if server["status"] == "ERROR":
            fault = server["fault"]
            assert isinstance(fault, dict)
            assert fault["code"] == 500
            assert "No valid host" in fault["message"]
            assert cloud.owned(str(server["id"])) == []
    check_journals(cloud)
    delete_all(cloud, servers)
    assert cloud.statuses() == ["available"] * 10


def check_journals(cloud: Cloud) -> None:
    """Ownership over time, as the hypervisors saw it: nobody got a device that another domain held, and none had to refuse."""
    journals = list((cloud.state / "sim").glob("*/journal.jsonl"))
    assert journals
    for path in journals:
        holders: dict[str, str] = {}
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            assert entry.get("ok", True), entry
            for address in entry.get("devices", ()) if entry["call"] == "give" else ():
                assert address not in holders, entry
                holders[address] = entry["domain"]
            for address in entry.get("devices", ()) if entry["call"] == "take-back" else ():
                assert holders.pop(address) == entry["domain"], entry

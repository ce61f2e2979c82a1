"""200 servers at once against 100 devices on 20 hosts: nobody is refused while a device is free, nobody gets what another has."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import DatabaseServers
from tests.servers.databases import SERVERS
from tests.servers.rabbitmq import RabbitNode
from tests.system.cloud import fleet, gpu, host
from tests.system.conftest import ALL_IN_ONE, SEPARATE, SQLITE, Launch
from tests.system.invariants import Journals, check_always, check_at_rest, holdings
from tests.system.ledger import check_allocations, providers

WANTED, HOSTS, DEVICES_PER_HOST = 200, 20, 5
GIVEN = HOSTS * DEVICES_PER_HOST
CLIENTS = 50

DEPLOYMENTS = [(ALL_IN_ONE, kind) for kind in (SQLITE, *SERVERS)] + [(SEPARATE, kind) for kind in SERVERS]
RESTARTS = [(SEPARATE, kind, what) for kind in SERVERS for what in ("rabbitmq", "database")]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("deployment", "database"), DEPLOYMENTS, indirect=True)
def test_200_servers_at_once_on_100_devices_are_100_active_and_100_told_why(launch: Launch) -> None:
    ended = load(launch, lambda: None)
    assert sorted(server["status"] for server in ended) == ["ACTIVE"] * GIVEN + ["ERROR"] * (WANTED - GIVEN)
    for server in ended:
        if server["status"] == "ERROR":
            assert "No valid host" in server["fault"]["message"], server["fault"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("deployment", "database", "what"), RESTARTS, indirect=["deployment", "database"])
def test_a_restart_in_the_middle_of_200_boots_changes_nothing(
    request: pytest.FixtureRequest, launch: Launch, database_server: DatabaseServers, rabbit: RabbitNode, what: str
) -> None:
    kind = request.node.callspec.params["database"]

    def restart() -> None:
        rabbit.restart() if what == "rabbitmq" else database_server(kind).restart()

    ended = load(launch, restart)
    assert [server["status"] for server in ended].count("ACTIVE") == GIVEN
    for server in ended:
        assert server["status"] == "ACTIVE" or server["fault"]["message"], server


def load(launch: Launch, in_the_middle: Callable[[], None]) -> list[dict[str, Any]]:
    """How all servers end. ``in_the_middle`` is done once builds are under way; everything else is checked here, over time by the
    hypervisors' journals, and at the end that everything is given back, in Placement as well."""
    hosts = [host(f"h{number:02}", [gpu(bus) for bus in range(1, DEVICES_PER_HOST + 1)]) for number in range(HOSTS)]
    cloud = launch(fleet(*hosts))
    cloud.deadline = 600.0
    cloud.client.timeout = 600.0
    journals = Journals(cloud)
    flavor = cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"})
    before, providers_before = holdings(cloud), providers(cloud)
    with ThreadPoolExecutor(CLIENTS) as pool:
        booting = [pool.submit(cloud.boot, flavor, f"s{number}") for number in range(WANTED)]
        cloud.until(lambda: set(cloud.statuses()) & {"claimed", "allocated"}, "builds are under way")
        in_the_middle()
        ids = [each.result() for each in booting]
        for _ in range(5):  # while they are built
            check_always(cloud)
            journals.check()
        ended = list(pool.map(lambda server_id: cloud.wait(server_id, "ACTIVE", "ERROR"), ids))
        for server in ended:
            assert len(cloud.owned(server["id"])) == (server["status"] == "ACTIVE")
        assert cloud.statuses() == ["allocated"] * GIVEN
        check_at_rest(cloud)
        journals.check()
        assert journals.given == GIVEN, "no guest was started in vain"
        assert sum(len(journals.holders(f"h{number:02}")) for number in range(HOSTS)) == GIVEN
        check_allocations(cloud, [server["id"] for server in ended if server["status"] == "ACTIVE"])
        list(pool.map(cloud.delete, ids))
        check_always(cloud)
        list(pool.map(cloud.wait_gone, ids))
    cloud.until(lambda: cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)], "all builds ended")
    check_at_rest(cloud)
    journals.check()
    assert holdings(cloud) == before
    check_allocations(cloud, ())
    assert providers(cloud) == providers_before
    assert not any(journals.holders(f"h{number:02}") for number in range(HOSTS))
    return ended

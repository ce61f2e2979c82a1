"""Many boots at once on one Placement, ours or another's on a database server: one owner per device, nothing left behind.

Another's runs with its own defaults, under which it gives one device to several: the host's claim decides then, and what the losers
were given is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jetbridge.config.settings import Settings
from tests.conftest import DatabaseServers
from tests.servers.databases import SERVERS
from tests.servers.external_placement import ExternalPlacement
from tests.system.cloud import Cloud, gpu, host
from tests.system.conftest import ALL_IN_ONE, SEPARATE, Launch
from tests.system.ledger import allocation, check_allocations
from tests.system.test_boot_races import boot_at_once
from tests.system.test_placement_boot import in_placement

EMBEDDED = "embedded"

External = Callable[[str], ExternalPlacement]


@pytest.fixture
def external(database_server: DatabaseServers, tmp_path: Path) -> Iterator[External]:
    """``external("postgresql")``: a Placement on a database of its own."""
    with ExitStack() as stack:

        def start(kind: str) -> ExternalPlacement:
            made = ExternalPlacement(database_server(kind).new_database(), tmp_path / "external-placement.log")
            stack.callback(made.stop)
            return made

        yield start


def settings_of(placement: str, external: External) -> Settings:
    return Settings() if placement == EMBEDDED else Settings(placement_endpoint_override=external(placement).url)


def settled(cloud: Cloud, servers: list[dict[str, object]]) -> list[str]:
    """The servers that are ACTIVE; only they have anything, and what they have is what they own."""
    active = [str(server["id"]) for server in servers if server["status"] == "ACTIVE"]
    check_allocations(cloud, active)
    for server in active:
        held = {name for name in allocation(cloud, server) if "_" in name}
        node = cloud.show(server)["OS-EXT-SRV-ATTR:host"]
        assert held == {f"{node}_{address.upper()}" for address in cloud.owned(server)}
    return active


@pytest.mark.parametrize("placement", [EMBEDDED, *SERVERS])
@pytest.mark.parametrize("deployment", [ALL_IN_ONE], indirect=True)
def test_eight_at_once_get_eight_devices_and_for_the_last_one_there_is_one_winner(
    launch: Launch, external: External, placement: str
) -> None:
    devices = [gpu(0x30 + number) for number in range(8)]
    cloud = launch(in_placement(host("gpu1", devices)), settings_of(placement, external))
    flavor = cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"})
    servers = boot_at_once(cloud, flavor, 8)
    assert [server["status"] for server in servers] == ["ACTIVE"] * 8
    assert len(settled(cloud, servers)) == 8
    cloud.delete(str(servers[0]["id"]))
    cloud.wait_gone(str(servers[0]["id"]))
    racers = boot_at_once(cloud, flavor, 4)
    assert sum(server["status"] == "ACTIVE" for server in racers) == 1
    assert all("No valid host" in str(server["fault"]) for server in racers if server["status"] == "ERROR")
    settled(cloud, [*servers[1:], *racers])


@pytest.mark.parametrize("placement", [EMBEDDED, "postgresql"])
@pytest.mark.parametrize("deployment", [SEPARATE], indirect=True)
def test_two_schedulers_race_for_the_last_devices(launch: Launch, external: External, placement: str) -> None:
    hosts = [host("h1", [gpu(1), gpu(2)]), host("h2", [gpu(1)])]
    cloud = launch(in_placement(*hosts), settings_of(placement, external))
    flavor = cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"})
    servers = boot_at_once(cloud, flavor, 8)
    assert len(settled(cloud, servers)) == 3
    assert cloud.statuses() == ["allocated"] * 3


@pytest.mark.parametrize("deployment", [ALL_IN_ONE], indirect=True)
def test_a_placement_that_is_away_fails_builds_cleanly_and_hinders_no_delete(
    launch: Launch, external: External
) -> None:
    placement = external("postgresql")
    cloud = launch(in_placement(host("gpu1", [gpu(1), gpu(2)])), Settings(placement_endpoint_override=placement.url))
    flavor = cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"})
    before = cloud.boot(flavor, "before")
    cloud.wait(before, "ACTIVE")
    placement.stop()
    refused = cloud.boot(flavor, "refused")
    assert "Placement at" in cloud.wait(refused, "ERROR")["fault"]["message"]
    cloud.delete(before)
    cloud.wait_gone(before)
    assert cloud.statuses() == ["available"] * 2
    placement.start()
    cloud.update_resources("gpu1")
    settled(cloud, [])
    after = cloud.boot(flavor, "after")
    cloud.wait(after, "ACTIVE")
    settled(cloud, [cloud.show(after)])

"""The scheduler's service beside the real Placement."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from jetbridge.config.settings import Settings
from jetbridge.db import compute_nodes
from jetbridge.errors import NoValidHost, PlacementUnavailable
from jetbridge.journey.seams import Seams
from jetbridge.model.events import SeamEvent
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.session import Endpoint, placement_adapter
from jetbridge.placement.transport import PATIENCE_SECONDS, Transport
from jetbridge.scheduler.manager import SchedulerManager
from jetbridge.scheduler.snapshot import SnapshotCache
from tests.contract.placement.conftest import Ledger
from tests.unit.scheduler.build import CONTEXT, Cloud, request, spec

TOGETHER_SECONDS = 30.0
"""How long the one waits for the other: only where they can't meet."""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.database.close()


def reported(cloud: Cloud, ledger: Ledger, name: str, gpus: int) -> None:
    node = cloud.host(name, gpus=gpus)
    root = ledger.client.create_provider(node.uuid, name)
    sizes = {"VCPU": {"total": 64}, "MEMORY_MB": {"total": 65536}, "DISK_GB": {"total": 1000}}
    ledger.client.set_inventories(root.uuid, root.generation, sizes)
    cloud.database.write(partial(compute_nodes.set_reported, compute_node_id=node.id))


def transport_of(ledger: Ledger, told: Callable[[SeamEvent], None] = lambda event: None) -> Transport:
    """Has no patience with a Placement that is away."""
    adapter = placement_adapter(Settings(), Endpoint(ledger.server.url, ledger.server.own_token))
    ticks = count(0, 1 + int(PATIENCE_SECONDS))
    return Transport(adapter, Seams(events=told), monotonic=lambda: float(next(ticks)), pause=lambda seconds: None)


def scheduler_of(cloud: Cloud, transport: Transport) -> SchedulerManager:
    snapshot = SnapshotCache(cloud.database, service_down_time=60, with_pools=True, now=lambda: cloud.now)
    return SchedulerManager(
        cloud.database,
        Settings(),
        placement=PlacementClient(transport),
        snapshot=snapshot,
        installed={},
        rng=random.Random(1),
    )


def test_two_ask_placement_at_the_same_time_and_choose_beside_each_other(cloud: Cloud, ledger: Ledger) -> None:
    """Each host has one device, and neither has claimed yet."""
    for name in ("h1", "h2"):
        reported(cloud, ledger, name, gpus=1)
    meeting = threading.Barrier(2)

    def told(event: SeamEvent) -> None:
        if event.what.startswith("PUT /allocations"):
            meeting.wait(TOGETHER_SECONDS)

    scheduler = scheduler_of(cloud, transport_of(ledger, told))
    uuids = [cloud.server(spec(request())) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        chosen = list(pool.map(lambda uuid: scheduler.select(CONTEXT, [uuid])[0][0].host, uuids))
    assert not meeting.broken
    assert sorted(chosen) == ["h1", "h2"]


def test_who_failed_on_the_way_is_expected_nowhere(cloud: Cloud, ledger: Ledger) -> None:
    reported(cloud, ledger, "h1", gpus=1)
    reported(cloud, ledger, "h2", gpus=2)
    transport = transport_of(ledger)
    scheduler = scheduler_of(cloud, transport)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        transport.adapter.endpoint_override = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(PlacementUnavailable):
        scheduler.select(CONTEXT, [cloud.server(spec(request()))])
    transport.adapter.endpoint_override = ledger.server.url
    # h1 has the fewest devices that suffice, and nobody is on the way there.
    (hosts,) = scheduler.select(CONTEXT, [cloud.server(spec(request()))])
    assert hosts[0].host == "h1"


def test_of_several_servers_all_or_none_are_expected(cloud: Cloud, ledger: Ledger) -> None:
    reported(cloud, ledger, "h1", gpus=1)
    reported(cloud, ledger, "h2", gpus=2)
    scheduler = scheduler_of(cloud, transport_of(ledger))
    with pytest.raises(NoValidHost):
        scheduler.select(CONTEXT, [cloud.server(spec(request(2)), index) for index in range(2)])
    (hosts,) = scheduler.select(CONTEXT, [cloud.server(spec(request(2)))])
    assert hosts[0].host == "h2"

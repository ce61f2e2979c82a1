"""Claim, allocate, free: all or nothing, and never to two."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from jetbridge.compute import tracker
from jetbridge.compute.inventory import take_inventory
from jetbridge.db import compute_nodes, servers
from jetbridge.errors import BuildAborted, ClaimLost, ComputeResourcesUnavailable, JetbridgeError
from jetbridge.model.flavor import Flavor
from jetbridge.model.server import Server, TaskState
from jetbridge.numa.topology import GuestCell, GuestTopology
from jetbridge.pci.device import Status
from jetbridge.pci.request import NumaPolicy
from tests.unit.compute.conftest import CONTEXT, T4, Bench, MakeBench, reopened, request

GPUS = [{"address": f"0000:{bus:02x}:00.0", **T4} for bus in (1, 2, 3)]
NUMA = {"cells": 2, "cpus_per_cell": 4, "memory_mb_per_cell": 4096, "sockets": 2}


def claim(bench: Bench, server: Server) -> tracker.Claim:
    return tracker.claim(bench.host, CONTEXT, server.uuid, bench.selection())


def statuses(bench: Bench) -> list[str]:
    return sorted(str(device.status) for device in bench.devices().values())


def test_a_claim_gives_devices_and_places_the_server(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    wanted = request(2)
    server = host.server(wanted)
    claimed = claim(host, server)
    assert len(claimed.devices) == 2
    assert {(device.status, device.instance_uuid, device.request_id) for device in claimed.devices} == {
        (Status.CLAIMED, server.uuid, wanted.request_id)
    }
    placed = host.get(server)
    assert (placed.host, placed.compute_node_id) == ("h1", host.node_id)
    assert statuses(host) == ["available", "claimed", "claimed"]


def test_the_whole_way_and_back(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    server = host.server(request())
    claim(host, server)
    tracker.allocate(host.host, CONTEXT, server.uuid, host.node_id)
    tracker.allocate(host.host, CONTEXT, server.uuid, host.node_id)  # twice is once
    assert statuses(host) == ["allocated", "available", "available"]
    tracker.leave(host.host, CONTEXT, server.uuid, host.node_id)
    assert statuses(host) == ["available"] * 3
    with host.host.database.read() as conn:
        assert servers.get_many(conn, [server.uuid]) == {}
        assert compute_nodes.usage(conn) == {}


def test_a_released_claim_leaves_everything_as_it_was(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    before = host.devices()
    server = host.server(request(3))
    claim(host, server)
    tracker.release(host.host, CONTEXT, server.uuid, host.node_id)
    tracker.release(host.host, CONTEXT, server.uuid, host.node_id)
    assert host.devices() == before
    assert host.get(server).compute_node_id is None


def test_what_does_not_fit_though_nothing_moved_is_the_hosts_failure_f3(bench: MakeBench) -> None:
    host = bench(devices=GPUS[:1])
    server = host.server(request(), request())
    with pytest.raises(ComputeResourcesUnavailable) as refused:
        claim(host, server)
    assert not isinstance(refused.value, ClaimLost)
    assert statuses(host) == ["available"]
    assert host.get(server).compute_node_id is None


def test_what_does_not_fit_any_more_is_a_lost_claim(bench: MakeBench) -> None:
    host = bench(devices=GPUS[:1])
    first, second = host.server(request()), host.server(request())
    seen = host.selection()
    tracker.claim(host.host, CONTEXT, first.uuid, seen)
    with pytest.raises(ClaimLost):
        tracker.claim(host.host, CONTEXT, second.uuid, seen)
    assert [device.instance_uuid for device in host.devices().values()] == [first.uuid]


def test_what_still_fits_is_claimed_though_the_host_moved(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    seen = host.selection()
    for _ in range(3):
        tracker.claim(host.host, CONTEXT, host.server(request()).uuid, seen)
    assert statuses(host) == ["claimed"] * 3


def test_thirty_claims_at_once_on_three_devices_give_each_once(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    waiting = [host.server(request()) for _ in range(30)]
    seen = host.selection()

    def attempt(server: Server) -> str:
        try:
            [device] = tracker.claim(host.host, CONTEXT, server.uuid, seen).devices
        except ClaimLost:
            return "lost"
        return device.address

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(attempt, waiting))
    assert sorted(results) == [*(gpu["address"] for gpu in GPUS), *["lost"] * 27]


@pytest.mark.parametrize(
    ("flavor", "word"),
    [
        (Flavor(1, "f", "f", vcpus=9, memory_mb=512, root_gb=1), "VCPUs"),
        (Flavor(1, "f", "f", vcpus=1, memory_mb=8000, root_gb=1), "memory"),
        (Flavor(1, "f", "f", vcpus=1, memory_mb=512, root_gb=2000), "disk"),
    ],
)
def test_cpus_memory_and_disk_are_checked_with_the_devices(bench: MakeBench, flavor: Flavor, word: str) -> None:
    host = bench(devices=GPUS)
    with pytest.raises(ComputeResourcesUnavailable, match=word):
        claim(host, host.server(request(), flavor=flavor))
    assert statuses(host) == ["available"] * 3


def test_a_server_that_is_being_deleted_or_gone_is_not_placed(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    deleting, gone, placed = (host.server(request()) for _ in range(3))
    host.host.database.write(lambda conn: servers.set_task_state(conn, deleting.uuid, None, TaskState.DELETING))
    host.host.database.write(lambda conn: servers.soft_delete(conn, gone.uuid))
    claim(host, placed)
    for server in (deleting, gone, placed):
        with pytest.raises(BuildAborted):
            claim(host, server)
    assert statuses(host) == ["available", "available", "claimed"]


def test_nothing_is_claimed_while_the_devices_are_unknown_f24(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    host.change({"devices": GPUS, "simulate": {"discovery": "half"}})
    take_inventory(host.host)
    with pytest.raises(ComputeResourcesUnavailable, match="unknown"):
        claim(host, host.server(request()))
    claim(host, host.server())  # a guest without devices needs none


def test_the_fitted_topology_is_kept_and_given_back(bench: MakeBench) -> None:
    host = bench(devices=[{**GPUS[0], "numa_node": 1}], vcpus=None, memory_mb=None, numa=NUMA)
    guest = GuestTopology((GuestCell(0, frozenset({0}), frozenset(), 512),))
    server = host.server(request(policy=NumaPolicy.REQUIRED), numa_topology=guest)
    claimed = claim(host, server)
    assert claimed.topology is not None
    assert [cell.host_cell for cell in claimed.topology.cells] == [1]
    with host.host.database.read() as conn:
        assert servers.numa_topology(conn, server.uuid) == claimed.topology
    tracker.release(host.host, CONTEXT, server.uuid, host.node_id)
    with host.host.database.read() as conn:
        assert servers.numa_topology(conn, server.uuid) == guest


def test_a_guest_topology_on_a_host_without_cells_is_refused(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    guest = GuestTopology((GuestCell(0, frozenset({0}), frozenset(), 512),))
    server = host.server(numa_topology=guest)
    with pytest.raises(ComputeResourcesUnavailable, match="NUMA"):
        claim(host, server)


def test_a_device_without_node_in_a_guest_with_topology_is_warned_about(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    host = bench(devices=GPUS[:1], vcpus=None, memory_mb=None, numa=NUMA)
    guest = GuestTopology((GuestCell(0, frozenset({0}), frozenset(), 512),))
    with caplog.at_level(logging.WARNING):
        claim(host, host.server(request(), numa_topology=guest))
    assert "0000:01:00.0" in caplog.text
    assert "has no NUMA node" in caplog.text


def test_the_life_of_one_record_whose_device_spec_line_goes_and_comes(bench: MakeBench) -> None:
    host = bench(devices=GPUS[:1])
    [first] = host.devices().values()
    server = host.server(request())
    claim(host, server)
    tracker.allocate(host.host, CONTEXT, server.uuid, host.node_id)
    without = reopened(host, [])
    take_inventory(without.host, starting=True)
    [held] = without.devices().values()
    assert (held.status, held.instance_uuid) == (Status.ALLOCATED, server.uuid)
    tracker.leave(without.host, CONTEXT, server.uuid, host.node_id)
    assert without.devices() == {}
    again = reopened(host, [T4])
    take_inventory(again.host, starting=True)
    [second] = again.devices().values()
    assert second.status is Status.AVAILABLE
    assert second.uuid != first.uuid


def test_a_change_reported_while_in_use_applies_when_the_device_is_free_f27(bench: MakeBench) -> None:
    host = bench(devices=[{**GPUS[0], "numa_node": 0}], vcpus=None, memory_mb=None, numa=NUMA)
    server = host.server(request())
    claim(host, server)
    host.change({"devices": [{**GPUS[0], "numa_node": 1}], "vcpus": None, "memory_mb": None, "numa": NUMA})
    take_inventory(host.host)
    assert [device.numa_node for device in host.devices().values()] == [0]
    tracker.release(host.host, CONTEXT, server.uuid, host.node_id)
    [device] = host.devices().values()
    assert (device.numa_node, device.stale_update, device.status) == (1, None, Status.AVAILABLE)


def test_a_stray_that_changed_hands_since_it_was_seen_is_left_alone_f23(bench: MakeBench) -> None:
    host = bench(devices=GPUS[:1])
    first, second = host.server(request()), host.server(request())
    claim(host, first)
    seen = list(host.devices().values())
    tracker.release(host.host, CONTEXT, first.uuid, host.node_id)
    claim(host, second)
    assert tracker.free_strays(host.host, host.node_id, seen) == ()
    assert [device.instance_uuid for device in host.devices().values()] == [second.uuid]


def test_a_pf_and_its_vfs_are_never_both_given_f12(bench: MakeBench) -> None:
    card = {"address": "0000:01:00.0", **T4, "pf": {"vfs": 2, "vf_product_id": "1eb9"}}
    host = bench(devices=[card], device_spec=[{"vendor_id": "10de"}])
    pf, vf = request(dev_type="type-PF"), request(product_id="1eb9", dev_type="type-VF")
    with pytest.raises(JetbridgeError):
        claim(host, host.server(pf, vf))
    claim(host, host.server(vf))
    with pytest.raises(ComputeResourcesUnavailable):
        claim(host, host.server(request(dev_type="type-PF")))

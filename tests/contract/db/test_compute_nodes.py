from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from jetbridge.db import compute_nodes, networks, servers
from jetbridge.db.compute_nodes import Usage
from jetbridge.db.engine import Database
from jetbridge.db.networks import HostNetwork
from jetbridge.errors import HostNotFound
from jetbridge.numa.topology import CpuPolicy, GuestCell, GuestTopology, HostCell, HostTopology, PagePool
from tests.contract.db.rows import NOW, flavor, node, server

HARDWARE = HostTopology(
    (
        HostCell(
            0,
            cpus=frozenset({0, 1}),
            pinnable=frozenset({2, 3}),
            memory_mb=4096,
            siblings=(frozenset({0, 2}), frozenset({1, 3})),
            socket=0,
            pages=(PagePool(4, 1000), PagePool(2048, 10, reserved=1)),
        ),
    )
)
FITTED = GuestTopology(
    (
        GuestCell(
            0, frozenset(), frozenset({0, 1}), 1024, "large", host_cell=0, page_size_kb=2048, pinning={0: 2, 1: 3}
        ),
    ),
    cpu_policy=CpuPolicy.DEDICATED,
)


def upserted(database: Database, value: compute_nodes.ComputeNode) -> compute_nodes.ComputeNode:
    return database.write(lambda conn: compute_nodes.upsert(conn, value, now=NOW))


def reading(database: Database, fn: Callable[..., Any], *arguments: Any) -> Any:
    with database.read() as conn:
        return fn(conn, *arguments)


def test_a_host_comes_back_as_it_was_stored(database: Database) -> None:
    full = node(
        numa=HARDWARE, cpu_info="{}", probe_error="libvirt went away", host_ip="192.0.2.1", reserved_memory_mb=512
    )
    stored = upserted(database, full)
    assert stored == replace(full, id=stored.id, generation=1, created_at=NOW)
    for found in (
        reading(database, compute_nodes.get, stored.id),
        reading(database, compute_nodes.of_host, "gpu001"),
        reading(database, compute_nodes.by_uuid, full.uuid),
        *reading(database, compute_nodes.listing),
    ):
        assert found == stored


def test_the_generation_moves_only_when_the_host_changed(database: Database) -> None:
    first = upserted(database, node())
    again = upserted(database, node())  # another UUID: the stored one stays
    assert again == first
    changed = upserted(database, node(numa=HARDWARE))
    assert (changed.id, changed.uuid, changed.generation) == (first.id, first.uuid, 2)


def test_lock_answers_the_new_generation(database: Database) -> None:
    host = upserted(database, node()).id
    assert database.write(lambda conn: compute_nodes.lock(conn, host)) == 2
    assert reading(database, compute_nodes.generations) == {host: 2}


def test_locks_of_many_threads_are_all_counted(database: Database) -> None:
    host = upserted(database, node()).id
    with ThreadPoolExecutor(16) as pool:
        seen = list(pool.map(lambda _: database.write(lambda conn: compute_nodes.lock(conn, host)), range(100)))
    assert sorted(seen) == list(range(2, 102))


def test_a_host_that_is_gone_can_not_be_locked(database: Database) -> None:
    host = upserted(database, node()).id
    database.write(lambda conn: compute_nodes.delete(conn, host))
    with pytest.raises(HostNotFound, match=r"host gpu001 could"):  # people know no numbers of rows
        database.write(lambda conn: compute_nodes.lock(conn, host))
    with pytest.raises(HostNotFound, match=r"host gpu001 could"):
        reading(database, compute_nodes.get, host)
    with pytest.raises(HostNotFound, match="gpu001"):
        reading(database, compute_nodes.of_host, "gpu001")
    assert reading(database, compute_nodes.generations) == {}
    assert upserted(database, node()).id != host  # the name is free again


def test_usage_is_summed_over_placed_servers(database: Database) -> None:
    one, two, empty = (upserted(database, node(name)).id for name in ("a", "b", "c"))

    def fill(conn: Any) -> None:
        big = flavor("big", vcpus=8, memory_mb=100, root_gb=5, ephemeral_gb=2, swap_mb=1025)
        for at, size in ((one, flavor()), (one, big), (two, flavor())):
            guest = servers.create(conn, server(flavor=size))
            servers.place(conn, guest.uuid, "h", "h", at)
        deleted = servers.create(conn, server())
        servers.place(conn, deleted.uuid, "h", "h", one)
        servers.soft_delete(conn, deleted.uuid)
        undone = servers.create(conn, server())
        servers.place(conn, undone.uuid, "h", "h", one)
        servers.unplace(conn, undone.uuid)
        servers.create(conn, server())  # not placed yet

    database.write(fill)
    expected = {one: Usage(10, 2148, 19, 2), two: Usage(2, 2048, 10, 1)}
    statements: list[str] = []
    with database.statement_hook(statements.append):
        assert reading(database, compute_nodes.usage) == expected
    assert len(statements) == 1
    assert reading(database, compute_nodes.usage, [two, empty]) == {two: expected[two]}
    assert reading(database, compute_nodes.usage, range(1, 1000)) == expected


def test_guest_topologies_are_those_of_placed_servers(database: Database) -> None:
    host = upserted(database, node()).id

    def fill(conn: Any) -> str:
        guest = servers.create(conn, server(), numa_topology=replace(FITTED, cells=()))
        servers.place(conn, guest.uuid, "h", "h", host)
        servers.set_numa_topology(conn, guest.uuid, FITTED)
        servers.create(conn, server(), numa_topology=FITTED)
        without = servers.create(conn, server())
        servers.place(conn, without.uuid, "h", "h", host)
        return guest.uuid

    uuid = database.write(fill)
    assert reading(database, compute_nodes.guest_topologies) == {host: (FITTED,)}
    assert reading(database, compute_nodes.guest_topologies_by_server, [host]) == {host: {uuid: FITTED}}
    assert reading(database, compute_nodes.guest_topologies, [host + 1]) == {}


def test_a_failed_probe_is_recorded_and_forgotten(database: Database) -> None:
    host = upserted(database, node()).id
    for error in ("half an answer", None):
        database.write(lambda conn, error=error: compute_nodes.set_probe_error(conn, host, error))
        assert reading(database, compute_nodes.get, host).probe_error == error


def test_networks_of_hosts(database: Database) -> None:
    one, two = (upserted(database, node(name)).id for name in ("a", "b"))
    default, bridge = HostNetwork("default", "network"), HostNetwork("br0", "bridge")
    replaced = [
        database.write(lambda conn, at=at, these=these: networks.replace(conn, at, these))
        for at, these in ((one, [default, bridge]), (two, [default]), (one, [bridge, default]), (two, []))
    ]
    assert replaced == [True, True, False, True]
    assert reading(database, networks.by_node) == {one: frozenset({"default", "br0"})}
    assert reading(database, networks.by_node, [two]) == {}
    assert reading(database, networks.of_node, one) == (bridge, default)
    assert reading(database, networks.listing) == (bridge, default)
    database.write(lambda conn: compute_nodes.delete(conn, one))
    assert reading(database, networks.listing) == ()

"""Hosts as values, and how few statements it takes to have them."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from jetbridge.db import compute_nodes, servers, services
from jetbridge.db.connection import Connection
from jetbridge.model.host_state import HostState
from jetbridge.numa.fit import ServerFit, fit_server
from jetbridge.scheduler.snapshot import SnapshotCache
from tests.unit.numa.build import guest, host, host_cell
from tests.unit.scheduler.build import Cloud, pool, spec


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def cache(cloud: Cloud, *, with_pools: bool = True, clock: Callable[[], float] | None = None) -> SnapshotCache:
    return SnapshotCache(
        cloud.database, service_down_time=60, with_pools=with_pools, monotonic=clock or Clock(), now=lambda: cloud.now
    )


def statements(cloud: Cloud, hosts: Callable[[], tuple[HostState, ...]]) -> tuple[list[str], tuple[HostState, ...]]:
    """What ran, by the first table each statement reads."""
    seen: list[str] = []
    with cloud.database.statement_hook(lambda text: seen.append(text.split("FROM")[1].split()[0])):
        states = hosts()
    return seen, states


def test_a_host_is_what_its_rows_say(cloud: Cloud) -> None:
    node = cloud.host("h1", gpus=2, network_names=["default", "lab"], numa=host(host_cell(0, shared=4)))
    asked = spec(numa_topology=guest(shared=2))
    uuid = cloud.server(asked)
    cloud.place(uuid, node)
    fitted = fit_server(node.numa, asked.numa_topology, (), ())
    assert isinstance(fitted, ServerFit)
    cloud.database.write(lambda conn: servers.set_numa_topology(conn, uuid, fitted.guest))
    (state,) = cache(cloud).hosts()
    assert (state.host, state.compute_node_id, state.enabled, state.alive) == ("h1", node.id, True, True)
    assert (state.vcpus_used, state.memory_mb_used, state.disk_gb_used, state.running_servers) == (2, 2048, 10, 1)
    assert (state.reserved_memory_mb, state.cpu_allocation_ratio, state.disk_gb) == (512, 4.0, 1000)
    assert state.networks == {"default", "lab"}
    assert state.pools == (pool(address="0000:01:00.0"), pool(address="0000:02:00.0"))
    assert state.numa is not None
    assert state.numa.cells[0].cpu_usage == 2


def test_nothing_moved_two_statements_and_the_same_values(cloud: Cloud) -> None:
    for number in range(3):
        cloud.host(f"h{number}", gpus=1)
    snapshot = cache(cloud)
    first = snapshot.hosts()
    seen, second = statements(cloud, snapshot.hosts)
    assert seen == ["compute_nodes", "services"]
    assert all(one is two for one, two in zip(first, second, strict=True))


def test_one_grouped_statement_each_however_many_hosts_moved(cloud: Cloud) -> None:
    nodes = [cloud.host(f"h{number}", gpus=2) for number in range(6)]
    snapshot = cache(cloud)
    first, _ = statements(cloud, snapshot.hosts)
    moved = ["compute_nodes", "services", "instances", "instances", "host_networks", "pci_devices", "compute_nodes"]
    assert sorted(first) == sorted([*moved, "services"])  # who they are, at the first look
    for node in nodes[:4]:
        cloud.take_devices(node, "somebody", 1)
    again, states = statements(cloud, snapshot.hosts)
    assert sorted(again) == sorted(moved)
    assert [len(state.pools or ()) for state in states] == [1, 1, 1, 1, 2, 2]


def test_pools_are_not_read_when_no_filter_needs_them(cloud: Cloud) -> None:
    node = cloud.host("h1", gpus=2)
    snapshot = cache(cloud, with_pools=False)
    seen, (state,) = statements(cloud, snapshot.hosts)
    cloud.take_devices(node, "somebody", 1)
    again, _ = statements(cloud, snapshot.hosts)
    assert "pci_devices" not in seen + again
    assert state.pools is None


def test_only_what_moved_is_made_anew(cloud: Cloud) -> None:
    first, second = cloud.host("h1", gpus=1), cloud.host("h2", gpus=1)
    snapshot = cache(cloud)
    before = snapshot.hosts()
    cloud.take_devices(second, "somebody", 1)
    after = snapshot.hosts()
    assert after[0] is before[0]
    assert after[0].compute_node_id == first.id
    assert (before[1].pools, after[1].pools) == ((pool(address="0000:01:00.0"),), ())


def test_hosts_that_come_and_go(cloud: Cloud) -> None:
    node = cloud.host("h1")
    snapshot = cache(cloud)
    assert [state.host for state in snapshot.hosts()] == ["h1"]
    cloud.host("h2")
    assert [state.host for state in snapshot.hosts()] == ["h1", "h2"]
    cloud.database.write(lambda conn: compute_nodes.delete(conn, node.id))
    assert [state.host for state in snapshot.hosts()] == ["h2"]


def test_a_service_is_judged_at_every_look_although_no_generation_moves(cloud: Cloud) -> None:
    cloud.host("h1")
    snapshot = cache(cloud)
    cloud.service("h1", disabled=True, reason="maintenance")
    (state,) = snapshot.hosts()
    assert (state.enabled, state.disabled_reason) == (False, "maintenance")
    cloud.service("h1", disabled=False)
    assert snapshot.hosts()[0].enabled
    cloud.later(61)
    assert not snapshot.hosts()[0].alive
    cloud.database.write(lambda conn: services.heartbeat(conn, "this process", now=cloud.now))
    assert snapshot.hosts()[0].alive


def test_a_host_without_an_agent_takes_nobody(cloud: Cloud) -> None:
    cloud.host("h1")
    cloud.database.write(lambda conn: services.delete(conn, services.find(conn, "h1", "nova-compute").uuid))
    (state,) = cache(cloud).hosts()
    assert (state.enabled, state.alive) == (False, False)


def test_edits_by_hand_are_seen_after_the_full_reload(cloud: Cloud) -> None:
    """Somebody changes a device with SQL and moves no generation."""
    cloud.host("h1", gpus=1)
    clock = Clock()
    snapshot = cache(cloud, clock=clock)
    snapshot.hosts()

    def by_hand(conn: Connection) -> None:
        conn.execute(sa.text("UPDATE pci_devices SET status = 'unavailable'"))

    cloud.database.write(by_hand)
    clock.seconds = 299.0
    assert len(snapshot.hosts()[0].pools or ()) == 1
    clock.seconds = 300.0
    assert snapshot.hosts()[0].pools == ()


def test_hosts_that_look_alike_hold_one_look_and_one_topology(cloud: Cloud) -> None:
    for number in range(3):
        cloud.host(f"h{number}", gpus=2, numa=host(host_cell(0, shared=4)))
    node = cloud.host("other", gpus=2, numa=host(host_cell(0, shared=4)))
    snapshot = cache(cloud)
    *alike, other = snapshot.hosts()
    cloud.take_devices(node, "somebody", 1)
    changed = snapshot.hosts()[-1]
    assert len({id(state.look) for state in [*alike, other]}) == 1
    assert len({id(state.numa) for state in [*alike, changed]}) == 1
    assert changed.look != alike[0].look
    cloud.take_devices(cloud.host("late", gpus=2, numa=host(host_cell(0, shared=4))), "somebody", 1)
    assert snapshot.hosts()[-1].look is changed.look


def test_a_host_is_found_by_its_name_and_all_generations_in_an_index_of_their_own(cloud: Cloud) -> None:
    """With the wrong order of columns SQLite walked through all hosts to find one by name."""
    cloud.host("h1")

    def plan(query: str) -> str:
        with cloud.database.read() as conn:
            return str(conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all())

    assert "(host=?)" in plan("SELECT * FROM compute_nodes WHERE host = 'h1' AND deleted = 0 ORDER BY id")
    assert "COVERING INDEX ix_compute_nodes_generation" in plan(
        "SELECT id, generation FROM compute_nodes WHERE deleted = 0"
    )

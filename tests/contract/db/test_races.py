"""Transactions at the same time: each either sees what the other did, or runs again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from jetbridge.db import compute_nodes, flavors, pci_devices, servers
from jetbridge.db.compute_nodes import Usage
from jetbridge.db.engine import Database
from jetbridge.errors import Conflict
from jetbridge.model.server import TaskState
from jetbridge.pci.device import Status
from tests.contract.db.rows import device, flavor, node, server

SECONDS = 30


def test_writers_that_lock_two_hosts_in_opposite_order_both_succeed(database: Database) -> None:
    hosts = [database.write(lambda conn, name=name: compute_nodes.upsert(conn, node(name))).id for name in "ab"]
    one_each = threading.Barrier(2)
    runs: list[int] = []

    def both(order: list[int]) -> None:
        first_run = True

        def fn(conn: Any) -> None:
            nonlocal first_run
            runs.append(1)
            compute_nodes.lock(conn, order[0])
            if first_run and not database.is_sqlite:  # where there is one writer at a time nobody can be met
                first_run = False
                one_each.wait(SECONDS)
            compute_nodes.lock(conn, order[1])

        database.write(fn)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(both, hosts), pool.submit(both, hosts[::-1])]:
            done.result(SECONDS)
    with database.read() as conn:
        assert compute_nodes.generations(conn) == dict.fromkeys(hosts, 3)
    assert len(runs) == (2 if database.is_sqlite else 3)  # one of the two was the victim, once


def test_after_the_lock_everything_of_its_former_holder_is_seen(database: Database) -> None:
    """A snapshot taken before the lock would show a device as free that was given away meanwhile."""
    host = database.write(lambda conn: compute_nodes.upsert(conn, node())).id
    [free] = database.write(lambda conn: pci_devices.save(conn, [device(host)]))
    holding, asking = threading.Event(), threading.Event()

    def take(name: str) -> bool:
        def fn(conn: Any) -> bool:
            if name == "second" and not database.is_sqlite:
                pci_devices.of_host(conn, host)  # reads before it locks, as it shouldn't
                asking.set()
            compute_nodes.lock(conn, host)
            if name == "first":
                holding.set()
                if not database.is_sqlite:
                    assert asking.wait(SECONDS)
            [found] = pci_devices.of_host(conn, host)
            if found.instance_uuid is not None:
                return False
            guest = servers.create(conn, server(name))
            servers.place(conn, guest.uuid, "gpu001", "gpu001", host)
            pci_devices.save(conn, [_given(found, guest.uuid)])
            return compute_nodes.usage(conn, [host])[host] == Usage(2, 2048, 10, 1)

        return database.write(fn)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(take, "first")
        assert holding.wait(SECONDS)
        second = pool.submit(take, "second")
        assert (first.result(SECONDS), second.result(SECONDS)) == (True, False)
    assert free.instance_uuid is None


def _given(found: Any, uuid: str) -> Any:
    return replace(found, status=Status.CLAIMED, instance_uuid=uuid, request_id="r1")


def test_a_reader_sees_one_state_throughout(database: Database) -> None:
    host = database.write(lambda conn: compute_nodes.upsert(conn, node())).id
    with database.read() as conn:
        assert compute_nodes.generations(conn) == {host: 1}
        with ThreadPoolExecutor(1) as pool:
            pool.submit(database.write, lambda other: compute_nodes.lock(other, host)).result(SECONDS)
        assert compute_nodes.get(conn, host).generation == 1
    with database.read() as conn:
        assert compute_nodes.get(conn, host).generation == 2


def test_of_two_that_make_the_same_name_at_once_one_is_told_so(database: Database) -> None:
    together = threading.Barrier(2)

    def make(number: int) -> str:
        first_run = True

        def fn(conn: Any) -> str:
            nonlocal first_run
            flavors.find(conn)
            if first_run and not database.is_sqlite:
                first_run = False
                together.wait(SECONDS)
            return flavors.create(conn, flavor("same", memory_mb=number)).name

        try:
            return database.write(fn)
        except Conflict:
            return "conflict"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(make, (1, 2))) == ["conflict", "same"]


def test_of_two_that_decide_by_a_server_the_second_sees_what_the_first_did(database: Database) -> None:
    """A claim and a delete: either the delete finds the host the server is on, or the claim finds the delete."""
    host = database.write(lambda conn: compute_nodes.upsert(conn, node())).id
    for _ in range(20):
        uuid = database.write(lambda conn: servers.create(conn, server())).uuid
        together = threading.Barrier(2)

        def claim(conn: Any, uuid: str = uuid) -> bool:
            compute_nodes.lock(conn, host)
            if servers.get(conn, uuid).task_state is TaskState.DELETING:
                return False
            return servers.place(conn, uuid, "gpu001", "gpu001", host)

        def delete(conn: Any, uuid: str = uuid) -> bool:
            found = servers.get(conn, uuid)
            servers.set_task_state(conn, uuid, None, TaskState.DELETING)
            return found.compute_node_id is None

        def run(fn: Any, together: threading.Barrier = together) -> bool:
            together.wait(SECONDS)
            return bool(database.write(fn))

        with ThreadPoolExecutor(2) as pool:
            claimed, found_free = pool.map(run, (claim, delete))
        assert claimed != found_free


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03"])
def test_failures_that_postgresql_says_to_repeat_are_repeated(database: Database, sqlstate: str) -> None:
    runs: list[int] = []

    def fn(conn: Any) -> None:
        flavors.create(conn, flavor("a"))
        runs.append(1)
        if len(runs) < 3:
            conn.exec_driver_sql(f"DO $$ BEGIN RAISE SQLSTATE '{sqlstate}'; END $$")

    database.write(fn)
    assert len(runs) == 3


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
def test_a_row_that_stays_locked_is_waited_for(database: Database) -> None:
    host = database.write(lambda conn: compute_nodes.upsert(conn, node())).id
    with database.engine.connect() as other:
        compute_nodes.lock(other, host)
        runs: list[int] = []

        def fn(conn: Any) -> int:
            conn.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
            runs.append(1)
            if len(runs) == 2:
                other.rollback()
            return compute_nodes.lock(conn, host)

        assert database.write(fn) == 2
        assert len(runs) == 2

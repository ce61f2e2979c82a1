from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jetbridge.db import services
from jetbridge.db.engine import Database
from jetbridge.errors import NotFound
from tests.contract.db.rows import NOW, new_id

HOSTS = ["gpu001", "gpu002", "gpu003"]


def register(database: Database, *hosts: str, owner: str = "process-1", later: int = 0) -> None:
    at = NOW + timedelta(seconds=later)
    database.write(lambda conn: services.register(conn, hosts, "nova-compute", "compute", owner, new_id, now=at))


def reading(database: Database, fn: Callable[..., Any], *arguments: Any) -> Any:
    with database.read() as conn:
        return fn(conn, *arguments)


def test_heartbeats_of_a_whole_process_are_one_statement(database: Database) -> None:
    register(database, *HOSTS)
    register(database, "gpu004", owner="process-2")
    statements: list[str] = []
    with database.statement_hook(statements.append):
        count = database.write(lambda conn: services.heartbeat(conn, "process-1", now=NOW + timedelta(seconds=61)))
    assert count == 3
    assert [text.split()[0] for text in statements if "commits" not in text] == ["UPDATE"]
    alive = {
        host: service.is_alive(NOW + timedelta(seconds=90), 60)
        for host, service in reading(database, services.computes).items()
    }
    assert alive == {"gpu001": True, "gpu002": True, "gpu003": True, "gpu004": False}


def test_a_service_is_alive_up_to_the_last_second(database: Database) -> None:
    register(database, "gpu001")
    (service,) = reading(database, services.listing)
    assert service.is_alive(NOW + timedelta(seconds=60), 60)
    assert not service.is_alive(NOW + timedelta(seconds=61), 60)


def test_a_restart_keeps_id_and_being_disabled(database: Database) -> None:
    register(database, *HOSTS[:2])
    before = reading(database, services.find, "gpu001", "nova-compute")
    database.write(lambda conn: services.set_disabled(conn, before.uuid, True, "broken fan"))
    register(database, *HOSTS, owner="process-2", later=100)
    after = reading(database, services.find, "gpu001", "nova-compute")
    assert (after.id, after.uuid, after.disabled, after.disabled_reason) == (before.id, before.uuid, True, "broken fan")
    assert (after.owner, after.last_seen_up) == ("process-2", NOW + timedelta(seconds=100))
    assert list(reading(database, services.computes)) == HOSTS


def test_enabling_takes_the_reason_away(database: Database) -> None:
    register(database, "gpu001")
    (service,) = reading(database, services.listing)
    for key in (service.id, service.uuid):
        database.write(lambda conn, key=key: services.set_disabled(conn, key, True, "why"))
        enabled = database.write(lambda conn, key=key: services.set_disabled(conn, key, False))
        assert (enabled.disabled, enabled.disabled_reason) == (False, None)


def test_forced_down_beats_heartbeats(database: Database) -> None:
    register(database, "gpu001")
    (service,) = reading(database, services.listing)
    assert not database.write(lambda conn: services.set_forced_down(conn, service.id, True)).is_alive(NOW, 60)
    assert database.write(lambda conn: services.set_forced_down(conn, service.id, False)).is_alive(NOW, 60)


def test_a_process_that_ends_is_down_at_once(database: Database) -> None:
    register(database, *HOSTS)
    database.write(lambda conn: services.withdraw(conn, "process-1", ["gpu002"]))
    assert [host for host, each in reading(database, services.computes).items() if not each.is_alive(NOW, 60)] == [
        "gpu002"
    ]
    database.write(lambda conn: services.withdraw(conn, "process-1"))
    assert not any(each.is_alive(NOW, 60) for each in reading(database, services.listing))


def test_a_deleted_service_is_gone_and_can_come_back(database: Database) -> None:
    register(database, "gpu001")
    (service,) = reading(database, services.listing)
    database.write(lambda conn: services.delete(conn, service.uuid))
    for find in (
        lambda: reading(database, services.get, service.uuid),
        lambda: reading(database, services.find, "gpu001", "nova-compute"),
        lambda: database.write(lambda conn: services.delete(conn, service.uuid)),
    ):
        with pytest.raises(NotFound):
            find()
    register(database, "gpu001")
    assert reading(database, services.find, "gpu001", "nova-compute").uuid != service.uuid


def test_services_are_listed_by_binary_and_host(database: Database) -> None:
    register(database, *HOSTS)
    database.write(lambda conn: services.register(conn, ["box"], "nova-scheduler", "scheduler", "process-1", new_id))
    with database.read() as conn:
        assert [each.host for each in services.listing(conn, binary="nova-scheduler")] == ["box"]
        assert [each.binary for each in services.listing(conn, host="gpu002")] == ["nova-compute"]


def test_a_thousand_hosts_register_in_two_statements(database: Database) -> None:
    many = [f"h{number}" for number in range(1000)]
    statements: list[str] = []
    with database.statement_hook(statements.append):
        register(database, *many)
    assert len(statements) <= 3
    assert len(reading(database, services.computes)) == 1000


def test_agents_of_some_hosts_alone(database: Database) -> None:
    register(database, "a", "b", "c")
    assert list(reading(database, lambda conn: services.computes(conn, {"b", "nobody"}))) == ["b"]
    assert reading(database, lambda conn: services.computes(conn, ())) == {}
    assert len(reading(database, lambda conn: services.computes(conn, ["c", *map(str, range(999))]))) == 1

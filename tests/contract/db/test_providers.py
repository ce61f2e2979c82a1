from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from jetbridge.db import cleanings, compute_nodes, providers
from jetbridge.db.cleanings import Cleaning
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.providers import ProviderRecord, Report
from tests.contract.db.rows import node

NOW = datetime(2026, 1, 2, 3, 4, 5, 678)
CARD = ProviderRecord(
    "11111111-0000-0000-0000-000000000001",
    7,
    "pci",
    "gpu001_0000:3B:00.0",
    generation=3,
    inventories={"CUSTOM_GPU": {"total": 1, "reserved": 1}},
    traits=frozenset({"CUSTOM_B", "CUSTOM_A"}),
)


def test_a_provider_is_kept_as_it_was_written(database: Database) -> None:
    database.write(lambda conn: providers.save(conn, [CARD], now=NOW))
    moved = replace(CARD, generation=4, traits=frozenset())
    database.write(lambda conn: providers.save(conn, [moved], now=NOW))
    with database.read() as conn:
        assert providers.of_node(conn, 7) == providers.named(conn, [CARD.name]) == [moved]
        assert providers.of_node(conn, 8) == providers.named(conn, []) == []
        assert providers.names_of(conn, [CARD.uuid, "other"]) == {CARD.uuid: CARD.name}
    database.write(lambda conn: providers.forget(conn, [CARD.uuid]))
    with database.read() as conn:
        assert providers.of_node(conn, 7) == []


def test_providers_of_a_host_that_is_gone_are_found(database: Database) -> None:
    def fill(conn: Connection) -> ProviderRecord:
        stored = compute_nodes.upsert(conn, node("gpu001"), now=NOW)
        mine = replace(CARD, compute_node_id=stored.id)
        providers.save(conn, [mine], now=NOW)
        return mine

    mine = database.write(fill)
    with database.read() as conn:
        assert providers.orphans(conn) == []
    database.write(lambda conn: compute_nodes.delete(conn, mine.compute_node_id))
    with database.read() as conn:
        assert providers.orphans(conn) == [mine]


def test_how_a_report_stands(database: Database) -> None:
    with database.read() as conn:
        assert providers.report(conn, 7) == Report()
    for stands in (Report("d1", waiting=True), Report("d2", error="Placement is away")):
        database.write(lambda conn, stands=stands: providers.save_report(conn, 7, stands, now=NOW))
        with database.read() as conn:
            assert providers.report(conn, 7) == stands
    with database.read() as conn:
        assert providers.errors(conn) == {7: "Placement is away"}
    database.write(lambda conn: providers.forget_report(conn, 7))
    with database.read() as conn:
        assert providers.errors(conn) == {}


def test_a_host_is_reported_from_then_on(database: Database) -> None:
    stored = database.write(lambda conn: compute_nodes.upsert(conn, node("gpu001"), now=NOW))
    assert not stored.reported
    database.write(lambda conn: compute_nodes.set_reported(conn, stored.id))
    with database.read() as conn:
        now = compute_nodes.get(conn, stored.id)
    assert now.reported
    assert now.generation > stored.generation  # schedulers look again
    again = database.write(lambda conn: compute_nodes.upsert(conn, replace(node("gpu001"), vcpus=99), now=NOW))
    assert again.reported


def test_the_last_cleaning_of_a_device_counts(database: Database) -> None:
    def run(address: str, reason: str | None) -> int:
        begun = Cleaning(7, address, cleanings.RUNNING, NOW, instance_uuid="s", owner="p", command="wipe")
        key = database.write(lambda conn: cleanings.start(conn, begun))

        def end(conn: Connection) -> bool:
            return cleanings.finish(
                conn,
                key,
                exit_code=0 if reason is None else 3,
                seconds=1.5,
                output="bye",
                reason=reason,
                now=NOW + timedelta(seconds=2),
            )

        assert database.write(end)
        assert not database.write(end), "it was over already"
        return key

    run("0000:17:00.0", "exit code 3")
    run("0000:17:00.0", None)
    failed = run("0000:18:00.0", "exit code 3")
    with database.read() as conn:
        found = cleanings.last_of_host(conn, 7)
        assert cleanings.last(conn, [8]) == {}
    assert {address: each.state for address, each in found.items()} == {
        "0000:17:00.0": "done",
        "0000:18:00.0": "failed",
    }
    assert found["0000:18:00.0"] == Cleaning(
        7,
        "0000:18:00.0",
        "failed",
        NOW,
        id=failed,
        instance_uuid="s",
        owner="p",
        command="wipe",
        exit_code=3,
        seconds=1.5,
        output="bye",
        reason="exit code 3",
        finished_at=NOW + timedelta(seconds=2),
    )
    assert database.write(lambda conn: cleanings.purge(conn, NOW + timedelta(days=1))) == 1
    with database.read() as conn:
        assert list(cleanings.last_of_host(conn, 7)) == ["0000:17:00.0", "0000:18:00.0"]

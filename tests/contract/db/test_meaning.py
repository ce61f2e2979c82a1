"""Values mean the same on every database: nothing is cut, rounded, folded or taken for something else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from jetbridge.db import compute_nodes, flavors, keypairs, pci_devices, servers
from jetbridge.db.batches import MOST
from jetbridge.db.engine import Database
from jetbridge.db.keypairs import KeyPair
from jetbridge.db.server_filter import ServerFilter
from jetbridge.db.types import MARIADB_COLLATION
from jetbridge.errors import NotFound
from jetbridge.pci.device import Status
from tests.contract.db.rows import NOW, device, flavor, node, server

# Different names to people and to SQLite, in the order of their bytes.
NAMES = [
    "A",
    "GPU",
    "GPu",
    "_gpu",
    "a",
    "gpu",
    "gpu ",
    "gpu-1",
    "gpu.1",
    "gpu1",
    "gpü",
    "grösse",
    "größe",
    "\N{VIDEO GAME}",
]


def test_names_are_told_apart_and_sorted_by_their_bytes(database: Database) -> None:
    assert sorted(NAMES, key=str.encode) == NAMES
    database.write(lambda conn: [flavors.create(conn, flavor(name)) for name in reversed(NAMES)])
    with database.read() as conn:
        assert [each.flavorid for each in flavors.find(conn)] == NAMES
        assert [flavors.get(conn, name).name for name in NAMES] == NAMES
        for unknown in ("gPU", "gpu  ", "gpu\t", "grosse", ""):
            with pytest.raises(NotFound):
                flavors.get(conn, unknown)


def test_keys_that_differ_by_case_are_two(database: Database) -> None:
    specs = {"hw:numa_nodes": "1", "HW:numa_nodes": "2", "hw:numa_nodes ": "3"}
    database.write(lambda conn: flavors.create(conn, flavor(extra_specs=specs)))
    made = [
        database.write(lambda conn, name=name: keypairs.create(conn, KeyPair(name, "u", "ssh", "f", "k"), now=NOW)).name
        for name in ("key", "Key")
    ]
    with database.read() as conn:
        assert flavors.get(conn, "gpu.small").extra_specs == specs
        assert sorted(each.name for each in keypairs.find(conn, "u")) == sorted(made)
        assert keypairs.find(conn, "U") == ()


def test_parts_of_names_are_found_whatever_their_case_and_signs(database: Database) -> None:
    names = ["Train_1", "train%2", "trainX3", "back\\slash", "it's"]
    database.write(lambda conn: [servers.create(conn, server(name)) for name in names])
    found = {
        wanted: sorted(each.display_name for each in find(database, name=wanted))
        for wanted in ("TRAIN", "n_", "n%", "k\\s", "'")
    }
    assert found == {
        "TRAIN": ["Train_1", "train%2", "trainX3"],
        "n_": ["Train_1"],
        "n%": ["train%2"],
        "k\\s": ["back\\slash"],
        "'": ["it's"],
    }
    assert [each.display_name for each in find(database, name_pattern="^train.[0-9]$")] == [
        "trainX3",
        "train%2",
        "Train_1",
    ]


def find(database: Database, **wanted: Any) -> tuple[Any, ...]:
    with database.read() as conn:
        return servers.find(conn, ServerFilter(**wanted))


def test_times_keep_their_microseconds(database: Database) -> None:
    at = NOW + timedelta(microseconds=123457)
    late = NOW.replace(year=9999, microsecond=999999)
    uuid = database.write(lambda conn: servers.create(conn, server(created_at=at))).uuid
    database.write(lambda conn: servers.update(conn, uuid, launched_at=late, now=at))
    [found] = find(database)
    assert (found.created_at, found.updated_at, found.launched_at) == (at, at, late)
    assert find(database, changes_since=at + timedelta(microseconds=1)) == ()
    assert len(find(database, changes_since=at)) == 1


@pytest.mark.parametrize("size", [65_535, 65_536, 1_000_000])
def test_long_texts_are_kept_whole(database: Database, size: int) -> None:
    text = "ö" + "x" * (size - 2)
    host = database.write(lambda conn: compute_nodes.upsert(conn, node(cpu_info=text))).id
    with database.read() as conn:
        assert compute_nodes.get(conn, host).cpu_info == text


def test_pools_are_told_apart_however_alike_their_tags_begin(database: Database) -> None:
    host = database.write(lambda conn: compute_nodes.upsert(conn, node())).id
    alike = "x" * 5000
    devices = [
        device(host, f"0000:{bus:02x}:00.0", pool_tags={"a": alike, "b": str(bus % 2)}, parent_addr="0000:00:01.0")
        for bus in range(8)
    ]
    database.write(lambda conn: pci_devices.save(conn, devices))
    with database.read() as conn:
        pools = pci_devices.pools(conn)[host]
    assert sorted((pool.tags["b"], pool.count) for pool in pools) == [("0", 4), ("1", 4)]


def test_lists_of_ids_may_be_long(database: Database) -> None:
    count = 2 * MOST + 1
    uuids = [f"00000000-0000-0000-0000-{number:012}" for number in range(count)]
    database.write(lambda conn: [servers.create(conn, server(uuid=uuid)) for uuid in uuids])
    with database.read() as conn:
        assert list(servers.get_many(conn, uuids)) == uuids
        assert len(find(database, uuids=frozenset(uuids))) == count
        assert servers.waiting(conn, uuids) == frozenset(uuids)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"], indirect=True)
def test_a_reader_can_not_change_anything(database: Database) -> None:
    with pytest.raises(sa.exc.DBAPIError, match=r"(?i)read.only"), database.read() as conn:
        flavors.create(conn, flavor())


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
def test_every_column_of_mariadb_has_the_type_that_means_the_same(database: Database) -> None:
    query = (
        "SELECT table_name, column_name, data_type, collation_name, datetime_precision FROM information_schema.columns"
        " WHERE table_schema = DATABASE()"
    )
    with database.read() as conn:
        columns = conn.exec_driver_sql(query).all()
        engines = conn.exec_driver_sql(
            "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema = DATABASE()"
        ).all()
    assert len(columns) > 100
    assert {row.collation_name for row in columns} == {MARIADB_COLLATION, None}
    assert {row.datetime_precision for row in columns if row.data_type == "datetime"} == {6}
    assert "text" not in {row.data_type for row in columns}
    assert [engine for (engine,) in engines] == ["InnoDB"]


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_every_column_of_postgresql_sorts_by_its_bytes(database: Database) -> None:
    query = (
        "SELECT collation_name FROM information_schema.columns WHERE table_schema = 'public' AND data_type IN"
        " ('text', 'character varying') AND table_name <> 'alembic_version'"
    )
    with database.read() as conn:
        collations = conn.exec_driver_sql(query).scalars().all()
    assert len(collations) > 100
    assert set(collations) == {"C"}


def test_a_device_may_get_an_address_that_was_deleted_before(database: Database) -> None:
    host = database.write(lambda conn: compute_nodes.upsert(conn, node())).id
    for _ in range(3):
        [stored] = database.write(lambda conn: pci_devices.save(conn, [device(host)]))
        gone = replace(stored, status=Status.REMOVED)
        database.write(lambda conn, gone=gone: pci_devices.save(conn, [gone]))
    with database.read() as conn:
        assert pci_devices.of_host(conn, host) == []

from __future__ import annotations

from typing import Any

import pytest

from jetbridge.db import flavors
from jetbridge.db.engine import Database
from jetbridge.db.paging import Page
from jetbridge.errors import Conflict, Invalid, NotFound
from tests.contract.db.rows import flavor

PROPERTIES = {"pci_passthrough:alias": "GPU:1", "hw:numa_nodes": "2"}


def created(database: Database, *wanted: Any) -> None:
    database.write(lambda conn: [flavors.create(conn, each) for each in wanted])


def names(database: Database, **arguments: Any) -> list[str]:
    with database.read() as conn:
        return [each.name for each in flavors.find(conn, **arguments)]


def test_a_flavor_comes_back_as_it_was_created(database: Database) -> None:
    full = flavor(
        flavorid="42",
        ephemeral_gb=3,
        swap_mb=512,
        rxtx_factor=2.0,
        is_public=False,
        description="for training",
        extra_specs=PROPERTIES,
    )
    stored = database.write(lambda conn: flavors.create(conn, full))
    with database.read() as conn:
        assert flavors.get(conn, "42") == stored
        assert flavors.find(conn, is_public=None) == (stored,)


def test_name_and_id_are_taken_once(database: Database) -> None:
    created(database, flavor("a", flavorid="1"))
    with pytest.raises(Conflict, match="ID 1"):
        created(database, flavor("b", flavorid="1"))
    with pytest.raises(Conflict, match="name a"):
        created(database, flavor("a", flavorid="2"))
    assert names(database) == ["a"]


def test_extra_specs_are_set_one_by_one(database: Database) -> None:
    created(database, flavor("a", extra_specs={"x": "1", "y": "2"}))
    database.write(lambda conn: flavors.set_extra_specs(conn, "a", {"y": "3", "z": "4"}))
    database.write(lambda conn: flavors.delete_extra_spec(conn, "a", "x"))
    with database.read() as conn:
        assert flavors.get(conn, "a").extra_specs == {"y": "3", "z": "4"}
    with pytest.raises(NotFound, match="key x"):
        database.write(lambda conn: flavors.delete_extra_spec(conn, "a", "x"))


def test_a_private_flavor_is_seen_by_its_projects(database: Database) -> None:
    created(database, flavor("open"), flavor("closed", is_public=False))
    database.write(lambda conn: flavors.add_project(conn, "closed", "p1"))
    assert names(database, is_public=None, project_id="p1") == ["closed", "open"]
    assert names(database, is_public=None, project_id="p2") == ["open"]
    assert names(database, is_public=False) == ["closed"]
    assert names(database) == ["open"]
    with database.read() as conn:
        assert flavors.projects(conn, "closed") == ("p1",)
        with pytest.raises(NotFound):
            flavors.get(conn, "closed", project_id="p2")
    with pytest.raises(Conflict):
        database.write(lambda conn: flavors.add_project(conn, "closed", "p1"))
    database.write(lambda conn: flavors.remove_project(conn, "closed", "p1"))
    with pytest.raises(NotFound):
        database.write(lambda conn: flavors.remove_project(conn, "closed", "p1"))


def test_a_deleted_flavor_leaves_nothing(database: Database) -> None:
    created(database, flavor("a", extra_specs=PROPERTIES, is_public=False))
    database.write(lambda conn: flavors.add_project(conn, "a", "p1"))
    database.write(lambda conn: flavors.delete(conn, "a"))
    with pytest.raises(NotFound):
        database.write(lambda conn: flavors.delete(conn, "a"))
    with database.read() as conn:
        for table in ("flavors", "flavor_extra_specs", "flavor_projects"):
            assert conn.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0


def test_lists_are_cut_sorted_and_filtered(database: Database) -> None:
    sizes = [("c", 1024, 5), ("a", 2048, 1), ("b", 1024, 9)]
    created(database, *(flavor(name, memory_mb=memory, root_gb=disk) for name, memory, disk in sizes))
    assert names(database) == ["a", "b", "c"]
    assert names(database, page=Page(limit=1, marker="a")) == ["b"]
    assert names(database, page=Page(sort=(("memory_mb", "asc"), ("name", "desc")))) == ["c", "b", "a"]
    assert names(database, page=Page(marker="b", sort=(("memory_mb", "asc"), ("name", "desc")))) == ["a"]
    assert names(database, min_memory_mb=1025) == ["a"]
    assert names(database, min_root_gb=5) == ["b", "c"]
    assert names(database, page=Page(limit=0)) == []
    with pytest.raises(Invalid, match="marker 'x'"):
        names(database, page=Page(marker="x"))
    with pytest.raises(Invalid, match="sort key 'x'"):
        names(database, page=Page(sort=(("x", "asc"),)))


def test_the_description_can_be_changed_and_taken_away(database: Database) -> None:
    created(database, flavor("a", description="old"))
    for text in ("new", None):
        changed = database.write(lambda conn, text=text: flavors.set_description(conn, "a", text))
        assert changed.description == text
        with database.read() as conn:
            assert flavors.get(conn, "a").description == text

from __future__ import annotations

from pathlib import Path

import pytest

from jetbridge.db import flavors
from jetbridge.db.engine import Database
from jetbridge.db.sql import prepared, run_query
from jetbridge.errors import DatabaseUnusable, InvalidQuery
from jetbridge.model.flavor import Flavor


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/jetbridge.sqlite3"
    database = Database(url)
    database.upgrade()
    for name in ("nova.small", "it's; big"):
        database.write(lambda conn, name=name: flavors.create(conn, Flavor(0, name, name, 1, 512, 1)))
    database.close()
    return url


@pytest.mark.parametrize(
    ("query", "run"),
    [
        ("SELECT 1", "SELECT 1"),
        ("  select 1 ; ", "select 1"),
        ("SELECT spec FROM nova_api.request_specs", "SELECT spec FROM request_specs"),
        ("SELECT nova.flavors.name FROM nova.flavors", "SELECT flavors.name FROM flavors"),
        ("SELECT * FROM NOVA.flavors,Nova_Api . instances", "SELECT * FROM flavors,instances"),
        ('SELECT * FROM "nova"."flavors"', 'SELECT * FROM "flavors"'),
        ("SELECT * FROM `nova`.`flavors`, nova.`instances`", "SELECT * FROM `flavors`, `instances`"),
        ("SELECT nova.* FROM flavors nova", "SELECT * FROM flavors nova"),
        # Not prefixes: text, other names, parts of names.
        ("SELECT 'nova.flavors', x.nova.y FROM supernova.z", "SELECT 'nova.flavors', x.nova.y FROM supernova.z"),
        ("SELECT 1 -- nova.flavors; DELETE", "SELECT 1 -- nova.flavors; DELETE"),
        ("/* one; */ SELECT 'a;b' /* nova.x */", "/* one; */ SELECT 'a;b' /* nova.x */"),
        ("SELECT 'it''s nova.x' FROM nova.flavors", "SELECT 'it''s nova.x' FROM flavors"),
    ],
)
def test_prefixes_are_dropped_outside_literals(query: str, run: str) -> None:
    assert prepared(query) == run


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "empty"),
        (" ; -- nothing", "empty"),
        ("DELETE FROM flavors", "begins with 'DELETE'; only SELECT, WITH, EXPLAIN"),
        ("'SELECT' 1", "begins with"),
        ("PRAGMA journal_mode = DELETE", "begins with 'PRAGMA'"),
        ("ATTACH 'x' AS nova", "begins with 'ATTACH'"),
        ("SELECT 1; DROP TABLE flavors", "more than one statement"),
        ("SELECT 1;; SELECT 2", "more than one statement"),
        ("SELECT 'open", "' at character 8 is never closed"),
        ('SELECT "open', "never closed"),
        ("SELECT 1 /* open", "never closed"),
        ("SELECT * FROM flavors INTO OUTFILE '/tmp/x'", "INTO OUTFILE writes a file"),
    ],
)
def test_anything_but_one_reading_statement_is_refused(query: str, said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        prepared(query)


def test_columns_and_rows(url: str) -> None:
    result = run_query(url, "SELECT name, vcpus AS cpus FROM nova.flavors WHERE name LIKE 'nova.%';")
    assert result.columns == ("name", "cpus")
    assert result.rows == (("nova.small", 1),)
    assert run_query(url, "SELECT count(*) FROM flavors WHERE name = 'it''s; big'").rows == ((1,),)
    assert run_query(url, "SELECT name FROM flavors WHERE 0").columns == ("name",)
    assert run_query(url, "WITH x AS (SELECT 7 AS n) SELECT n FROM x").rows == ((7,),)
    assert run_query(url, "EXPLAIN QUERY PLAN SELECT * FROM pci_devices").rows


@pytest.mark.parametrize(
    "query",
    [
        "WITH x AS (SELECT 1) DELETE FROM flavors",
        "WITH x AS (SELECT 1) INSERT INTO tags SELECT 'a', 'b' FROM x",
        "WITH x AS (SELECT 1) UPDATE flavors SET vcpus = 9",
    ],
)
def test_f26_a_query_changes_nothing_whatever_it_says(url: str, query: str) -> None:
    file = Path(url.removeprefix("sqlite:///"))
    before = file.read_bytes()
    with pytest.raises(InvalidQuery, match="never changes anything"):
        run_query(url, query)
    run_query(url, "SELECT * FROM flavors")
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM nova.pci_device", "no such table: pci_device; did you mean pci_devices"),
        ("SELECT * FROM zzz", "the tables are .*builds, commits, compute_nodes"),
        ("SELECT adress FROM pci_devices", "no such column: adress; did you mean address"),
        (
            "SELECT adress FROM nova.PCI_devices p",
            "did you mean address.*; the columns of pci_devices are id, .*, address, ",
        ),
        ("SELECT zzzz FROM commits", "no such column: zzzz; the columns of commits are"),
        ("SELECT FROM", "syntax error"),
        ("SELECT load_extension('x')", "not authorized|no such function"),
    ],
)
def test_a_wrong_query_is_told_what_is_wrong(url: str, query: str, said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        run_query(url, query)


def test_queries_run_while_the_service_writes(url: str) -> None:
    database = Database(url)

    def fill(conn: object) -> tuple[tuple[object, ...], ...]:
        flavors.create(conn, Flavor(0, "new", "new", 1, 512, 1))  # type: ignore[arg-type]
        return run_query(url, "SELECT count(*) FROM flavors").rows

    assert database.write(fill) == ((2,),)
    assert run_query(url, "SELECT count(*) FROM flavors").rows == ((3,),)
    database.close()


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusable, match="does not exist"):
        run_query(f"sqlite:///{tmp_path}/none.sqlite3", "SELECT 1")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DatabaseUnusable, match="not a database URL"):
        run_query("none", "SELECT 1")


def test_a_file_that_is_no_database_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite3").write_text("just some text, long enough to be looked at " * 50)
    with pytest.raises(DatabaseUnusable, match="not a database"):
        run_query(f"sqlite:///{tmp_path}/x.sqlite3", "SELECT 1")

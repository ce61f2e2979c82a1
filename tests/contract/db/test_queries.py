"""What ``jetbridge sql`` runs and refuses, on every database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetbridge.db import flavors
from jetbridge.db.engine import Database
from jetbridge.db.sql import run_query
from jetbridge.errors import DatabaseUnusable, InvalidQuery
from tests.contract.db.rows import flavor
from tests.servers.databases import DatabaseServer

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def url(database: Database) -> Iterator[str]:
    """Holds the flavor "100% gpu", and no query may change that."""
    database.write(lambda conn: flavors.create(conn, flavor("100% gpu")))
    yield database.url.render_as_string(hide_password=False)
    with database.read() as conn:
        assert [each.name for each in flavors.find(conn)] == ["100% gpu"]


def test_queries_by_hand(url: str) -> None:
    result = run_query(url, "SELECT name, vcpus FROM nova.flavors WHERE name LIKE '100%' -- a % in a literal")
    assert (result.columns, result.rows) == (("name", "vcpus"), (("100% gpu", 2),))
    joined = "SELECT f.name FROM nova_api.flavors f LEFT JOIN nova.instances i ON i.flavorid = f.flavorid WHERE i.id IS NULL;"
    assert run_query(url, joined).rows == (("100% gpu",),)
    assert run_query(url, "WITH x AS (SELECT 7 AS n) SELECT n FROM x").rows == ((7,),)
    assert run_query(url, "EXPLAIN SELECT * FROM pci_devices").rows
    assert run_query(url, "SELECT ':name %s %(x)s ?' AS x").rows == ((":name %s %(x)s ?",),)


def test_the_queries_of_the_documents_run(url: str) -> None:
    texts = [(DOCS / name).read_text() for name in ("reference.md", "configure.md")]
    queries = [query for text in texts for query in re.findall(r'^    jetbridge sql "([^"]+)"', text, re.MULTILINE)]
    assert len(queries) >= 2
    for query in queries:
        run_query(url, query)


CHANGES = {
    "sqlite": ["WITH x AS (SELECT 1) DELETE FROM flavors"],
    "postgresql": [
        "WITH x AS (DELETE FROM flavors RETURNING 1) SELECT * FROM x",
        "EXPLAIN ANALYZE DELETE FROM flavors",
        "SELECT set_config('transaction_read_only', 'off', false), nextval('flavors_id_seq')",
        "SELECT * INTO copied FROM flavors",
        r"SELECT E'\'; COMMIT; DELETE FROM flavors; --'",
        "SELECT U&'\\'; COMMIT; DELETE FROM flavors; --'",
    ],
    "mariadb": [
        "SELECT 1 /*! INTO OUTFILE '/tmp/x' */",
        "SELECT 1 /*M! INTO OUTFILE '/tmp/x' */",
        "SELECT NEXTVAL(nothing)",
        r"SELECT '\'; COMMIT; DELETE FROM flavors; -- '",
    ],
}


@pytest.mark.parametrize(
    ("kind", "query"), [(kind, query) for kind in CHANGES for query in CHANGES[kind]], indirect=["kind"]
)
def test_f26_a_query_changes_nothing_whatever_it_says(url: str, query: str) -> None:
    with pytest.raises(InvalidQuery):
        run_query(url, query)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM nova.pci_device", "pci_device.*did you mean pci_devices"),
        ("SELECT * FROM zzz", "accelerators, attach_handles, builds, commits"),
        ("SELECT adress FROM nova.pci_devices", "adress.*did you mean address"),
        ("SELECT p.adress FROM nova.pci_devices p", "adress.*did you mean address"),
        ("SELECT FROM WHERE", "syntax"),
    ],
)
def test_a_wrong_query_is_told_what_is_wrong(url: str, query: str, said: str) -> None:
    with pytest.raises(InvalidQuery, match=said) as caught:
        run_query(url, query)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"], indirect=True)
def test_a_server_that_is_away_is_told_at_once(database: Database, server: DatabaseServer) -> None:
    url: Any = database.url.render_as_string(hide_password=False)
    server.stop()
    try:
        with pytest.raises(DatabaseUnusable, match=r"^Database \w+://jetbridge:\*\*\*@"):
            run_query(url, "SELECT 1")
    finally:
        server.start()

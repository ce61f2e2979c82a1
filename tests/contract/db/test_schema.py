from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from jetbridge.db import flavors
from jetbridge.db.engine import Database
from jetbridge.db.migrations.head import HEAD, is_at_head
from jetbridge.db.migrations.runner import _scripts
from jetbridge.db.schema import metadata
from jetbridge.errors import DatabaseUnusable
from tests.contract.db.rows import flavor


@pytest.fixture
def empty(empty_url: str) -> Iterator[Database]:
    """A database without any table."""
    opened = Database(empty_url)
    yield opened
    opened.close()


def ran(database: Database, *statements: str) -> None:
    with database.engine.begin() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement)


def contents(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    with database.read() as conn:
        names = sa.inspect(conn).get_table_names()
        return {name: [tuple(row) for row in conn.execute(sa.text(f"SELECT * FROM {name}"))] for name in sorted(names)}


def test_the_revisions_lead_to_the_tables_of_the_program(database: Database) -> None:
    with database.read() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_an_upgraded_database_needs_nothing_more(database: Database) -> None:
    assert is_at_head(database), "it is asked without Alembic"
    assert database.upgrade() is False
    database.check_schema()


def test_the_last_revision_is_the_one_that_starts_look_for() -> None:
    assert _scripts().get_current_head() == HEAD


def test_an_error_takes_everything_back(database: Database) -> None:
    def fill(conn: Any) -> None:
        flavors.create(conn, flavor("a"))
        raise LookupError("half-way")

    with pytest.raises(LookupError):
        database.write(fill)
    with database.read() as conn:
        assert flavors.find(conn) == ()


def test_an_empty_database_is_told_to_be_upgraded(empty: Database) -> None:
    with pytest.raises(DatabaseUnusable, match="no tables yet; run: jetbridge db upgrade"):
        empty.check_schema()


def test_upgrades_at_once_make_one_schema(empty_url: str) -> None:
    together = threading.Barrier(3)

    def upgrade(_: int) -> bool:
        database = Database(empty_url)
        together.wait(30)
        try:
            return database.upgrade()
        finally:
            database.close()

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(upgrade, range(3))) == [False, False, True]


VERSION = "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"
FOREIGN = {
    "tables of its own": (["CREATE TABLE wp_posts (id INTEGER)"], r"tables of another program \(wp_posts\)"),
    "names like ours": (
        ["CREATE TABLE flavors (id INTEGER)", "INSERT INTO flavors VALUES (7)", "CREATE TABLE cells (id INTEGER)"],
        "another program",
    ),
    "a revision of its own": (
        ["CREATE TABLE instances (id INTEGER)", VERSION, "INSERT INTO alembic_version VALUES ('16f1fbcab42b')"],
        "revision 16f1fbcab42b is not known",
    ),
    "a revision named like ours": (
        ["CREATE TABLE recipes (id INTEGER)", VERSION, "INSERT INTO alembic_version VALUES ('0001')"],
        "another program",
    ),
    "a revision named like our last": (
        ["CREATE TABLE recipes (id INTEGER)", VERSION, f"INSERT INTO alembic_version VALUES ('{HEAD}')"],
        "another program",
    ),
}


@pytest.mark.parametrize(("statements", "said"), FOREIGN.values(), ids=FOREIGN)
def test_the_tables_of_another_program_are_left_alone(empty: Database, statements: Sequence[str], said: str) -> None:
    ran(empty, *statements)
    before = contents(empty)
    for act in (empty.upgrade, empty.check_schema):
        with pytest.raises(DatabaseUnusable, match=said):
            act()
    assert contents(empty) == before


def test_a_database_at_two_revisions_is_left_alone(database: Database) -> None:
    """Two copies were mixed, or somebody wrote by hand."""
    ran(database, "INSERT INTO alembic_version VALUES ('0009')")
    try:
        for act in (database.upgrade, database.check_schema):
            with pytest.raises(DatabaseUnusable, match=rf"several revisions at once \(0009, {HEAD} in alembic_version"):
                act()
    finally:
        ran(database, "DELETE FROM alembic_version WHERE version_num = '0009'")


def test_a_first_upgrade_that_was_interrupted_is_told_from_another_programs_tables(empty: Database) -> None:
    ran(empty, VERSION, "CREATE TABLE builds (id INTEGER)")
    with pytest.raises(DatabaseUnusable, match=r"first upgrade was interrupted.*drop and create"):
        empty.upgrade()


def test_nobody_is_told_to_drop_a_database_that_holds_something(database: Database) -> None:
    database.write(lambda conn: flavors.create(conn, flavor("a")))
    ran(database, "DELETE FROM alembic_version")
    for act in (database.upgrade, database.check_schema):
        with pytest.raises(DatabaseUnusable, match="holds data of Jetbridge, but alembic_version has no revision"):
            act()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"], indirect=True)
def test_rights_that_are_missing_are_told(empty: Database, server: Any) -> None:
    name = empty.url.database
    if empty.kind == "postgresql":
        server.admin(f"ALTER DATABASE {name} OWNER TO admin")
    else:
        server.admin(
            f"REVOKE ALL ON {name}.* FROM jetbridge@localhost", f"GRANT SELECT ON {name}.* TO jetbridge@localhost"
        )
    with pytest.raises(DatabaseUnusable, match=r"its tables can't be changed: .*denied") as caught:
        empty.upgrade()
    assert "secret" not in str(caught.value)
    assert contents(empty) == {}


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"], indirect=True)
def test_a_server_that_does_not_answer_at_the_start_is_told_at_once(empty: Database, server: Any) -> None:
    server.stop()
    try:
        for act in (empty.upgrade, empty.check_schema):
            with pytest.raises(DatabaseUnusable, match=r"jetbridge:\*\*\*@.*(No such file|refused|failed)"):
                act()
    finally:
        server.start()

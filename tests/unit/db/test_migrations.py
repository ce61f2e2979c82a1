from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jetbridge.db.engine import Database
from jetbridge.errors import DatabaseUnusable


def opened(path: Path) -> Database:
    return Database(f"sqlite:///{path}/x.sqlite3")


def foreign(path: Path, *statements: str) -> Database:
    with sqlite3.connect(path / "x.sqlite3") as connection:
        for statement in statements:
            connection.execute(statement)
    return opened(path)


def test_an_upgrade_is_done_once(tmp_path: Path) -> None:
    database = opened(tmp_path)
    assert database.upgrade() is True
    assert database.upgrade() is False
    database.check_schema()


def test_upgrades_at_once_make_one_schema(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def upgrade(_: int) -> bool:
        database = opened(tmp_path)
        together.wait(10)
        return database.upgrade()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(upgrade, range(4))) == [False, False, False, True]
    opened(tmp_path).check_schema()


def test_an_empty_database_is_told_to_be_upgraded(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusable, match="no tables yet; run: jetbridge db upgrade"):
        opened(tmp_path).check_schema()


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["CREATE TABLE wp_posts (id INTEGER)"], r"tables of another program \(wp_posts\)"),
        # A table of ours by name alone: somebody else's flavors.
        (["CREATE TABLE flavors (id INTEGER)", "CREATE TABLE cells (id INTEGER)"], "another program"),
        (
            [
                "CREATE TABLE instances (id INTEGER)",
                "CREATE TABLE alembic_version (version_num VARCHAR(32))",
                "INSERT INTO alembic_version VALUES ('16f1fbcab42b')",
            ],
            "revision 16f1fbcab42b is not known",
        ),
        (
            [
                "CREATE TABLE recipes (id INTEGER)",
                "CREATE TABLE alembic_version (version_num VARCHAR(32))",
                "INSERT INTO alembic_version VALUES ('0001')",
            ],
            "another program",
        ),
    ],
)
def test_the_tables_of_another_program_are_left_alone(tmp_path: Path, statements: list[str], said: str) -> None:
    database = foreign(tmp_path, *statements)
    before = (tmp_path / "x.sqlite3").read_bytes()
    for act in (database.upgrade, database.check_schema):
        with pytest.raises(DatabaseUnusable, match=said):
            act()
    database.close()
    assert (tmp_path / "x.sqlite3").read_bytes() == before  # not even its journal mode


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite3").write_text("just some text, long enough to be looked at " * 50)
    with pytest.raises(DatabaseUnusable, match="not a database"):
        opened(tmp_path).upgrade()


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ("read_timeout=soon", "invalid literal"),
        ("nonsense=1", "nonsense"),
        ("connect_timeout=0", "connect_timeout should be"),
        ("ssl_ca=/no/such.pem", "No such file"),
    ],
)
def test_parameters_that_the_driver_refuses_are_told_with_the_url(parameter: str, said: str) -> None:
    with pytest.raises(DatabaseUnusable, match=rf"mariadb://user:\*\*\*@.*its URL can't be used: .*{said}"):
        Database(f"mariadb://user:secret@127.0.0.1:1/x?{parameter}").check_schema()

"""Every test here runs on each kind of database: the same calls, the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jetbridge.db.engine import Database
from tests.conftest import DatabaseServers
from tests.schema import empty, new_database
from tests.servers.databases import SERVERS, DatabaseServer

SQLITE = "sqlite"
DATABASES = [SQLITE, *SERVERS]


@pytest.fixture(scope="session")
def migrated_url(database_server: DatabaseServers) -> Callable[[str], str]:
    """The URL of one database for all tests of a kind of server: making the tables takes longer than emptying them."""
    urls: dict[str, str] = {}

    def url(kind: str) -> str:
        if kind not in urls:
            urls[kind] = database_server(kind).new_database()
            database = Database(urls[kind])
            database.upgrade()
            database.close()
        return urls[kind]

    return url


@pytest.fixture(params=DATABASES)
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def database(kind: str, migrated_url: Callable[[str], str], tmp_path: Path) -> Iterator[Database]:
    if kind == SQLITE:
        opened = new_database(tmp_path / "jetbridge.sqlite3")
        yield opened
        opened.close()
        return
    opened = Database(migrated_url(kind))
    yield opened
    opened.write(empty)
    opened.close()


@pytest.fixture
def server(kind: str, database_server: DatabaseServers) -> DatabaseServer:
    """The server of ``database``, to be hurt. Only for tests of the kinds that have one."""
    return database_server(kind)


@pytest.fixture
def empty_url(kind: str, database_server: DatabaseServers, tmp_path: Path) -> str:
    """The URL of a database without any table."""
    return f"sqlite:///{tmp_path}/empty.sqlite3" if kind == SQLITE else database_server(kind).new_database()

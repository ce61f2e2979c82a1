"""Every test here runs on each database of ``DATABASES``: the same calls, the same answers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetbridge.db.engine import Database
from jetbridge.db.tables import metadata

SQLITE = "sqlite"
DATABASES = [SQLITE, *os.environ.get("JETBRIDGE_TEST_DATABASES", "").split()]
"""SQLite in a file of its own, and the URLs of empty databases that a test may fill."""


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "new.sqlite3"
    database = Database(f"sqlite:///{path}")
    database.upgrade()
    database.close()
    return path


@pytest.fixture(params=DATABASES, ids=lambda url: url.split(":")[0])
def database(request: pytest.FixtureRequest, migrated_file: Path, tmp_path: Path) -> Iterator[Database]:
    if request.param == SQLITE:
        shutil.copy(migrated_file, tmp_path / "jetbridge.sqlite3")
        opened = Database(f"sqlite:///{tmp_path}/jetbridge.sqlite3")
        yield opened
        opened.close()
        return
    opened = Database(request.param)
    opened.upgrade()
    yield opened
    with opened.engine.begin() as connection:
        for table in metadata.sorted_tables:
            connection.execute(table.delete())
    opened.close()

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetbridge.db.engine import Database
from tests.unit.api.doors import empty_database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Upgraded, without rows."""
    file = tmp_path / "jetbridge.sqlite3"
    file.write_bytes(empty_database())
    made = Database(f"sqlite:///{file}")
    yield made
    made.close()

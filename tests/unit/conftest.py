from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetbridge.db.engine import Database
from tests.schema import new_database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Upgraded, without rows."""
    made = new_database(tmp_path / "jetbridge.sqlite3")
    yield made
    made.close()

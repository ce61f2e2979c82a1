from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetbridge.db.engine import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}")
    made.upgrade()
    yield made
    made.close()

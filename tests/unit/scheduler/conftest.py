from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.scheduler.build import Cloud


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.database.close()

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.api.clouds import Cloud, open_cloud


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with open_cloud(tmp_path) as opened:
        yield opened

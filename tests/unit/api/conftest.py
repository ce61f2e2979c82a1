from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.api.clouds import Cloud, open_cloud


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with open_cloud(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """With a flavor ``small``: for tests that leave nothing behind."""
    with open_cloud(tmp_path_factory.mktemp("shared")) as opened:
        opened.flavor()
        yield opened

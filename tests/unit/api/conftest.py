from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.api.clouds import Cloud, open_cloud


@pytest.fixture(scope="session")
def reused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with open_cloud(tmp_path_factory.mktemp("reused")) as opened:
        yield opened


@pytest.fixture
def cloud(reused: Cloud) -> Cloud:
    reused.as_new()
    return reused


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """With a flavor ``small``: for tests that leave nothing behind."""
    with open_cloud(tmp_path_factory.mktemp("shared")) as opened:
        opened.flavor()
        yield opened

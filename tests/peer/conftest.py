"""One peer process for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peer.process import Peer, peer


@pytest.fixture(scope="session")
def nova() -> Iterator[Peer]:
    with peer() as process:
        yield process

"""The running product in one process on SQLite with simulated hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jetbridge.config.settings import Settings
from tests.system.cloud import Cloud, running

Launch = Callable[..., Cloud]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """``launch(fleet, settings)``: a running cloud, stopped at the end of the test."""
    with ExitStack() as stack:

        def start(content: Mapping[str, Any], settings: Settings | None = None) -> Cloud:
            return stack.enter_context(running(tmp_path, content, settings))

        yield start

"""The running product with simulated hosts: in one process on SQLite, if a test doesn't say otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jetbridge.config.settings import Settings
from tests.conftest import DatabaseServers
from tests.servers.databases import SERVERS
from tests.system.cloud import Cloud, running
from tests.system.separate import SeparateCloud

Launch = Callable[..., Cloud]

SQLITE = "sqlite"
on_every_database = pytest.mark.parametrize("database", [SQLITE, *SERVERS], indirect=True)
"""For tests of what databases do differently: locks, races, what others see."""
on_every_database_at_length = pytest.mark.parametrize(
    "database", [SQLITE, *(pytest.param(kind, marks=pytest.mark.at_length) for kind in SERVERS)], indirect=True
)
"""The same, on database servers only with ``--long``: `make test-load` does more of it there."""

ALL_IN_ONE, SEPARATE = "all-in-one", "separate"
on_both_deployments = pytest.mark.parametrize("deployment", [ALL_IN_ONE, SEPARATE], indirect=True)
"""For tests of what may differ between one process and many: messages, races, failures."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("at_length")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def pytest_runtest_setup(item: pytest.Item) -> None:
    many = os.environ.get("JETBRIDGE_TEST_DEPLOYMENT", ALL_IN_ONE) == SEPARATE
    if many and "deployment" not in getattr(item, "fixturenames", ()) and item.get_closest_marker("all_in_one"):
        pytest.skip("needs one process")


@contextmanager
def deployed(request: pytest.FixtureRequest, folder: Path, content: Mapping[str, Any]) -> Iterator[Cloud]:
    """A cloud that the tests of a module share, in one process or, by JETBRIDGE_TEST_DEPLOYMENT=separate, in many."""
    if os.environ.get("JETBRIDGE_TEST_DEPLOYMENT", ALL_IN_ONE) == ALL_IN_ONE:
        with running(folder, content) as cloud:
            yield cloud
        return
    many = SeparateCloud(folder, request.getfixturevalue("rabbit"))
    many.write_fleet(content)
    try:
        many.start()
        yield many
    finally:
        many.stop()


@pytest.fixture
def deployment(request: pytest.FixtureRequest) -> str:
    """JETBRIDGE_TEST_DEPLOYMENT=separate makes all tests run there that start their cloud by ``launch``."""
    chosen: str = getattr(request, "param", os.environ.get("JETBRIDGE_TEST_DEPLOYMENT", ALL_IN_ONE))
    if chosen == SEPARATE and request.node.get_closest_marker("all_in_one"):
        pytest.skip("looks into the process")
    return chosen


@pytest.fixture
def database(request: pytest.FixtureRequest, database_server: DatabaseServers) -> str | None:
    """The URL of an empty database; None: SQLite in the state folder. JETBRIDGE_TEST_DATABASE=postgresql puts all tests there that start
    their cloud by ``launch``."""
    kind = getattr(request, "param", os.environ.get("JETBRIDGE_TEST_DATABASE", SQLITE))
    return None if kind == SQLITE else database_server(kind).new_database()


@pytest.fixture
def launch(request: pytest.FixtureRequest, tmp_path: Path, database: str | None, deployment: str) -> Iterator[Launch]:
    """``launch(fleet, settings)``: a running cloud, stopped at the end of the test."""
    with ExitStack() as stack:

        def start(content: Mapping[str, Any], settings: Settings | None = None) -> Cloud:
            wanted = replace(settings or Settings(), database_connection=database)
            if deployment == ALL_IN_ONE:
                return stack.enter_context(running(tmp_path, content, wanted))
            cloud = SeparateCloud(tmp_path, request.getfixturevalue("rabbit"), wanted)
            cloud.write_fleet(content)
            if database is not None:
                cloud.make_schema()
            stack.callback(cloud.stop)
            cloud.start()
            return cloud

        yield start

"""Servers that several kinds of tests use, each started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import hypothesis
import pytest

from tests.servers.databases import SERVERS, DatabaseServer
from tests.servers.rabbitmq import RabbitNode

DatabaseServers = Callable[[str], DatabaseServer]

hypothesis.settings.register_profile("no-clocks", deadline=None)  # a busy machine fails nothing
hypothesis.settings.load_profile("no-clocks")


def pytest_addoption(parser: pytest.Parser) -> None:
    """For runs that are drawn by chance: the seed that a failure names gives it again."""
    parser.addoption(
        "--seed", type=int, help="seed of random runs; without it: a fixed one in short runs, any in long ones"
    )
    parser.addoption("--operations", type=int, help="how many random operations")
    parser.addoption("--long", action="store_true", help="try properties on many more examples, other ones each time")


@pytest.fixture(scope="session")
def database_server() -> Iterator[DatabaseServers]:
    """``database_server("postgresql")`` or ``("mariadb")``: running, one of each for the whole session."""
    running: dict[str, DatabaseServer] = {}

    def server(kind: str) -> DatabaseServer:
        if kind not in running:
            running[kind] = SERVERS[kind]()
        return running[kind]

    try:
        yield server
    finally:
        for each in running.values():
            each.close()


@pytest.fixture(scope="session")
def rabbit() -> Iterator[RabbitNode]:
    """A RabbitMQ of the tests' own."""
    node = RabbitNode()
    try:
        node.start()
        yield node
    finally:
        node.close()

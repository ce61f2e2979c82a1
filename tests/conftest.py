"""Servers that several kinds of tests use, each started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.servers.databases import SERVERS, DatabaseServer
from tests.servers.rabbitmq import RabbitNode

DatabaseServers = Callable[[str], DatabaseServer]


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

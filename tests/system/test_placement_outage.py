"""Placement goes away in the middle of a build: the build waits and goes on, or fails and leaves nothing; when it is back all ledgers agree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jetbridge.config.settings import Settings
from jetbridge.model.events import Seam, SeamEvent
from tests.conftest import DatabaseServers
from tests.servers.external_placement import CHOSEN, ExternalPlacement
from tests.system.cloud import Cloud, gpu, host
from tests.system.invariants import check_at_rest
from tests.system.ledger import consumers
from tests.system.test_placement_boot import in_placement

DEVICES = [gpu(1), gpu(2)]


class Reacting(list[SeamEvent]):
    """Does something when ``awaited`` happens for the first time after ``arm``, before whoever did it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._awaited: Callable[[SeamEvent], bool] | None = None
        self._act: Callable[[], None] = lambda: None

    def arm(self, awaited: Callable[[SeamEvent], bool], act: Callable[[], None]) -> None:
        self._act, self._awaited = act, awaited

    def append(self, event: SeamEvent) -> None:
        super().append(event)
        if self._awaited is not None and self._awaited(event):
            self._awaited = None
            self._act()

    @property
    def happened(self) -> bool:
        return self._awaited is None


def providers_were_asked(event: SeamEvent) -> bool:
    """By the scheduler, which writes the allocation next."""
    return event.seam is Seam.REST and event.source == "scheduler" and event.what.startswith("GET /resource_providers")


def domain_was_defined(event: SeamEvent) -> bool:
    """The host builds, with its claim and its allocation."""
    return event.seam is Seam.LIBRARY and event.what == "define_domain"


@contextmanager
def reacting(folder: Path, settings: Settings, **host_config: object) -> Iterator[tuple[Cloud, Reacting, str]]:
    """A running cloud of one host with two devices, and a flavor of one."""
    cloud, events = Cloud(folder, settings), Reacting()
    cloud.events = events
    cloud.write_fleet(in_placement(host("gpu1", DEVICES, **host_config)))
    cloud.start()
    try:
        yield cloud, events, cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"})
    finally:
        cloud.stop()


@pytest.fixture
def external(database_server: DatabaseServers, tmp_path: Path) -> Iterator[ExternalPlacement]:
    made = ExternalPlacement(database_server("postgresql").new_database(), tmp_path / "external-placement.log")
    try:
        yield made
    finally:
        made.stop()


def healed(cloud: Cloud, *living: str) -> None:
    """Once the host has looked again."""
    cloud.update_resources("gpu1")
    cloud.until(lambda: consumers(cloud) == set(living), "only servers that live have allocations")
    check_at_rest(cloud)


@pytest.mark.skipif(CHOSEN in os.environ, reason="is about the embedded one")
def test_one_that_dies_between_question_and_write_is_a_delay(tmp_path: Path) -> None:
    with reacting(tmp_path, Settings()) as (cloud, events, flavor):
        assert cloud.service is not None
        assert cloud.service.embedded is not None
        child = cloud.service.embedded._child
        assert child is not None
        events.arm(providers_were_asked, child.kill)
        server = cloud.boot(flavor)
        cloud.wait(server, "ACTIVE")
        assert events.happened
        healed(cloud, server)


def test_one_that_stays_away_between_question_and_write_fails_the_build(
    tmp_path: Path, external: ExternalPlacement
) -> None:
    settings = Settings(placement_endpoint_override=external.url)
    with reacting(tmp_path, settings) as (cloud, events, flavor):
        events.arm(providers_were_asked, external.stop)
        refused = cloud.boot(flavor)
        assert "Placement at" in cloud.wait(refused, "ERROR")["fault"]["message"]
        assert events.happened
        assert cloud.statuses() == ["available"] * 2
        external.start()
        healed(cloud)
        after = cloud.boot(flavor)
        cloud.wait(after, "ACTIVE")
        healed(cloud, after)


def test_a_host_builds_on_without_it(tmp_path: Path, external: ExternalPlacement) -> None:
    settings = Settings(placement_endpoint_override=external.url)
    with reacting(tmp_path, settings) as (cloud, events, flavor):
        events.arm(domain_was_defined, external.stop)
        server = cloud.boot(flavor)
        cloud.wait(server, "ACTIVE")
        assert events.happened
        external.start()
        healed(cloud, server)


def test_a_build_that_fails_while_it_is_away_leaves_nothing(tmp_path: Path, external: ExternalPlacement) -> None:
    """What was allocated before can't be given back then: it is when Placement is there again."""
    settings = Settings(placement_endpoint_override=external.url)
    broken = {"simulate": {"fail": {"start_domain": {"times": 1, "error": "internal error: out of luck"}}}}
    with reacting(tmp_path, settings, **broken) as (cloud, events, flavor):
        events.arm(domain_was_defined, external.stop)
        server = cloud.boot(flavor)
        cloud.wait(server, "ERROR")
        assert events.happened
        assert cloud.statuses() == ["available"] * 2
        external.start()
        assert consumers(cloud) == {server}
        healed(cloud)
        cloud.delete(server)
        cloud.wait_gone(server)
        again = cloud.boot(flavor)
        cloud.wait(again, "ACTIVE")
        healed(cloud, again)

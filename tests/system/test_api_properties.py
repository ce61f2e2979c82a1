"""What holds for every history of a cloud, seen and driven by its API: hypothesis finds the shortest one for which it doesn't.

Each operation is waited for, so that what it must leave is known exactly; operations at once, kills and restarts in the middle are
for tests/long/test_random_operations.py. `--long` tries longer histories, other ones each time.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.long.operations import BLIND, FLAVORS, content
from tests.system.cloud import Cloud
from tests.system.invariants import Journals, check_always, check_at_rest, holdings

HOSTS = ("h1", "h2", "h3")
HARDWARE = ("whole", "a card less", "no network card", "another card", "one more", "no start", "blind", "half blind")
WANTED = {
    name: sum(int(term.partition(":")[2]) for term in terms.split(",") if term) for name, terms in FLAVORS.items()
}


class Api(RuleBasedStateMachine):
    """``servers``: those that run or are stopped, with their flavor; ``failed``: those in ERROR."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="jetbridge-api-"))
        self.cloud = Cloud(self.folder)
        self.journals = Journals(self.cloud)
        self.hardware = dict.fromkeys(HOSTS, "whole")
        self.flavors: dict[str, str] = {}
        self.servers: dict[str, str] = {}
        self.failed: list[str] = []

    @initialize()
    def start(self) -> None:
        self.cloud.write_fleet(content(self.hardware))
        self.cloud.start()
        for name, term in FLAVORS.items():
            self.flavors[name] = self.cloud.flavor(name, {"pci_passthrough:alias": term} if term else {})

    def teardown(self) -> None:
        self.cloud.stop()
        shutil.rmtree(self.folder)

    # --- what people and hardware do ---

    @rule(flavor=st.sampled_from(sorted(FLAVORS)))
    def boot(self, flavor: str) -> None:
        before = holdings(self.cloud)
        server_id = self.cloud.boot(self.flavors[flavor], config_drive=True)
        if self._ended(server_id, flavor):
            assert holdings(self.cloud) == before, "a refused or failed build leaves every ledger as it was"

    @rule(flavors=st.lists(st.sampled_from(sorted(FLAVORS)), min_size=2, max_size=4))
    def boot_at_once(self, flavors: list[str]) -> None:
        ids = [self.cloud.boot(self.flavors[flavor]) for flavor in flavors]
        for server_id, flavor in zip(ids, flavors, strict=True):
            self._ended(server_id, flavor)

    def _ended(self, server_id: str, flavor: str) -> bool:
        """Whether it is in ERROR, once it is known."""
        ended = self.cloud.wait(server_id, "ACTIVE", "ERROR")
        if ended["status"] == "ERROR":
            assert ended["fault"]["message"]
            assert self.cloud.owned(server_id) == []
            self.failed.append(server_id)
            return True
        assert len(self.cloud.owned(server_id)) == WANTED[flavor]
        self.servers[server_id] = flavor
        return False

    @precondition(lambda self: self.servers or self.failed)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        server_id = data.draw(st.sampled_from([*self.servers, *self.failed]))
        others = {place: held for place, held in self.cloud.devices().items() if held[1] not in (None, server_id)}
        self.cloud.delete(server_id)
        self.cloud.wait_gone(server_id)
        self.cloud.until(
            lambda: self.cloud.sql("SELECT id FROM builds WHERE state = 'running'") == [], "its delete ended"
        )
        assert {place: held for place, held in self.cloud.devices().items() if held[1] is not None} == others
        self.servers.pop(server_id, None)
        if server_id in self.failed:
            self.failed.remove(server_id)

    @precondition(lambda self: self.servers)
    @rule(data=st.data(), action=st.sampled_from(["os-stop", "os-start", "reboot"]))
    def power(self, data: st.DataObject, action: str) -> None:
        server_id = data.draw(st.sampled_from(list(self.servers)))
        owned = self.cloud.owned(server_id)
        argument = {"type": "HARD"} if action == "reboot" else None
        answer = self.cloud.client.post(f"/servers/{server_id}/action", json={action: argument})
        assert answer.status_code in (202, 409), answer.text
        self.cloud.wait(server_id, "ACTIVE", "SHUTOFF", "ERROR")
        assert self.cloud.owned(server_id) == owned, "its devices stay its own"

    @rule(host=st.sampled_from(HOSTS), hardware=st.sampled_from(HARDWARE))
    def change_hardware(self, host: str, hardware: str) -> None:
        owned = {server_id: self.cloud.owned(server_id) for server_id in self.servers}
        self.hardware[host] = hardware
        self.cloud.reload(content(self.hardware))
        assert {server_id: self.cloud.owned(server_id) for server_id in self.servers} == owned

    @rule()
    def restart(self) -> None:
        before = self._ledgers_of_servers()
        self.cloud.stop()
        self.cloud.start()
        assert self._ledgers_of_servers() == before

    def _ledgers_of_servers(self) -> dict[str, Any]:
        return {
            server_id: (self.cloud.owned(server_id), self.cloud.show(server_id)["status"]) for server_id in self.servers
        }

    # --- what holds ---

    @invariant()
    def one_owner_per_device_all_are_accounted_for_and_no_card_is_given_with_its_functions(self) -> None:
        if self.cloud.service is not None:
            check_always(self.cloud)
            self.journals.check()

    @invariant()
    def nobody_waits_and_the_hypervisors_hold_what_the_tables_say(self) -> None:
        seen = not any(self.hardware[name] in BLIND for name in HOSTS)
        if self.cloud.service is not None and seen:
            check_at_rest(self.cloud)


@pytest.mark.timeout(0)
def test_whatever_is_done_by_the_api_the_ledgers_hold(request: pytest.FixtureRequest) -> None:
    long = request.config.getoption("--long")
    run_state_machine_as_test(
        Api,
        settings=settings(
            max_examples=60 if long else 2,
            stateful_step_count=30 if long else 12,
            derandomize=not long,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

"""What holds for every history of a host's ledgers, on a real database and a simulated hypervisor; `make test-long` tries longer ones."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from jetbridge.compute import tracker
from jetbridge.compute.host import AgentHost
from jetbridge.compute.inventory import take_inventory
from jetbridge.compute.reconcile import reconcile
from jetbridge.config.overrides import apply_overrides
from jetbridge.config.settings import Settings
from jetbridge.db import servers
from jetbridge.db.clock import utcnow
from jetbridge.errors import JetbridgeError
from jetbridge.image.store import ImageDirectory
from jetbridge.model.server import Server, VmState
from jetbridge.model.verdict import Selection
from jetbridge.pci.device import Condition, Status
from jetbridge.pci.request import PciRequest
from jetbridge.rpc.inprocess import InProcessBus
from jetbridge.virt.simulated import open_fleet_host
from tests.schema import new_database
from tests.unit.compute.conftest import CONTEXT, T4, Bench, _load, request

CARD = {
    "address": "0000:3b:00.0",
    "vendor_id": "15b3",
    "product_id": "1017",
    "pf": {"vfs": 2, "vf_product_id": "1018"},
}
GPUS = [{"address": f"0000:{bus:02x}:00.0", **T4} for bus in (1, 2)]
HARDWARE: dict[str, dict[str, Any]] = {
    "whole": {"devices": [*GPUS, CARD]},
    "a GPU less": {"devices": [GPUS[1], CARD]},
    "no card": {"devices": GPUS},
    "another GPU": {"devices": [{**GPUS[0], "product_id": "1db6"}, GPUS[1], CARD]},
    "blind": {"devices": [*GPUS, CARD], "simulate": {"discovery": "raise"}},
    "half blind": {"devices": [*GPUS, CARD], "simulate": {"discovery": "half"}},
}
BLIND = ("blind", "half blind")
NIC = {"vendor_id": "15b3"}
BREAKS = st.sampled_from((None, None, None, None, 0, 1, 3))
"""After how many looks at the clock a transaction breaks."""


def _asked(kind: str) -> tuple[PciRequest, ...]:
    pf = request(**NIC, product_id="1017", dev_type="type-PF")
    vf = request(**NIC, product_id="1018", dev_type="type-VF")
    kinds = {
        "gpu": (request(),),
        "gpus": (request(2),),
        "pf": (pf,),
        "vf": (vf,),
        "mixed": (request(), vf),
        "both": (pf, vf),
    }
    return kinds[kind]


class Broken(Exception):
    """What breaks in the middle of a transaction."""


class Clock:
    """Breaks when it has been asked ``left`` times more."""

    left: int | None = None

    def __call__(self) -> Any:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Broken
        return utcnow()


class Ledgers(RuleBasedStateMachine):
    """``owners``: server to how many devices it has to own; ``settled``: those whose guest runs."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="jetbridge-tracker-"))
        self.database = new_database(self.folder / "db.sqlite3")
        self.pool = ThreadPoolExecutor(1)
        self.clock = Clock()
        self.hardware = "whole"
        self.waiting: list[Server] = []
        self.owners: dict[str, int] = {}
        self.settled: set[str] = set()
        self.stale: Selection | None = None
        self.bench = self._process()
        take_inventory(self.bench.host, starting=True)

    def teardown(self) -> None:
        self.pool.shutdown()
        self.database.close()
        shutil.rmtree(self.folder)

    def _process(self) -> Bench:
        lines = [T4, NIC]
        connection, files = open_fleet_host(_load(self.folder, HARDWARE[self.hardware]), self.folder / "sim")
        host = AgentHost(
            name="h1",
            connection=connection,
            files=files,
            settings=apply_overrides(Settings(), {"pci": {"device_spec": lines}}, "test"),
            database=self.database,
            bus=InProcessBus(self.pool),
            images=ImageDirectory(self.database, self.folder / "images"),
            owner=str(uuid.uuid4()),
            now=self.clock,
            new_id=lambda: str(uuid.uuid4()),
            disk_gb=1000,
            random=os.urandom,
        )
        return Bench(host, self.folder)

    # --- what happens ---

    @rule(
        kind=st.sampled_from(["gpu", "gpus", "pf", "vf", "mixed", "both"]),
        stale=st.booleans(),
        breaks=BREAKS,
    )
    def claim(self, kind: str, stale: bool, breaks: int | None) -> None:
        asked = _asked(kind)
        server = self.bench.server(*asked)
        selection = self.stale if stale and self.stale is not None else self.bench.selection()
        self.stale = self.bench.selection()
        before = self.dump()
        self.clock.left = breaks
        try:
            tracker.claim(self.bench.host, CONTEXT, server.uuid, selection)
        except (JetbridgeError, Broken):
            assert self.dump() == before, "a refused or broken claim leaves every ledger as it was"
            self.waiting.append(server)
            return
        finally:
            self.clock.left = None
        assert self.hardware not in BLIND, "nothing is given of a host that can't be seen"
        assert kind != "both", "never a PF and its VF"
        self.owners[server.uuid] = sum(one.count for one in asked)

    @rule(kind=st.sampled_from(["gpu", "gpus", "pf", "vf", "mixed"]))
    def boot(self, kind: str) -> None:
        """As it goes when nothing is in the way."""
        before = set(self.owners)
        self.claim(kind, False, None)
        for new in self.owners.keys() - before:
            self.run(new, None)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        """Somebody who owns already can't claim, wherever the message comes from."""
        uuid_ = data.draw(st.sampled_from(list(self.owners)))
        before = self.dump()
        try:
            tracker.claim(self.bench.host, CONTEXT, uuid_, self.bench.selection())
        except JetbridgeError:
            assert self.dump() == before
            return
        raise AssertionError("it claimed twice")

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), breaks=BREAKS)
    def allocate(self, data: st.DataObject, breaks: int | None) -> None:
        self.run(data.draw(st.sampled_from(list(self.owners))), breaks)

    def run(self, uuid_: str, breaks: int | None) -> None:
        def settle() -> None:
            tracker.allocate(self.bench.host, CONTEXT, uuid_, self.bench.node_id)

        if self.unbroken(settle, breaks):
            self.database.write(
                lambda conn: servers.update(conn, uuid_, vm_state=VmState.ACTIVE, task_state=None, launched_at=utcnow())
            )
            self.settled.add(uuid_)

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), breaks=BREAKS, leaves=st.booleans())
    def give_back(self, data: st.DataObject, breaks: int | None, leaves: bool) -> None:
        uuid_ = data.draw(st.sampled_from(list(self.owners)))
        give = tracker.leave if leaves else tracker.release

        def back() -> None:
            give(self.bench.host, CONTEXT, uuid_, self.bench.node_id)

        if self.unbroken(back, breaks):
            del self.owners[uuid_]
            self.settled.discard(uuid_)

    @rule(hardware=st.sampled_from(sorted(HARDWARE)), back=st.booleans())
    def change(self, hardware: str, back: bool) -> None:
        owned = self.owned()
        for wanted in (hardware, "whole") if back else (hardware,):
            self.hardware = wanted
            self.bench.change(HARDWARE[wanted])
            take_inventory(self.bench.host)
            assert self.owned() == owned, "no report of a host takes a device from its owner"
            self.a_card_and_its_functions_are_never_both_given_or_offered()

    @rule(hardware=st.sampled_from(sorted(HARDWARE)))
    def crash(self, hardware: str) -> None:
        """The process dies, another begins, perhaps on other hardware: claims that nobody builds on return, unless the host can't be
        seen."""
        self.hardware = hardware
        self.bench = self._process()
        owned = self.owned()
        take_inventory(self.bench.host, starting=True)
        reconcile(self.bench.host, starting=True)
        if self.hardware in BLIND:
            assert self.owned() == owned, "nothing is freed of a host that can't be seen"
            return
        self.owners = {uuid_: count for uuid_, count in self.owners.items() if uuid_ in self.settled}

    @rule()
    def forget(self) -> None:
        """A periodic pass, with whatever was deleted in the tables alone."""
        if self.settled and self.hardware not in BLIND:
            uuid_ = next(one for one in self.owners if one in self.settled)
            self.database.write(lambda conn: servers.soft_delete(conn, uuid_))
            self.settled.discard(uuid_)
            del self.owners[uuid_]
        if self.hardware not in BLIND:
            reconcile(self.bench.host, starting=True)
            self.owners = {uuid_: count for uuid_, count in self.owners.items() if uuid_ in self.settled}

    # --- what holds ---

    @invariant()
    def one_owner_per_device_and_all_that_was_asked_for(self) -> None:
        counts: dict[str, int] = {}
        for owner in self.owned().values():
            counts[owner] = counts.get(owner, 0) + 1
        assert counts == self.owners

    @invariant()
    def free_and_owned_and_blocked_are_all(self) -> None:
        for device in self.bench.devices().values():
            assert [device.status is Status.AVAILABLE, device.owned, device.blocked].count(True) == 1, device
            assert device.owned == (device.instance_uuid is not None), device
            if self.hardware in BLIND:
                assert device.condition in (Condition.UNKNOWN, Condition.LOST), device

    @invariant()
    def a_card_and_its_functions_are_never_both_given_or_offered(self) -> None:
        devices = self.bench.devices()
        for device in devices.values():
            parent = devices.get(device.parent_addr or "")
            if parent is not None:
                assert not (device.owned and not parent.blocked), (device, parent)
                assert not (parent.owned and not device.blocked), (device, parent)
                assert parent.blocked == any(
                    other.owned for other in devices.values() if other.parent_addr == parent.address
                ), parent

    # --- help ---

    def unbroken(self, change: Any, breaks: int | None) -> bool:
        """Whether the change happened; one that broke changed nothing."""
        before = self.dump()
        self.clock.left = breaks
        try:
            change()
        except Broken:
            assert self.dump() == before
            return False
        finally:
            self.clock.left = None
        return True

    def owned(self) -> dict[str, str]:
        return {address: str(one.instance_uuid) for address, one in self.bench.devices().items() if one.owned}

    def dump(self) -> dict[str, list[Any]]:
        tables = ("pci_devices", "instances", "compute_nodes", "request_specs", "instance_extra", "builds")
        with self.database.read() as conn:
            return {name: [tuple(row) for row in conn.execute(sa.text(f"SELECT * FROM {name}"))] for name in tables}


def test_ledgers_hold_whatever_happens(request: Any) -> None:
    long = request.config.getoption("--long")
    run_state_machine_as_test(
        Ledgers,
        settings=settings(
            max_examples=400 if long else 25,
            stateful_step_count=50 if long else 25,
            derandomize=not long,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

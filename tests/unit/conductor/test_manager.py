"""Who builds what next: the conductor between a scheduler and hosts whose answers are written down here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jetbridge.conductor.manager import ConductorManager
from jetbridge.conductor.reconcile import reconcile_unplaced
from jetbridge.config.settings import Settings
from jetbridge.db import actions, builds, faults, request_specs, servers
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import NoValidHost
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.flavor import Flavor
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.server import PowerState, Server, TaskState, VmState
from jetbridge.model.verdict import Selection
from jetbridge.rpc.inprocess import InProcessBus

CONTEXT = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-1")
FLAVOR = Flavor(1, "f", "f", 1, 512, 1)


class AtOnce(Executor):
    """Runs a cast before it returns, so that a test sees its effect."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Stage:
    """``answers``: what the scheduler says, in order (hosts, best first; none: no valid host). ``outcomes``: how a build ends on
    which host, in order of the builds; "ok" or a kind of failure."""

    def __init__(self, database: Database, answers: Sequence[Sequence[str]], outcomes: Sequence[str]) -> None:
        self.database = database
        self.answers, self.outcomes = list(answers), list(outcomes)
        self.built: list[str] = []
        self.excluded: list[list[str]] = []
        self.deleted: list[str] = []
        self.bus = InProcessBus(AtOnce())
        self.conductor = ConductorManager(database, self.bus, Settings(max_attempts=3), owner="me", now=utcnow)
        self.bus.serve("conductor", self.conductor.handlers())
        self.bus.serve("scheduler", {"select_destinations": self._select})
        for host in ("a", "b", "c", "d"):
            handlers = {"build_server": self._build(host), "delete_server": self._delete(host)}
            self.bus.serve("compute", handlers, server=host)

    def _select(self, context: RequestContext, payload: Mapping[str, Any]) -> dict[str, Any]:
        self.excluded.append(payload["exclude_hosts"])
        hosts = self.answers.pop(0)
        if not hosts:
            raise NoValidHost(reason="3 hosts considered: 3 refused by PciPassthroughFilter")
        selections = [Selection(host, 1, 7).to_message() for host in hosts]
        return {"selections": [selections for _ in payload["server_uuids"]]}

    def _build(self, host: str) -> Callable[[RequestContext, Mapping[str, Any]], None]:
        def build(context: RequestContext, payload: Mapping[str, Any]) -> None:
            self.built.append(host)
            outcome = self.outcomes.pop(0)
            if outcome != "ok":
                failure = {
                    "server_uuid": payload["server_uuid"],
                    "build_id": payload["build_id"],
                    "host": host,
                    "generation": payload["selection"]["generation"],
                    "kind": outcome,
                    "reason": f"{host} said {outcome}",
                }
                self.database.write(lambda conn: builds.give_back(conn, payload["build_id"]))
                self.bus.cast(context, "conductor", "build_failed", failure, source="test")

        return build

    def _delete(self, host: str) -> Callable[[RequestContext, Mapping[str, Any]], None]:
        def delete(context: RequestContext, payload: Mapping[str, Any]) -> None:
            self.deleted.append(host)

        return delete

    def server(self) -> str:
        made = Server(
            id=0,
            uuid=str(uuid.uuid4()),
            display_name="s",
            project_id=ADMIN_ID,
            user_id=ADMIN_ID,
            vm_state=VmState.BUILDING,
            task_state=TaskState.SCHEDULING,
            power_state=PowerState.NOSTATE,
            flavor=FLAVOR,
            image_ref=None,
            created_at=utcnow(),
            request_id="req-1",
        )

        def write(conn: Connection) -> None:
            servers.create(conn, made)
            request_specs.create(conn, RequestSpec(made.uuid, ADMIN_ID, FLAVOR, None))
            actions.start(conn, made.uuid, "create", "req-1")

        self.database.write(write)
        return made.uuid

    def build(self, *uuids: str) -> None:
        self.bus.cast(CONTEXT, "conductor", "build_servers", {"server_uuids": list(uuids)}, source="test")

    def get(self, server: str) -> Server:
        with self.database.read() as conn:
            return servers.get(conn, server)

    def fault(self, server: str) -> faults.Fault:
        with self.database.read() as conn:
            return faults.latest(conn, [server])[server]

    def builds(self, server: str) -> list[builds.Build]:
        with self.database.read() as conn:
            return list(builds.of_server(conn, server))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}")
    made.upgrade()
    yield made
    made.close()


def test_a_server_goes_to_the_best_host_and_the_others_are_kept_as_alternates(database: Database) -> None:
    stage = Stage(database, [["a", "b", "c"]], ["ok"])
    server = stage.server()
    stage.build(server)
    assert stage.built == ["a"]
    [build] = stage.builds(server)
    assert (build.host, build.state, build.attempts) == ("a", "running", 0)
    assert [selection.host for selection in build.alternates] == ["b", "c"]


def test_hosts_that_fail_count_and_alternates_come_first(database: Database) -> None:
    stage = Stage(database, [["a", "b", "c"]], ["host_failed", "host_failed", "ok"])
    server = stage.server()
    stage.build(server)
    assert stage.built == ["a", "b", "c"]
    assert len(stage.excluded) == 1
    [build] = stage.builds(server)
    assert (build.attempts, build.tried_hosts, build.host) == (2, ("a", "b"), "c")


def test_without_alternates_the_scheduler_is_asked_again_without_the_tried_hosts(database: Database) -> None:
    stage = Stage(database, [["a"], ["b"]], ["host_failed", "ok"])
    stage.build(stage.server())
    assert stage.built == ["a", "b"]
    assert stage.excluded == [[], ["a"]]


def test_attempts_end_with_the_last_failure_told(database: Database) -> None:
    stage = Stage(database, [["a", "b", "c", "d"]], ["host_failed"] * 3)
    server = stage.server()
    stage.build(server)
    assert stage.built == ["a", "b", "c"]
    assert stage.get(server).vm_state is VmState.ERROR
    fault = stage.fault(server)
    assert fault.code == 500
    assert "Exceeded max scheduling attempts 3" in fault.message
    assert "c said host_failed" in (fault.details or fault.message)


def test_a_lost_claim_is_scheduled_again_and_is_no_attempt(database: Database) -> None:
    stage = Stage(database, [["a"]] * 6, [*["claim_lost"] * 5, "ok"])
    server = stage.server()
    stage.build(server)
    assert stage.built == ["a"] * 6
    assert stage.excluded == [[]] * 6
    [build] = stage.builds(server)
    assert (build.attempts, build.tried_hosts) == (0, ())


def test_what_no_host_can_do_is_tried_once(database: Database) -> None:
    stage = Stage(database, [["a", "b"]], ["aborted"])
    server = stage.server()
    stage.build(server)
    assert stage.built == ["a"]
    assert stage.get(server).vm_state is VmState.ERROR
    assert stage.fault(server).message == "a said aborted"


def test_no_valid_host_is_an_error_whose_fault_says_why(database: Database) -> None:
    stage = Stage(database, [[]], [])
    first, second = stage.server(), stage.server()
    stage.build(first, second)
    for server in (first, second):
        assert (stage.get(server).vm_state, stage.get(server).task_state) == (VmState.ERROR, None)
        assert "3 refused by PciPassthroughFilter" in stage.fault(server).message
        assert [build.state for build in stage.builds(server)] == ["failed"]
        with database.read() as conn:
            [action] = actions.of_server(conn, server)
        assert action.message == "Error"


def test_a_reschedule_that_finds_nobody_tells_the_failure_that_led_there(database: Database) -> None:
    stage = Stage(database, [["a"], []], ["host_failed"])
    server = stage.server()
    stage.build(server)
    text = stage.fault(server).details or stage.fault(server).message
    assert "No valid host was found" in text
    assert "a said host_failed" in text


def test_a_message_that_arrives_twice_builds_once(database: Database) -> None:
    stage = Stage(database, [["a"]], ["ok"])
    server = stage.server()
    stage.build(server)
    stage.build(server)
    assert stage.built == ["a"]


def test_an_old_failure_of_another_host_changes_nothing(database: Database) -> None:
    stage = Stage(database, [["a", "b"]], ["host_failed", "ok"])
    server = stage.server()
    stage.build(server)
    [build] = stage.builds(server)
    late = {
        "server_uuid": server,
        "build_id": build.id,
        "host": "a",
        "generation": 7,
        "kind": "host_failed",
        "reason": "",
    }
    stage.bus.cast(CONTEXT, "conductor", "build_failed", late, source="test")
    assert stage.built == ["a", "b"]
    assert stage.builds(server) == [build]


def test_a_host_whose_agent_is_gone_has_failed(database: Database) -> None:
    stage = Stage(database, [["gone", "b"]], ["ok"])
    server = stage.server()
    stage.build(server)
    assert stage.built == ["b"]
    assert stage.builds(server)[0].tried_hosts == ("gone",)


def test_a_server_being_deleted_is_not_sent_to_another_host(database: Database) -> None:
    stage = Stage(database, [["a", "b"]], ["ok"])
    server = stage.server()
    stage.build(server)
    database.write(lambda conn: servers.set_task_state(conn, server, None, TaskState.DELETING))
    failure = {"server_uuid": server, "build_id": 1, "host": "a", "generation": 7, "kind": "host_failed", "reason": "x"}
    database.write(lambda conn: builds.give_back(conn, 1))
    stage.bus.cast(CONTEXT, "conductor", "build_failed", failure, source="test")
    assert stage.built == ["a"]
    assert stage.builds(server)[0].state == "failed"
    assert stage.get(server).vm_state is VmState.BUILDING


def test_a_server_on_no_host_is_deleted_here(database: Database) -> None:
    stage = Stage(database, [], [])
    server = stage.server()
    stage.bus.cast(CONTEXT, "conductor", "delete_server", {"server_uuid": server}, source="test")
    assert stage.deleted == []
    with database.read() as conn:
        assert servers.get(conn, server, deleted_too=True).vm_state is VmState.DELETED


@pytest.mark.parametrize(("host", "asked"), [("a", ["a"]), ("gone", [])])
def test_a_placed_server_is_deleted_by_its_host_if_it_has_an_agent(
    database: Database, host: str, asked: list[str]
) -> None:
    stage = Stage(database, [], [])
    server = stage.server()
    database.write(lambda conn: servers.place(conn, server, host, host, 1))
    stage.bus.cast(CONTEXT, "conductor", "delete_server", {"server_uuid": server}, source="test")
    assert stage.deleted == asked
    with database.read() as conn:
        assert (servers.get_many(conn, [server]) == {}) == (not asked)


def test_requests_that_a_dead_process_left_get_an_answer_at_start(database: Database) -> None:
    stage = Stage(database, [], [])
    lost, scheduling, deleting, placed = (stage.server() for _ in range(4))

    def write(conn: Connection) -> None:
        builds.start(conn, scheduling, "dead")
        servers.set_task_state(conn, deleting, None, TaskState.DELETING)
        servers.place(conn, placed, "a", "a", 1)
        builds.start(conn, placed, "dead", host="a", step="start")

    database.write(write)
    ended = reconcile_unplaced(database, now=utcnow, service_down_time=60, gone_owners={"dead"}, starting=True)
    assert ended == 3
    for server in (lost, scheduling):
        assert stage.get(server).vm_state is VmState.ERROR
        assert "step scheduling" in stage.fault(server).message
    assert stage.get(placed).vm_state is VmState.BUILDING  # the host ends what it has begun
    with database.read() as conn:
        assert servers.get_many(conn, [deleting]) == {}


def test_a_delete_is_finished_in_the_pass_that_ends_the_dead_build_of_its_server(database: Database) -> None:
    stage = Stage(database, [], [])
    server = stage.server()

    def write(conn: Connection) -> None:
        builds.start(conn, server, "dead")
        servers.set_task_state(conn, server, None, TaskState.DELETING)

    database.write(write)
    reconcile_unplaced(database, now=utcnow, service_down_time=60, gone_owners={"dead"}, starting=True)
    with database.read() as conn:
        assert servers.get_many(conn, [server]) == {}
        assert builds.running(conn) == ()


def test_what_a_living_process_works_on_is_left_alone(database: Database) -> None:
    stage = Stage(database, [], [])
    fresh, scheduling = stage.server(), stage.server()
    database.write(lambda conn: builds.start(conn, scheduling, "alive"))
    assert reconcile_unplaced(database, now=utcnow, service_down_time=60) == 0
    assert stage.get(fresh).vm_state is stage.get(scheduling).vm_state is VmState.BUILDING


def test_a_request_that_comes_twice_is_built_once(database: Database) -> None:
    stage = Stage(database, [["a"]], ["ok"])
    server = stage.server()
    stage.build(server)
    stage.build(server)
    assert stage.built == ["a"]
    assert len(stage.builds(server)) == 1


def test_a_failure_that_comes_twice_counts_once_even_when_the_same_host_builds_again(database: Database) -> None:
    stage = Stage(database, [["a"], ["a"]], ["claim_lost", "ok"])
    server = stage.server()
    stage.build(server)
    [build] = stage.builds(server)
    again = {
        "server_uuid": server,
        "build_id": build.id,
        "host": "a",
        "generation": 7,
        "kind": "claim_lost",
        "reason": "",
    }
    for step in (None, "claim"):
        if step is not None:
            database.write(lambda conn: builds.set_step(conn, build.id, "claim"))
        stage.bus.cast(CONTEXT, "conductor", "build_failed", again, source="test")
    assert stage.built == ["a", "a"]
    assert stage.builds(server)[0].state == "running"


def test_a_delete_that_comes_twice_is_done_once(database: Database) -> None:
    stage = Stage(database, [], [])
    server = stage.server()
    for _ in range(2):
        stage.bus.cast(CONTEXT, "conductor", "delete_server", {"server_uuid": server}, source="test")
    with database.read() as conn:
        assert servers.get(conn, server, deleted_too=True).vm_state is VmState.DELETED


def test_a_build_whose_message_was_lost_is_sent_again_and_only_by_who_sent_it(database: Database) -> None:
    stage = Stage(database, [["a", "b"], ["b"]], ["ok", "ok"])
    server = stage.server()
    stage.build(server)
    assert stage.conductor.send_again() == 0
    long_ago = utcnow() - timedelta(seconds=3600)
    database.write(lambda conn: builds.take(conn, 1, "another", now=long_ago))
    assert stage.conductor.send_again() == 0
    database.write(lambda conn: builds.take(conn, 1, "me", now=long_ago))
    assert stage.conductor.send_again() == 1
    assert stage.built == ["a", "b"]
    assert (stage.builds(server)[0].host, stage.builds(server)[0].attempts) == ("b", 0)
    assert stage.conductor.send_again() == 0


def test_a_build_whose_conductor_failed_before_it_was_sent_is_ended_and_only_by_who_had_it(database: Database) -> None:
    stage = Stage(database, [], [])
    server = stage.server()
    long_ago = utcnow() - timedelta(seconds=3600)
    database.write(lambda conn: builds.start(conn, server, "another", now=long_ago))
    stage.conductor.send_again()
    assert stage.builds(server)[0].state == "running"
    database.write(lambda conn: builds.take(conn, 1, "me"))
    stage.conductor.send_again()
    assert stage.builds(server)[0].state == "running", "it may still be at work"
    database.write(lambda conn: builds.take(conn, 1, "me", now=long_ago))
    stage.conductor.send_again()
    assert stage.builds(server)[0].state == "failed"
    with database.read() as conn:
        assert servers.get(conn, server).vm_state is VmState.ERROR
        assert "stopped in step scheduling" in faults.latest(conn, [server])[server].message

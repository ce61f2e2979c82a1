"""Who builds what next."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import pytest

from jetbridge.conductor.manager import EVENT
from jetbridge.conductor.outcome import start_builds
from jetbridge.conductor.reconcile import reconcile_unplaced
from jetbridge.db import actions, builds, faults, servers, tables
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.model.server import TaskState, VmState
from tests.unit.conductor.stage import CONTEXT, Stage


def test_a_server_goes_to_the_best_host_and_the_others_are_kept_as_alternates(database: Database) -> None:
    stage = Stage(database, [["a", "b", "c"]], ["ok"])
    server = stage.server()
    stage.build(server)
    assert stage.built == ["a"]
    [build] = stage.builds(server)
    assert (build.host, build.state, build.attempts) == ("a", "running", 0)
    assert [selection.host for selection in build.alternates] == ["b", "c"]


def test_hosts_that_fail_count_and_the_scheduler_is_asked_again_without_them(database: Database) -> None:
    """An alternate of before has no allocation in Placement: the scheduler chooses anew."""
    stage = Stage(database, [["a", "b", "c"], ["b", "c"], ["c"]], ["host_failed", "host_failed", "ok"])
    server = stage.server()
    stage.build(server)
    assert stage.built == ["a", "b", "c"]
    assert stage.excluded == [[], ["a"], ["a", "b"]]
    [build] = stage.builds(server)
    assert (build.attempts, build.tried_hosts, build.host) == (2, ("a", "b"), "c")


def test_attempts_end_with_the_last_failure_told(database: Database) -> None:
    stage = Stage(database, [["a"], ["b"], ["c"], ["d"]], ["host_failed"] * 3)
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


def test_no_valid_host_is_an_error_whose_fault_says_why(database: Database, caplog: pytest.LogCaptureFixture) -> None:
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
        [told] = [record for record in caplog.records if getattr(record, "server", None) == server]
        assert told.levelname == "WARNING"
        assert told.getMessage().startswith(f"Server {server} is in ERROR: No valid host")


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
    stage = Stage(database, [["a"], ["b"]], ["host_failed", "ok"])
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
    stage = Stage(database, [["gone"], ["b"]], ["ok"])
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
    database.write(lambda conn: builds.give_back(conn, 1, "a"))
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


@pytest.mark.parametrize("ended", [False, True], ids=["under way", "over"])
def test_a_request_that_is_begun_after_the_look_for_lost_ones_is_not_lost(database: Database, ended: bool) -> None:
    """It waited long in its queue, and the look at many others takes seconds."""
    stage = Stage(database, [], [])
    waiting = [stage.server(), stage.server()]

    class Begun(logging.Handler):
        """When the first was declared lost the other is begun."""

        def emit(self, record: logging.LogRecord) -> None:
            for server, build in start_builds(database, CONTEXT, waiting, "alive", utcnow(), EVENT).items():
                if ended:
                    database.write(lambda conn, build=build: builds.finish(conn, build.id))
                    database.write(
                        lambda conn, server=server: servers.update(
                            conn, server, vm_state=VmState.ACTIVE, task_state=None
                        )
                    )

    told, handler = logging.getLogger("jetbridge.conductor.reconcile"), Begun()
    told.addHandler(handler)
    try:
        assert reconcile_unplaced(database, now=utcnow, service_down_time=60, starting=True) == 1
    finally:
        told.removeHandler(handler)
    (begun,) = [server for server in waiting if stage.builds(server)]
    assert stage.get(begun).vm_state is (VmState.ACTIVE if ended else VmState.BUILDING)
    assert stage.get(begun).task_state is (None if ended else TaskState.SCHEDULING)


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


def _moved(database: Database, owner: str, at: datetime) -> None:
    """The build moved last at that time, and is of that process."""
    database.write(lambda conn: conn.execute(tables.builds.update().values(owner=owner, heartbeat=at, updated_at=at)))


def test_a_build_whose_message_was_lost_is_sent_again_and_only_by_who_sent_it(database: Database) -> None:
    stage = Stage(database, [["a", "b"], ["b"]], ["ok", "ok"])
    server = stage.server()
    stage.build(server)
    assert stage.conductor.send_again() == 0
    long_ago = utcnow() - timedelta(seconds=3600)
    _moved(database, "another", long_ago)
    assert stage.conductor.send_again() == 0
    _moved(database, "me", long_ago)
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
    _moved(database, "me", utcnow())
    stage.conductor.send_again()
    assert stage.builds(server)[0].state == "running", "it may still be at work"
    _moved(database, "me", long_ago)
    stage.conductor.send_again()
    assert stage.builds(server)[0].state == "failed"
    with database.read() as conn:
        assert servers.get(conn, server).vm_state is VmState.ERROR
        assert "stopped in step scheduling" in faults.latest(conn, [server])[server].message

"""Requests that wait for a host that doesn't come back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jetbridge.conductor.gone_hosts import answer_for_gone_hosts
from jetbridge.db import actions, builds, servers, services
from jetbridge.db.builds import RETURNED
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.model.server import TaskState, VmState
from tests.unit.conductor.stage import CONTEXT, Stage

LONG_AGO = utcnow() - timedelta(seconds=3600)
POWER = [TaskState.POWERING_OFF, TaskState.POWERING_ON, TaskState.REBOOTING, TaskState.REBOOTING_HARD]


class Gone(Stage):
    """Host a served ``owner`` until it fell silent."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, [], [])
        new_id = iter(["s1", "s2"]).__next__
        self.write(services.register, ["a"], "nova-compute", "compute", "owner", new_id, now=LONG_AGO)

    def write(self, function: Any, *arguments: Any, **values: Any) -> Any:
        return self.database.write(lambda conn: function(conn, *arguments, **values))

    def placed(self, task: TaskState | None, vm_state: VmState = VmState.ACTIVE) -> str:
        server = self.server()
        self.write(servers.place, server, "a", "a", 1, now=LONG_AGO)
        self.write(servers.update, server, vm_state=vm_state, task_state=task, now=LONG_AGO)
        return server

    def building(self, step: str, **values: Any) -> str:
        server = self.placed(TaskState.SPAWNING, VmState.BUILDING)
        self.write(builds.start, server, "owner", host="a", step=step, now=LONG_AGO, **values)
        return server

    def answer(self) -> int:
        return answer_for_gone_hosts(self.database, now=utcnow, service_down_time=60)

    def unanswered(self, server: str) -> list[str]:
        with self.database.read() as conn:
            return [action.action for action in actions.of_server(conn, server) if action.finish_time is None]


def test_a_build_is_in_error_with_its_step_and_stays_for_the_host_to_undo(database: Database) -> None:
    stage = Gone(database)
    server = stage.building("define")
    assert stage.answer() == 1
    found = stage.get(server)
    assert (found.vm_state, found.task_state) == (VmState.ERROR, None)
    assert (found.host, found.compute_node_id) == ("a", 1), "nothing is freed on a guess"
    assert "stopped in step define on host a" in stage.fault(server).message
    assert stage.fault(server).message.endswith("create it again.")
    assert [(build.state, build.step) for build in stage.builds(server)] == [("running", "define")]
    assert stage.unanswered(server) == []
    assert stage.answer() == 0


def test_a_build_that_the_host_had_undone_is_over(database: Database) -> None:
    stage = Gone(database)
    server = stage.building(RETURNED)
    assert stage.answer() == 1
    assert stage.get(server).vm_state is VmState.ERROR
    assert [build.state for build in stage.builds(server)] == ["failed"]
    assert stage.unanswered(server) == []


def test_a_delete_is_finished_in_the_tables(database: Database) -> None:
    stage = Gone(database)
    deleting = stage.placed(TaskState.DELETING)
    building = stage.building("start")
    stage.write(servers.set_task_state, building, None, TaskState.DELETING, now=LONG_AGO)
    assert stage.answer() == 2
    with database.read() as conn:
        assert servers.get_many(conn, [deleting, building]) == {}
    assert [build.state for build in stage.builds(building)] == ["running"], "the host undoes it"
    assert stage.unanswered(deleting) == []


@pytest.mark.parametrize("task", POWER)
def test_another_task_is_given_up_and_its_request_answered(database: Database, task: TaskState) -> None:
    stage = Gone(database)
    server = stage.placed(task)
    assert stage.answer() == 1
    found = stage.get(server)
    assert (found.vm_state, found.task_state) == (VmState.ACTIVE, None)
    assert stage.unanswered(server) == []


def test_a_request_that_puts_its_server_into_no_task_is_answered(database: Database) -> None:
    stage = Gone(database)
    server = stage.placed(None)
    stage.write(actions.start, server, "detach_interface", "req-1")
    assert stage.answer() == 0, "it may be on its way"
    stage.write(actions.finish, server, "req-1")
    stage.write(actions.start, server, "detach_interface", "req-2", now=LONG_AGO)
    assert stage.answer() == 1
    assert stage.unanswered(server) == []


@pytest.mark.parametrize("sign", ["agent", "build"])
def test_a_build_whose_agent_or_process_gives_a_sign_of_life_goes_on(database: Database, sign: str) -> None:
    stage = Gone(database)
    server = stage.building("define")
    stage.write(services.heartbeat if sign == "agent" else builds.heartbeat, "owner")
    assert stage.answer() == 0
    assert stage.get(server).vm_state is VmState.BUILDING


def test_a_host_that_somebody_declares_down_may_be_at_work(database: Database) -> None:
    stage = Gone(database)
    server = stage.building("define")
    stage.write(services.set_forced_down, "s1", True)
    stage.write(services.heartbeat, "owner")
    assert stage.answer() == 0
    assert stage.get(server).vm_state is VmState.BUILDING


def test_a_task_that_was_just_asked_for_waits_for_a_host_that_restarts(database: Database) -> None:
    stage = Gone(database)
    server = stage.placed(TaskState.POWERING_OFF)
    stage.write(servers.set_task_state, server, None, TaskState.REBOOTING)
    assert stage.answer() == 0
    assert stage.get(server).task_state is TaskState.REBOOTING


def test_a_failure_that_comes_after_its_host_was_given_up_is_not_built_elsewhere(database: Database) -> None:
    """The host was only silent: what it says at last must not wake a server that is in ERROR."""
    stage = Gone(database)
    server = stage.building("define")
    stage.answer()
    [build] = stage.builds(server)
    stage.write(builds.give_back, build.id, "a")
    told = {
        "server_uuid": server,
        "build_id": build.id,
        "host": "a",
        "generation": 1,
        "kind": "host_failed",
        "reason": "?",
    }
    stage.bus.cast(CONTEXT, "conductor", "build_failed", told, source="test")
    assert stage.excluded == []
    assert [each.state for each in stage.builds(server)] == ["failed"]
    assert stage.get(server).vm_state is VmState.ERROR


def test_a_server_whose_host_left_for_good_is_answered_too(database: Database) -> None:
    stage = Gone(database)
    server = stage.placed(TaskState.DELETING)

    def forget(conn: Connection) -> None:
        services.delete(conn, services.find(conn, "a", "nova-compute").id)

    database.write(forget)
    assert stage.answer() == 1
    with database.read() as conn:
        assert servers.get_many(conn, [server]) == {}

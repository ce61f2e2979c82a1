"""A host begins what a conductor sent it."""

from __future__ import annotations

from jetbridge.compute.build import build_server
from jetbridge.db import builds, servers
from jetbridge.db.builds import RETURNED
from jetbridge.model.server import TaskState, VmState
from tests.unit.compute.conftest import CONTEXT, MakeBench


def test_a_server_that_was_given_up_on_its_way_stays_without_a_task(bench: MakeBench) -> None:
    """The abort found the task that the beginning had set, and set it back to scheduling: in ERROR, it was busy for ever."""
    made = bench(devices=[])
    made.host.bus.serve("conductor", {"build_failed": lambda context, payload: None})
    server = made.server()
    write = made.host.database.write
    build = write(lambda conn: builds.start(conn, server.uuid, "conductor", host="h1"))
    write(lambda conn: servers.update(conn, server.uuid, vm_state=VmState.ERROR, task_state=None))
    build_server(made.host, CONTEXT, build, made.selection())
    found = made.get(server)
    assert (found.vm_state, found.task_state, found.compute_node_id) == (VmState.ERROR, None, None)
    with made.host.database.read() as conn:
        assert [each.step for each in builds.of_server(conn, server.uuid)] == [RETURNED], "the conductor ends it"


def test_a_server_that_is_being_deleted_keeps_its_task(bench: MakeBench) -> None:
    made = bench(devices=[])
    made.host.bus.serve("conductor", {"build_failed": lambda context, payload: None})
    server = made.server()
    write = made.host.database.write
    build = write(lambda conn: builds.start(conn, server.uuid, "conductor", host="h1"))
    write(lambda conn: servers.set_task_state(conn, server.uuid, None, TaskState.DELETING))
    build_server(made.host, CONTEXT, build, made.selection())
    assert made.get(server).task_state is TaskState.DELETING

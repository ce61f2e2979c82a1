from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jetbridge.db import builds
from jetbridge.db.builds import Build
from jetbridge.db.engine import Database
from jetbridge.errors import NotFound
from jetbridge.model.verdict import Selection
from tests.contract.db.rows import NOW

ALTERNATE = Selection("gpu002", 2, 7, {"r1": ("provider-a", "provider-a")})


def started(database: Database, server: str = "s1", owner: str = "process-1", **arguments: Any) -> Build:
    return database.write(lambda conn: builds.start(conn, server, owner, now=NOW, **arguments))


def got(database: Database, build_id: int) -> Build:
    with database.read() as conn:
        return builds.get(conn, build_id)


def dead(database: Database, seconds: int, **arguments: Any) -> list[str]:
    with database.read() as conn:
        at = NOW + timedelta(seconds=seconds)
        return [each.instance_uuid for each in builds.dead(conn, now=at, service_down_time=60, **arguments)]


def test_a_build_comes_back_as_it_was_started(database: Database) -> None:
    build = started(database, host="gpu001", attempts=1, tried_hosts=["gpu003"], alternates=[ALTERNATE])
    assert got(database, build.id) == build
    assert (build.state, build.heartbeat, build.alternates, build.tried_hosts) == (
        "running",
        NOW,
        (ALTERNATE,),
        ("gpu003",),
    )
    with database.read() as conn:
        assert builds.of_server(conn, "s1") == (build,)
        assert builds.running(conn, instance_uuid="s1", host="gpu001") == (build,)
        assert builds.running(conn, host="gpu002") == ()
    with pytest.raises(NotFound):
        got(database, build.id + 1)


def test_a_build_goes_to_the_next_host(database: Database) -> None:
    build = started(database, host="gpu001", alternates=[ALTERNATE])
    database.write(lambda conn: builds.set_step(conn, build.id, "spawn"))
    assert got(database, build.id).step == "spawn"
    database.write(
        lambda conn: builds.move(conn, build.id, host="gpu002", alternates=[], attempts=1, tried_hosts=["gpu001"])
    )
    moved = got(database, build.id)
    assert (moved.host, moved.step, moved.alternates, moved.attempts) == ("gpu002", None, (), 1)
    assert (moved.tried_hosts, moved.owner) == (("gpu001",), "process-1")


@pytest.mark.parametrize("end", ["finish", "fail"])
def test_a_build_that_ended_changes_no_more(database: Database, end: str) -> None:
    build = started(database)
    if end == "finish":
        assert database.write(lambda conn: builds.finish(conn, build.id))
    else:
        assert database.write(lambda conn: builds.fail(conn, build.id, "its process is gone"))
        assert got(database, build.id).reason == "its process is gone"
    late = (
        lambda conn: builds.fail(conn, build.id, "late"),
        lambda conn: builds.finish(conn, build.id),
        lambda conn: builds.set_step(conn, build.id, "spawn"),
        lambda conn: builds.begin(conn, build.id, "gpu001", "other", "claim"),
        lambda conn: builds.give_back(conn, build.id, "gpu001"),
        lambda conn: builds.move(conn, build.id, host="x", alternates=[], attempts=0, tried_hosts=[]),
    )
    before = got(database, build.id)
    assert [database.write(change) for change in late] == [False] * 6
    assert got(database, build.id) == before


def test_a_host_that_begins_late_and_a_conductor_that_waits_no_longer_never_both_get_a_build(
    database: Database,
) -> None:
    """The host had read that the build was its own: it built a server that the next host was building, and gave that one's build back."""
    later = NOW + timedelta(seconds=90)

    def begin(build_id: int, host: str) -> bool:
        return database.write(lambda conn: builds.begin(conn, build_id, host, "agent", "claim", now=later))

    def take_unbegun(build_id: int) -> Build | None:
        return database.write(
            lambda conn: builds.take_unbegun(conn, build_id, "process-1", quiet_since=later, now=later)
        )

    begun, taken = started(database, "s1", host="gpu001"), started(database, "s2", host="gpu001")
    assert begin(begun.id, "gpu001")
    assert take_unbegun(begun.id) is None
    assert not begin(begun.id, "gpu001"), "a message that comes twice"
    assert take_unbegun(taken.id) == taken
    assert not begin(taken.id, "gpu001"), "it is on no host"
    database.write(
        lambda conn: builds.move(conn, taken.id, host="gpu002", alternates=[], attempts=0, tried_hosts=[], now=later)
    )
    assert not begin(taken.id, "gpu001")
    assert not database.write(lambda conn: builds.give_back(conn, taken.id, "gpu001", now=later))
    assert begin(taken.id, "gpu002")
    assert got(database, taken.id).step == "claim"


def test_silent_builds_and_those_of_gone_processes_are_dead(database: Database) -> None:
    started(database, "silent", "process-1")
    started(database, "gone", "process-2")
    beating = started(database, "beating", "process-3", host="gpu001")
    database.write(lambda conn: builds.finish(conn, started_in(conn, "done"), now=NOW))
    assert dead(database, 60) == []
    assert dead(database, 0, gone_owners={"process-2"}) == ["gone"]
    count = database.write(lambda conn: builds.heartbeat(conn, "process-3", now=NOW + timedelta(seconds=30)))
    assert count == 1
    assert dead(database, 61) == ["silent", "gone"]
    assert got(database, beating.id).heartbeat == NOW + timedelta(seconds=30)
    late = NOW + timedelta(seconds=90)
    assert database.write(lambda conn: builds.begin(conn, beating.id, "gpu001", "process-4", "claim", now=late))
    assert dead(database, 100, gone_owners={"process-3"}) == ["silent", "gone"]


def started_in(conn: Any, server: str) -> int:
    return builds.start(conn, server, "process-1", now=NOW).id


def test_old_builds_are_forgotten_but_never_running_ones(database: Database) -> None:
    started(database, "running")
    ended = started(database, "ended")
    database.write(lambda conn: builds.finish(conn, ended.id, now=NOW))
    assert database.write(lambda conn: builds.purge(conn, NOW)) == 0
    assert database.write(lambda conn: builds.purge(conn, NOW + timedelta(seconds=1))) == 1
    with database.read() as conn:
        assert [each.instance_uuid for each in builds.running(conn)] == ["running"]

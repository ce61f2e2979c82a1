from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jetbridge.db import faults, server_labels, servers
from jetbridge.db.engine import Database
from jetbridge.db.paging import Page
from jetbridge.db.servers import ServerFilter
from jetbridge.errors import Invalid, ServerNotFound
from jetbridge.model.server import NetworkRequest, PowerState, Server, TaskState, VmState
from jetbridge.numa.topology import CpuPolicy, GuestCell, GuestTopology
from jetbridge.pci.request import NumaPolicy, PciRequest
from tests.contract.db.rows import NOW, flavor, new_id, server

TOPOLOGY = GuestTopology((GuestCell(0, frozenset(), frozenset({0, 1}), 2048),), cpu_policy=CpuPolicy.DEDICATED)
REQUEST = PciRequest("r1", 2, ({"vendor_id": "10de", "dev_type": "type-PCI"},), "GPU", numa_policy=NumaPolicy.REQUIRED)


def created(database: Database, value: Server, **arguments: Any) -> Server:
    return database.write(lambda conn: servers.create(conn, value, **arguments))


def got(database: Database, uuid: str, **arguments: Any) -> Server:
    with database.read() as conn:
        return servers.get(conn, uuid, **arguments)


def found(database: Database, page: Page | None = None, **wanted: Any) -> list[str]:
    with database.read() as conn:
        listed = servers.find(conn, ServerFilter(**wanted), page or Page())
        assert servers.find_uuids(conn, ServerFilter(**wanted), page or Page()) == tuple(each.uuid for each in listed)
        return [each.display_name for each in listed]


def test_a_server_comes_back_as_it_was_created(database: Database) -> None:
    full = server(
        flavor=flavor(extra_specs={"pci_passthrough:alias": "GPU:2"}, swap_mb=1),
        image_ref=new_id(),
        key_name="mine",
        user_data="aGVsbG8=",
        config_drive=True,
        display_description="a guest",
        hostname="s1",
        availability_zone="nova",
        reservation_id="r-1",
        launch_index=3,
        metadata={"k": "v", "empty": ""},
        tags=("b", "a"),
        networks=(NetworkRequest("default", "52:54:00:00:00:01", "nic"), NetworkRequest("br0", "52:54:00:00:00:02")),
        request_id="req-1",
    )
    keypair = {"name": "mine", "public_key": "ssh-ed25519 AAAA"}
    stored = created(database, full, pci_requests=[REQUEST], numa_topology=TOPOLOGY, keypair=keypair)
    assert stored.domain_name == f"instance-{stored.id:08x}"
    assert got(database, full.uuid) == replace(full, id=stored.id, tags=("a", "b"))
    with database.read() as conn:
        assert servers.pci_requests(conn, full.uuid) == (REQUEST,)
        assert servers.numa_topology(conn, full.uuid) == TOPOLOGY
        assert servers.keypair(conn, full.uuid) == keypair
        assert servers.get_many(conn, [full.uuid, "other"]).keys() == {full.uuid}


def test_the_requests_stand_where_operators_look_for_them(database: Database) -> None:
    guest = created(database, server(), pci_requests=[REQUEST])
    with database.read() as conn:
        query = f"SELECT pci_requests FROM instance_extra WHERE instance_uuid = '{guest.uuid}'"
        assert '"alias_name":"GPU"' in conn.exec_driver_sql(query).scalar_one()


def test_of_two_that_try_the_same_step_one_wins(database: Database) -> None:
    guest = created(database, server(vm_state=VmState.ACTIVE, task_state=None))
    together = threading.Barrier(2)

    def stop(_: int) -> bool:
        together.wait(10)
        return database.write(lambda conn: servers.set_task_state(conn, guest.uuid, {None}, TaskState.POWERING_OFF))

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(stop, range(2))) == [False, True]
    assert got(database, guest.uuid).task_state is TaskState.POWERING_OFF


def test_a_change_needs_the_expected_states(database: Database) -> None:
    guest = created(database, server(task_state=TaskState.SPAWNING))

    def change(**arguments: Any) -> bool:
        return database.write(lambda conn: servers.update(conn, guest.uuid, **arguments))

    assert not change(expected_task_states={None, TaskState.DELETING}, task_state=None)
    assert not change(expected_vm_states={VmState.ACTIVE}, task_state=None)
    assert got(database, guest.uuid).task_state is TaskState.SPAWNING
    assert change(
        expected_task_states={TaskState.SPAWNING},
        expected_vm_states={VmState.BUILDING},
        vm_state=VmState.ACTIVE,
        task_state=None,
        power_state=PowerState.RUNNING,
        launched_at=NOW,
        now=NOW,
    )
    after = got(database, guest.uuid)
    assert (after.vm_state, after.task_state, after.power_state) == (VmState.ACTIVE, None, PowerState.RUNNING)
    assert (after.launched_at, after.updated_at) == (NOW, NOW)
    assert not database.write(lambda conn: servers.update(conn, "nobody", locked=True))


def test_placing_and_its_undo(database: Database) -> None:
    guest = created(database, server())
    database.write(lambda conn: servers.place(conn, guest.uuid, "gpu001", "gpu001.lab", 7))
    with database.read() as conn:
        (placed,) = servers.of_node(conn, 7)
        assert servers.of_host(conn, "gpu001") == (placed,)
        assert (placed.host, placed.node, placed.compute_node_id) == ("gpu001", "gpu001.lab", 7)
    database.write(lambda conn: servers.unplace(conn, guest.uuid))
    after = got(database, guest.uuid)
    assert (after.host, after.node, after.compute_node_id) == (None, None, None)


def test_a_deleted_server_is_kept_for_those_who_ask(database: Database) -> None:
    guest = created(database, server(tags=("t",), metadata={"k": "v"}))
    assert database.write(lambda conn: servers.soft_delete(conn, guest.uuid, now=NOW))
    assert not database.write(lambda conn: servers.soft_delete(conn, guest.uuid))
    with pytest.raises(ServerNotFound, match=guest.uuid):
        got(database, guest.uuid)
    gone = got(database, guest.uuid, deleted_too=True)
    assert (gone.deleted, gone.vm_state, gone.task_state) == (guest.id, VmState.DELETED, None)
    assert (gone.terminated_at, gone.tags, gone.metadata) == (NOW, (), {"k": "v"})
    assert found(database) == []
    assert found(database, deleted=True) == ["s1"]
    assert found(database, deleted=None) == ["s1"]
    assert not database.write(lambda conn: servers.update(conn, guest.uuid, vm_state=VmState.ACTIVE))


def test_a_project_sees_its_own(database: Database) -> None:
    mine = created(database, server("mine", project_id="p1"))
    created(database, server("theirs", project_id="p2"))
    assert found(database, project_id="p1") == ["mine"]
    assert got(database, mine.uuid, project_id="p1").display_name == "mine"
    with pytest.raises(ServerNotFound):
        got(database, mine.uuid, project_id="p2")
    with database.read() as conn:
        assert servers.by_name(conn, "theirs", project_id="p1") == ()
        assert [each.project_id for each in servers.by_name(conn, "theirs")] == ["p2"]


def test_filters(database: Database) -> None:
    created(
        database,
        server(
            "Web_1",
            vm_state=VmState.ACTIVE,
            task_state=None,
            power_state=PowerState.RUNNING,
            flavor=flavor("web", flavorid="10"),
            image_ref="i1",
            key_name="k",
            hostname="web-1",
            availability_zone="z",
            reservation_id="r-1",
            locked=True,
            tags=("a", "b"),
            created_at=NOW + timedelta(hours=1),
        ),
    )
    created(
        database,
        server(
            "db-1", flavor=flavor("1", flavorid="1", extra_specs={"a": "1", "flavorid": "10", "z": "1"}), tags=("b",)
        ),
    )
    web, both = ["Web_1"], ["Web_1", "db-1"]
    for wanted, names in (
        ({}, both),
        ({"name": "EB_"}, web),
        ({"name": "-1"}, ["db-1"]),
        ({"name": "%"}, []),
        ({"flavorid": "10"}, web),
        ({"flavorid": "1"}, ["db-1"]),
        ({"image_ref": "i1"}, web),
        ({"key_name": "k"}, web),
        ({"hostname": "web-1"}, web),
        ({"availability_zone": "z"}, web),
        ({"reservation_id": "r-1"}, web),
        ({"locked": True}, web),
        ({"locked": False}, ["db-1"]),
        ({"power_state": PowerState.NOSTATE}, ["db-1"]),
        ({"vm_states": frozenset({VmState.ACTIVE})}, web),
        ({"vm_states": frozenset()}, []),
        ({"task_states": frozenset({None})}, web),
        ({"task_states": frozenset({None, TaskState.SCHEDULING})}, both),
        ({"changes_since": NOW + timedelta(minutes=1)}, web),
        ({"changes_before": NOW + timedelta(minutes=1)}, ["db-1"]),
        ({"tags": frozenset({"a", "b"})}, web),
        ({"tags_any": frozenset({"a", "b"})}, both),
        ({"not_tags": frozenset({"a", "b"})}, ["db-1"]),
        ({"not_tags_any": frozenset({"b"})}, []),
        ({"user_id": "nobody"}, []),
        ({"uuids": frozenset()}, []),
    ):
        assert found(database, **wanted) == names, wanted


def test_pages_show_every_server_once(database: Database) -> None:
    for number in range(7):
        # Equal and missing sort keys: what breaks ties must hold over the pages.
        created(database, server(f"s{number}", hostname=None if number % 3 else "h", created_at=NOW))
    uuid_of = {each.display_name: each.uuid for each in _all(database)}
    for sort in (
        (),
        (("hostname", "asc"),),
        (("hostname", "desc"), ("display_name", "asc")),
        (("launched_at", "asc"),),
    ):
        seen: list[str] = []
        while page := found(database, Page(limit=2, marker=uuid_of[seen[-1]] if seen else None, sort=sort)):
            seen += page
        assert sorted(seen) == sorted(uuid_of), sort
        assert seen == found(database, Page(sort=sort))
    with pytest.raises(Invalid, match="marker 'nobody'"):
        found(database, Page(marker="nobody"))
    with pytest.raises(Invalid, match="sort key 'user_data'"):
        found(database, Page(sort=(("user_data", "asc"),)))


def _all(database: Database) -> tuple[Server, ...]:
    with database.read() as conn:
        return servers.find(conn, ServerFilter())


def test_counts_by_state(database: Database) -> None:
    created(database, server())
    created(database, server())
    created(database, server(vm_state=VmState.ERROR))
    with database.read() as conn:
        assert servers.counts_by_state(conn) == {VmState.BUILDING: 2, VmState.ERROR: 1}


def test_metadata_is_set_key_by_key_or_as_a_whole(database: Database) -> None:
    uuid = created(database, server(metadata={"a": "1", "b": "2"})).uuid
    database.write(lambda conn: server_labels.set_metadata(conn, uuid, {"b": "3", "c": "4"}))
    assert got(database, uuid).metadata == {"a": "1", "b": "3", "c": "4"}
    assert database.write(lambda conn: server_labels.delete_metadata(conn, uuid, "a"))
    assert not database.write(lambda conn: server_labels.delete_metadata(conn, uuid, "a"))
    database.write(lambda conn: server_labels.set_metadata(conn, uuid, {"d": "5"}, replace=True))
    assert got(database, uuid).metadata == {"d": "5"}
    database.write(lambda conn: server_labels.set_metadata(conn, uuid, {}, replace=True))
    assert got(database, uuid).metadata == {}


def test_the_newest_fault_counts_and_a_long_one_is_kept_whole(database: Database) -> None:
    text = "No valid host was found. " + "x" * 400

    def fill(conn: Any) -> None:
        faults.add(conn, "s1", 500, "first", host="gpu001", now=NOW)
        faults.add(conn, "s1", 500, text, now=NOW)
        faults.add(conn, "s2", 409, "other", details="trace", now=NOW)

    database.write(fill)
    with database.read() as conn:
        newest = faults.latest(conn, ["s1", "s2", "s3"])
    assert newest.keys() == {"s1", "s2"}
    assert len(newest["s1"].message) == 255
    assert newest["s1"].message.startswith("No valid host")
    assert newest["s1"].details == text
    assert (newest["s2"].message, newest["s2"].details, newest["s2"].code) == ("other", "trace", 409)


# Python takes all but the first: the API has asked it by then.
PATTERNS = [
    "(",
    "(?P<x>web)",
    "(?<!a)web",
    r"web\Z",
    "web(?#note)",
    "w(?>e)b",
    "(?a)web",
    "(?-i:web)",
    "[[:webs:]]",
    r"\Aweb\b",
    r"[\w-]web",
]


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
def test_a_pattern_that_a_database_does_not_take_is_the_callers_mistake(database: Database) -> None:
    """PostgreSQL and MariaDB refused some that Python takes, and the caller was told of an error inside."""
    created(database, server("web-1"))
    refused: dict[str, list[str]] = {}
    for pattern in PATTERNS:
        for query in (servers.find, servers.find_uuids):
            with database.read() as conn:
                try:
                    query(conn, ServerFilter(name_pattern=pattern))
                except Invalid as error:
                    refused.setdefault(pattern, []).append(error.message)
    assert len(refused["("]) == 2
    assert all(repr(pattern) in message for pattern, messages in refused.items() for message in messages)
    assert ("(?P<x>web)" in refused) == (database.kind == "postgresql")

"""Requests, verdicts, actions, keys and images: what is written once and read for people."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jetbridge.db import actions, images, keypairs, request_specs, servers, verdicts
from jetbridge.db.engine import Database
from jetbridge.db.keypairs import KeyPair
from jetbridge.db.paging import Page
from jetbridge.errors import Conflict, NotFound, ServerNotFound
from jetbridge.model.image import Image, ImageStatus, Visibility
from jetbridge.model.request_group import RequestGroup
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.server import TaskState
from jetbridge.model.verdict import VerdictGroup
from jetbridge.numa.topology import GuestCell, GuestTopology
from jetbridge.pci.request import PciRequest
from jetbridge.reasons import Reason
from tests.contract.db.rows import NOW, flavor, new_id, server

SPEC = RequestSpec(
    instance_uuid="s1",
    project_id="p1",
    flavor=flavor(extra_specs={"pci_passthrough:alias": "GPU:1"}),
    image_ref="i1",
    image_properties={"hw_machine_type": "q35"},
    pci_requests=(
        PciRequest("r1", 1, ({"vendor_id": "10de", "product_id": "1eb8"},), "GPU"),
        PciRequest("r2", 1, ({"physical_network": None},), requester_id="port-1"),
    ),
    numa_topology=GuestTopology((GuestCell(0, frozenset({0, 1}), frozenset(), 2048),)),
    availability_zone="nova",
    force_host="gpu001",
    hints={"query": ("a", "b")},
    networks=("default",),
    groups=(RequestGroup("device_profile_0port-2", {"CUSTOM_NIC": 1}, frozenset({"CUSTOM_FAST"})),),
    port_profiles={"port-2": "nic"},
)


def test_a_request_is_frozen_and_read_back(database: Database) -> None:
    plain = RequestSpec("s2", "p1", flavor(), None)
    database.write(lambda conn: [request_specs.create(conn, spec) for spec in (SPEC, plain)])
    with database.read() as conn:
        assert request_specs.get(conn, "s1") == SPEC
        assert request_specs.get_many(conn, ["s2", "nobody", "s1"]) == {"s2": plain, "s1": SPEC}
        with pytest.raises(ServerNotFound):
            request_specs.get(conn, "nobody")
    changed = replace(SPEC, force_host=None)
    database.write(lambda conn: request_specs.save(conn, changed))
    with database.read() as conn:
        assert request_specs.get(conn, "s1") == changed
    with pytest.raises(ServerNotFound):
        database.write(lambda conn: request_specs.save(conn, replace(SPEC, instance_uuid="nobody")))


def test_operators_find_the_alias_in_the_stored_request(database: Database) -> None:
    database.write(lambda conn: request_specs.create(conn, SPEC))
    with database.read() as conn:
        text = conn.exec_driver_sql("SELECT spec FROM request_specs WHERE instance_uuid = 's1'").scalar_one()
    assert json.loads(text)["pci_requests"]["requests"][0] == {
        "count": 1,
        "spec": [{"vendor_id": "10de", "product_id": "1eb8"}],
        "alias_name": "GPU",
        "request_id": "r1",
        "requester_id": None,
        "numa_policy": None,
    }


def test_verdicts_are_kept_by_identical_answer(database: Database) -> None:
    full = Reason("pci.properties", "No free device matches alias GPU", "GPU", 4, 0, "set device_type")
    ram = Reason("ram", "Not enough memory")
    groups = (
        VerdictGroup("PciPassthroughFilter", full, 250, tuple(f"h{number:03}" for number in range(100))),
        VerdictGroup("ComputeFilter", ram, 1, ("x",)),
        VerdictGroup(None, None, 1, ("y",)),
    )
    database.write(lambda conn: verdicts.store(conn, "s1", "req-1", 1, groups, now=NOW))
    database.write(lambda conn: verdicts.store(conn, "s1", "req-1", 2, [], now=NOW))
    with database.read() as conn:
        stored = verdicts.of_server(conn, "s1")
    assert tuple(each.group for each in stored) == groups
    assert {(each.request_id, each.attempt, each.created_at) for each in stored} == {("req-1", 1, NOW)}
    assert [each.group.passed for each in stored] == [False, False, True]


def test_old_verdicts_are_forgotten(database: Database) -> None:
    passed = VerdictGroup(None, None, 1, ("h",))
    for number in range(3):
        at = NOW + timedelta(days=number)
        database.write(lambda conn, at=at: verdicts.store(conn, "s1", "req-1", 1, [passed], now=at))
    assert database.write(lambda conn: verdicts.purge(conn, NOW + timedelta(days=1))) == 1
    with database.read() as conn:
        assert len(verdicts.of_server(conn, "s1")) == 2


def test_actions_and_their_events(database: Database) -> None:
    def act(conn: Any) -> None:
        actions.start(conn, "s1", "create", "req-1", user_id="u", project_id="p", now=NOW)
        actions.start_event(conn, "s1", "req-1", "compute_build_server", host="gpu001", now=NOW)
        actions.finish_event(conn, "s1", "req-1", "compute_build_server", result="Error", details="no", now=NOW)
        actions.start_event(conn, "s1", "req-1", "compute_build_server", host="gpu002", now=NOW)
        actions.finish_event(conn, "s1", "req-1", "compute_build_server", now=NOW)
        actions.finish(conn, "s1", "req-1", now=NOW)
        actions.start(conn, "s1", "stop", "req-2", now=NOW)
        actions.start_event(conn, "s1", "req-other", "nothing", now=NOW)  # an action nobody recorded
        actions.finish_event(conn, "s1", "req-other", "nothing", now=NOW)

    database.write(act)
    with database.read() as conn:
        assert [(each.action, each.finish_time) for each in actions.of_server(conn, "s1")] == [
            ("stop", None),
            ("create", NOW),
        ]
        assert len(actions.of_server(conn, "s1", limit=1)) == 1
        action, events = actions.get(conn, "s1", "req-1")
        assert (action.message, action.user_id, action.project_id) == ("Error", "u", "p")
        assert [(each.host, each.result, each.details) for each in events] == [
            ("gpu002", "Success", None),
            ("gpu001", "Error", "no"),
        ]
        with pytest.raises(NotFound, match="req-9"):
            actions.get(conn, "s1", "req-9")


def test_requests_that_no_task_will_answer(database: Database) -> None:
    later = NOW + timedelta(hours=1)
    idle, busy, elsewhere, gone = (server(name, task_state=None) for name in ("idle", "busy", "elsewhere", "gone"))

    def ask(conn: Any) -> None:
        for each, node_id in ((idle, 1), (busy, 1), (elsewhere, 2), (gone, 1)):
            servers.create(conn, each)
            servers.place(conn, each.uuid, f"gpu{node_id}", f"gpu{node_id}", node_id)
        servers.soft_delete(conn, gone.uuid)
        servers.set_task_state(conn, busy.uuid, None, TaskState.REBOOTING)
        for each in (idle, busy, elsewhere, gone):
            actions.start(conn, each.uuid, "create", "req-1", now=NOW)
            actions.start(conn, each.uuid, "stop", "req-2", now=NOW)
            actions.finish(conn, each.uuid, "req-1", now=NOW)

    database.write(ask)
    with database.read() as conn:
        assert actions.forgotten(conn) == {idle.uuid: "gpu1", elsewhere.uuid: "gpu2"}
        assert actions.forgotten(conn, compute_node_id=1) == {idle.uuid: "gpu1"}
        assert actions.forgotten(conn, compute_node_id=1, before=NOW) == {}
        assert actions.forgotten(conn, compute_node_id=1, before=later) == {idle.uuid: "gpu1"}
        assert [actions.is_answered(conn, idle.uuid, f"req-{number}") for number in (1, 2, 3)] == [True, False, False]


def test_keys_belong_to_users(database: Database) -> None:
    def pair(name: str, user: str = "u1") -> KeyPair:
        return KeyPair(name, user, "ssh", "aa:bb", "ssh-ed25519 AAAA")

    database.write(lambda conn: [keypairs.create(conn, each) for each in (pair("b"), pair("a"), pair("a", "u2"))])
    with pytest.raises(Conflict, match="'a' already exists"):
        database.write(lambda conn: keypairs.create(conn, pair("a")))
    with database.read() as conn:
        assert [each.name for each in keypairs.find(conn, "u1")] == ["a", "b"]
        assert [each.name for each in keypairs.find(conn, "u1", Page(limit=1, marker="a"))] == ["b"]
        assert keypairs.get(conn, "u1", "a").public_key == "ssh-ed25519 AAAA"
    database.write(lambda conn: keypairs.delete(conn, "u1", "a"))
    for fn in (keypairs.get, keypairs.delete):
        with pytest.raises(NotFound, match="a"):
            database.write(lambda conn, fn=fn: fn(conn, "u1", "a"))
    with database.read() as conn:
        assert len(keypairs.find(conn, "u2")) == 1


def test_images(database: Database) -> None:
    full = Image(
        id=new_id(),
        owner="p1",
        status=ImageStatus.ACTIVE,
        created_at=NOW,
        name="noble",
        visibility=Visibility.PUBLIC,
        container_format="bare",
        disk_format="qcow2",
        size=3_000_000_000,
        virtual_size=5_000_000_000,
        checksum="c" * 32,
        os_hash_algo="sha512",
        os_hash_value="d" * 128,
        min_disk=3,
        min_ram=512,
        protected=True,
        properties={"hw_firmware_type": "uefi"},
        tags=("gpu",),
        updated_at=NOW,
    )
    younger = Image(new_id(), "p1", ImageStatus.QUEUED, NOW + timedelta(seconds=1))
    database.write(lambda conn: [images.insert(conn, each) for each in (full, younger)])
    with pytest.raises(Conflict, match=full.id):
        database.write(lambda conn: images.insert(conn, full))
    with database.read() as conn:
        assert images.get(conn, full.id) == full
        assert images.listing(conn) == (younger, full)
    changed = replace(full, name="oracular", updated_at=NOW + timedelta(days=1))
    database.write(lambda conn: images.update(conn, changed))
    guest = database.write(lambda conn: servers.create(conn, server(image_ref=full.id)))
    with database.read() as conn:
        assert images.get(conn, full.id) == changed
        assert images.servers_using(conn, full.id) == (guest.uuid,)
        assert images.servers_using(conn, younger.id) == ()
    database.write(lambda conn: servers.soft_delete(conn, guest.uuid))
    with database.read() as conn:
        assert images.servers_using(conn, full.id) == ()
    database.write(lambda conn: images.delete(conn, full.id))
    for fn, argument in ((images.get, full.id), (images.delete, full.id), (images.update, full)):
        with pytest.raises(NotFound, match=full.id):
            database.write(lambda conn, fn=fn, argument=argument: fn(conn, argument))

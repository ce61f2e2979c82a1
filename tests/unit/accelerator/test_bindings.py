"""A server's requests against the embedded service, over HTTP as the services of a process ask it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from jetbridge.accelerator.bindings import ServerBindings, Wanted
from jetbridge.accelerator.client import AcceleratorClient
from jetbridge.accelerator.inventory import declared
from jetbridge.accelerator.service import AcceleratorService
from jetbridge.accelerator.session import external_adapter
from jetbridge.api.app import create_accelerator_door
from jetbridge.api.auth import Authenticator
from jetbridge.conductor.accelerators import drop_strays
from jetbridge.config.settings import Settings
from jetbridge.db import accelerators, builds, compute_nodes, server_arqs, servers
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import AcceleratorRequestBindingFailed, AcceleratorRequestOpFailed
from jetbridge.model.accelerator import ServerArq
from jetbridge.model.context import RequestContext
from jetbridge.service.accelerators import OwnDoor
from jetbridge.service.http import HttpServer
from tests.contract.db.rows import node
from tests.contract.db.rows import server as server_row
from tests.schema import new_database
from tests.unit.accelerator.hosts import T4, report, specs
from tests.unit.api.doors import PasswordFile

ADMIN = RequestContext("root", "admin", frozenset({"admin"}), "req-1")
OWNER = RequestContext("ann", "physics", frozenset({"member"}), "req-2")


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass
class Stage:
    database: Database
    service: AcceleratorService
    bindings: ServerBindings
    providers: list[str]
    door: OwnDoor

    def rows(self) -> tuple[ServerArq, ...]:
        with self.database.read() as conn:
            return server_arqs.everything(conn)

    def nothing_left(self) -> bool:
        owned = [handle for card in self.service.devices() for handle in card.handles if handle.arq_uuid]
        return not (owned or self.rows() or self.service.list(ADMIN))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    database = new_database(tmp_path / "jetbridge.sqlite3")
    service = AcceleratorService(database, lambda context, events: None, new_id)

    def write(conn: Connection) -> list[str]:
        host = compute_nodes.upsert(conn, node("gpu1"))
        found = declared(
            specs({**T4, "type": "GPU"}), [report("0000:3b:00.0"), report("0000:5e:00.0")], host.id, "gpu1", new_id
        )
        accelerators.save(conn, found)
        cards = accelerators.of_host(conn, host.id)
        for card in cards:
            accelerators.set_provider(conn, card.id, card.uuid)
        return [card.uuid for card in cards]

    providers = database.write(write)
    service.create_profile(ADMIN, "infer", [{"resources:PGPU": "1"}, {"resources:PGPU": "1"}])
    service.create_profile(ADMIN, "nic", [{"resources:PGPU": "2"}])
    door = OwnDoor(service)
    yield Stage(database, service, ServerBindings(database, door.start(), utcnow), providers, door)
    door.stop()
    database.close()


def test_requests_are_bound_to_the_providers_chosen_and_belong_to_the_servers_owner(stage: Stage) -> None:
    server = new_id()
    stage.bindings.create(server, 1, "physics", [Wanted("infer")])
    assert stage.service.list(OWNER) == ()  # ours, until a server has them
    one, two = stage.providers
    stage.bindings.bind(server, "gpu1", {"device_profile_0": [two], "device_profile_1": [one]})
    bound = {arq.device_profile_group_id: arq for arq in stage.service.list(OWNER)}
    assert [(arq.state.value, arq.device_rp_uuid) for _, arq in sorted(bound.items())] == [
        ("Bound", two),
        ("Bound", one),
    ]
    assert stage.bindings.drop(server)
    assert stage.nothing_left()
    assert stage.bindings.drop(server)


def test_f19_when_the_second_binding_fails_all_are_given_back(stage: Stage) -> None:
    server = new_id()
    stage.bindings.create(server, 1, "physics", [Wanted("infer")])
    (one, _) = stage.providers
    stage.bindings.bind(server, "gpu1", {"device_profile_0": [one], "device_profile_1": [one]})
    assert sorted(arq.state.value for arq in stage.service.list(OWNER)) == ["BindFailed", "Bound"]
    assert stage.bindings.drop(server)
    assert stage.nothing_left()


def test_nothing_is_deleted_while_a_guest_may_have_some_of_it(stage: Stage) -> None:
    """As when a build is given back whose guest could not be stopped."""
    server = new_id()
    (row, _) = stage.bindings.create(server, 1, "physics", [Wanted("infer")])
    one, two = stage.providers
    stage.bindings.bind(server, "gpu1", {"device_profile_0": [one], "device_profile_1": [two]})
    assert row.arq_uuid is not None
    given = row.arq_uuid
    stage.database.write(lambda conn: server_arqs.note_attached(conn, given, "PCI", {}, new_id(), None))
    assert not stage.bindings.drop(server)
    assert {arq.state.value for arq in stage.service.list(OWNER)} == {"Bound"}
    stage.bindings.guest_gone(server)
    assert stage.bindings.drop(server)
    assert stage.nothing_left()


def test_case_118_a_group_without_a_provider_binds_nothing(stage: Stage) -> None:
    server = new_id()
    stage.bindings.create(server, 1, "physics", [Wanted("infer")])
    with pytest.raises(AcceleratorRequestOpFailed, match="device_profile_1"):
        stage.bindings.bind(server, "gpu1", {"device_profile_0": stage.providers[:1]})
    assert {arq.state.value for arq in stage.service.list(ADMIN)} == {"Initial"}
    assert stage.bindings.drop(server)
    assert stage.nothing_left()


def test_case_119_a_refused_binding_is_raised_and_all_can_be_deleted(stage: Stage) -> None:
    server = new_id()
    (row, *_) = stage.bindings.create(server, 1, "physics", [Wanted("infer")])
    assert row.arq_uuid is not None
    stage.service.delete(ADMIN, [row.arq_uuid])  # behind our back
    with pytest.raises(AcceleratorRequestBindingFailed, match="404"):
        stage.bindings.bind(server, "gpu1", {f"device_profile_{group}": stage.providers[:1] for group in (0, 1)})
    assert stage.bindings.drop(server)
    assert stage.nothing_left()


def test_a_port_has_one_device(stage: Stage) -> None:
    server, port = new_id(), new_id()
    with pytest.raises(AcceleratorRequestOpFailed, match=port):
        stage.bindings.create(server, 1, "physics", [Wanted("nic", port)])
    assert [row.requester_id for row in stage.rows()] == [f"device_profile_0{port}"] * 2
    assert stage.bindings.drop(server)
    assert stage.nothing_left()


def killed_while_creating(stage: Stage) -> str:
    """As a conductor leaves it that dies after the service has created and before it has written down what."""
    server = new_id()
    stage.database.write(lambda conn: server_arqs.insert(conn, [ServerArq(server, 1, "infer", "physics")]))
    stage.bindings.asking().create("infer")
    return server


def test_what_a_killed_conductor_created_without_writing_it_down_is_deleted(stage: Stage) -> None:
    stage.service.create(OWNER, "infer")  # a user's own, which looks alike
    server = killed_while_creating(stage)
    assert stage.bindings.drop(server)
    assert stage.rows() == ()
    assert len(stage.service.list(ADMIN)) == len(stage.service.list(OWNER)) == 2


@pytest.mark.parametrize("strategy", ["http_basic", "none"])
def test_ours_are_told_from_others_by_who_we_say_we_are(stage: Stage, tmp_path: Path, strategy: str) -> None:
    """Of a password file's users only the service knows the projects. Where nobody says who he is, what looks alike may be anybody's."""
    users = PasswordFile(tmp_path / "users")
    users.add("jetbridge", "s", "services", "service")
    settings = replace(users.settings, auth_strategy=strategy)
    server = HttpServer("127.0.0.1", 0)
    server.start(create_accelerator_door(stage.service, Authenticator.from_settings(settings)))
    ours = {"cyborg_auth_type": "http_basic", "cyborg_username": "jetbridge", "cyborg_password": "s"}
    asks = Settings(
        cyborg_endpoint_override=f"{server.base_url}/accelerator/v2", **(ours if strategy == "http_basic" else {})
    )
    bindings = replace(stage.bindings, client=AcceleratorClient(external_adapter(asks)))
    try:
        stage.service.create(OWNER, "infer")
        elsewhere = replace(stage, bindings=bindings)
        killed = killed_while_creating(elsewhere)
        assert bindings.drop(killed)
        left = stage.service.list(ADMIN)
        assert len(left) == (2 if strategy == "http_basic" else 4)
        assert {arq.uuid for arq in stage.service.list(OWNER)} <= {arq.uuid for arq in left}
        assert stage.rows() == ()
    finally:
        server.stop()


def test_what_another_conductor_is_creating_now_is_left_alone(stage: Stage) -> None:
    server = killed_while_creating(stage)
    busy = killed_while_creating(stage)
    assert not stage.bindings.drop(server)
    assert len(stage.service.list(ADMIN)) == 4
    with stage.database.read() as conn:
        (intent,) = server_arqs.of_server(conn, busy)
    stage.database.write(lambda conn: server_arqs.forget(conn, [intent.id]))
    assert stage.bindings.drop(server)
    assert stage.nothing_left()


def test_without_a_service_nothing_is_forgotten(stage: Stage) -> None:
    server = new_id()
    stage.bindings.create(server, 1, "physics", [Wanted("infer")])
    away = replace(stage.bindings, client=None, why_none="set [cyborg]endpoint_override")
    assert not away.drop(server)
    with pytest.raises(AcceleratorRequestOpFailed, match="endpoint_override"):
        away.create(new_id(), 1, "physics", [Wanted("infer")])
    assert stage.bindings.drop(server)
    assert stage.nothing_left()


def test_a_service_that_restarts_between_creating_and_binding_goes_on(stage: Stage) -> None:
    server, providers = new_id(), {f"device_profile_{group}": [rp] for group, rp in enumerate(stage.providers)}
    stage.bindings.create(server, 1, "physics", [Wanted("infer")])
    stage.door.stop()
    with pytest.raises(AcceleratorRequestBindingFailed, match="could not communicate"):
        stage.bindings.bind(server, "gpu1", providers)
    assert not stage.bindings.drop(server)
    # Known, and where: so that they are deleted when it is back, whatever of the call it had got.
    assert [row.hostname for row in stage.rows()] == ["gpu1", "gpu1"]
    with pytest.raises(AcceleratorRequestOpFailed, match="could not communicate"):
        stage.bindings.create(new_id(), 2, "physics", [Wanted("infer")])
    (intent,) = [row for row in stage.rows() if row.arq_uuid is None]
    assert intent.profile == "infer"
    stage.database.write(lambda conn: server_arqs.forget(conn, [intent.id]))
    door = OwnDoor(stage.service)
    back = replace(stage.bindings, client=door.start())
    try:
        back.bind(server, "gpu1", providers)
        assert {arq.state.value for arq in stage.service.list(OWNER)} == {"Bound"}
        assert back.drop(server)
        assert stage.nothing_left()
    finally:
        door.stop()


def test_only_what_no_build_and_no_host_answers_for_is_a_stray(stage: Stage) -> None:
    lost, built, placed, on_host = (new_id() for _ in range(4))
    for uuid_ in (lost, built, placed):
        stage.bindings.create(uuid_, 1, "physics", [Wanted("infer")])
    stage.bindings.create(on_host, 1, "physics", [Wanted("infer")])
    one, two = stage.providers
    stage.bindings.bind(on_host, "gpu1", {"device_profile_0": [one], "device_profile_1": [two]})

    def write(conn: Connection) -> None:
        made = servers.create(conn, replace(server_row("s1"), uuid=placed))
        servers.place(conn, made.uuid, "gpu1", "gpu1", compute_nodes.of_host(conn, "gpu1").id)
        builds.start(conn, built, "conductor", now=utcnow())

    stage.database.write(write)
    assert drop_strays(stage.database, stage.bindings) == 1
    assert {row.instance_uuid for row in stage.rows()} == {built, placed, on_host}

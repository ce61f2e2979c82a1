from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest
import sqlalchemy as sa

from jetbridge.db import accelerators, arqs, compute_nodes, device_profiles, server_arqs
from jetbridge.db.engine import Database
from jetbridge.db.tables_accelerator import attach_handles
from jetbridge.errors import Conflict, NotFound
from jetbridge.model.accelerator import (
    Accelerator,
    AcceleratorCondition,
    Arq,
    ArqState,
    AttachHandle,
    AttachType,
    DeviceProfile,
    ServerArq,
)
from tests.contract.db.rows import node


def new() -> str:
    return str(uuid.uuid4())


def handle(function: int, **values: object) -> AttachHandle:
    info = {"domain": "0000", "bus": "3b", "device": "00", "function": str(function)}
    return AttachHandle(new(), AttachType.PCI, f"0000:3b:00.{function}", info, **values)  # type: ignore[arg-type]


def stored(database: Database, handles: int = 2) -> Accelerator:
    def write(conn: sa.Connection) -> Accelerator:
        host = compute_nodes.upsert(conn, node("gpu1"))
        card = Accelerator(
            uuid=new(),
            device_uuid=new(),
            compute_node_id=host.id,
            hostname="gpu1",
            name="gpu1_accel_0000:3b:00.0",
            address="0000:3b:00.0",
            vendor_id="10de",
            product_id="1eb8",
            device_type="GPU",
            resource_class="PGPU",
            traits=frozenset({"CUSTOM_B", "CUSTOM_A"}),
            handles=tuple(handle(function) for function in range(handles)),
        )
        accelerators.save(conn, [card])
        return accelerators.of_host(conn, host.id)[0]

    return database.write(write)


def arq(project: str = "p", group: Mapping[str, str] | None = None) -> Arq:
    return Arq(new(), ArqState.INITIAL, project, "infer", 0, group or {"resources:PGPU": "1"})


def test_an_accelerator_keeps_what_was_written(database: Database) -> None:
    card = stored(database)
    assert (card.traits, card.enabled, [each.address for each in card.handles]) == (
        {"CUSTOM_A", "CUSTOM_B"},
        True,
        ["0000:3b:00.0", "0000:3b:00.1"],
    )
    with database.read() as conn:
        assert accelerators.get(conn, card.device_uuid) == accelerators.get(conn, card.uuid) == card
        assert accelerators.listing(conn, vendor="10de", device_type="GPU") == (card,)
        assert accelerators.listing(conn, hostname="gpu2") == ()


def test_a_handle_has_one_owner(database: Database) -> None:
    first, second = stored(database).handles
    one, other = new(), new()
    assert database.write(lambda conn: accelerators.take(conn, first.id, one))
    assert not database.write(lambda conn: accelerators.take(conn, first.id, other))
    with pytest.raises(sa.exc.IntegrityError):  # nor has a request two handles
        database.write(lambda conn: accelerators.take(conn, second.id, one))
    database.write(lambda conn: accelerators.give_back(conn, one))
    assert database.write(lambda conn: accelerators.take(conn, first.id, other))


def test_saving_again_leaves_owner_and_provider_alone(database: Database) -> None:
    card = stored(database)
    database.write(lambda conn: accelerators.take(conn, card.handles[0].id, "a"))
    database.write(lambda conn: accelerators.set_provider(conn, card.id, "rp"))
    database.write(lambda conn: accelerators.save(conn, [card]))
    with database.read() as conn:
        again = accelerators.by_provider(conn, "rp")
    assert again is not None
    assert again.handles[0].arq_uuid == "a"


def test_a_lost_handle_is_forgotten_when_it_is_given_back(database: Database) -> None:
    card = stored(database, handles=1)
    database.write(lambda conn: accelerators.take(conn, card.handles[0].id, "a"))

    database.write(lambda conn: conn.execute(attach_handles.update().values(condition=AcceleratorCondition.LOST.value)))
    database.write(lambda conn: accelerators.give_back(conn, "a"))
    with database.read() as conn:
        assert accelerators.get(conn, card.uuid).handles == ()


def test_requests_are_seen_by_their_project_only(database: Database) -> None:
    mine, theirs = arq("mine"), arq("theirs")
    database.write(lambda conn: arqs.create(conn, [mine, theirs]))
    with database.read() as conn:
        assert [each.uuid for each in arqs.listing(conn, project_id="mine")] == [mine.uuid]
        assert len(arqs.listing(conn)) == 2
        with pytest.raises(NotFound):
            arqs.get(conn, theirs.uuid, project_id="mine")


def test_a_state_is_reached_only_from_those_that_lead_there(database: Database) -> None:
    (made,) = database.write(lambda conn: arqs.create(conn, [arq()]))

    def move(state: ArqState, **values: str | None) -> bool:
        return database.write(lambda conn: arqs.change(conn, made.uuid, state, **values))

    assert not move(ArqState.BOUND)
    assert move(ArqState.BIND_STARTED, hostname="gpu1", instance_uuid="i")
    assert not move(ArqState.BIND_STARTED)
    assert move(ArqState.BOUND)
    with database.read() as conn:
        (bound,) = arqs.listing(conn, instance_uuid="i")
    assert (bound.state, bound.hostname) == (ArqState.BOUND, "gpu1")
    assert move(ArqState.UNBOUND, hostname=None, instance_uuid=None)
    assert database.write(lambda conn: arqs.delete(conn, made.uuid))
    assert not database.write(lambda conn: arqs.delete(conn, made.uuid))


def test_profiles_are_found_by_name_and_uuid(database: Database) -> None:
    profile = DeviceProfile(new(), "infer", ({"resources:PGPU": "1"},), "for inference")
    made = database.write(lambda conn: device_profiles.create(conn, profile))
    assert (made.groups, made.description) == (profile.groups, profile.description)
    with pytest.raises(Conflict):
        database.write(lambda conn: device_profiles.create(conn, DeviceProfile(new(), "infer", ())))
    with database.read() as conn:
        assert device_profiles.get(conn, "infer") == device_profiles.get(conn, profile.uuid) == made
        assert device_profiles.listing(conn, ["other"]) == ()
    database.write(lambda conn: device_profiles.delete(conn, "infer"))
    with database.read() as conn, pytest.raises(NotFound):
        device_profiles.get(conn, profile.uuid)


def test_a_servers_requests_are_known_before_they_exist(database: Database) -> None:
    intent = ServerArq("server", 7, "infer", "p")
    database.write(lambda conn: server_arqs.insert(conn, [intent, intent]))
    known = ServerArq("server", 7, "infer", "p", requester_id="device_profile_0", arq_uuid=new())
    database.write(lambda conn: server_arqs.insert(conn, [known]))
    uuid = known.arq_uuid
    assert uuid is not None
    database.write(lambda conn: server_arqs.bound_to(conn, uuid, "gpu1", "rp"))
    assert database.write(lambda conn: server_arqs.note_event(conn, "other", uuid, "completed")) is None
    noted = database.write(lambda conn: server_arqs.note_event(conn, "server", uuid, "completed"))
    assert noted is not None
    assert (noted.hostname, noted.rp_uuid, noted.event) == ("gpu1", "rp", "completed")
    with database.read() as conn:
        rows = server_arqs.of_server(conn, "server")
    assert [row.arq_uuid for row in rows] == [None, None, uuid]
    database.write(lambda conn: server_arqs.forget(conn, [row.id for row in rows[:2]]))
    with database.read() as conn:
        assert server_arqs.everything(conn) == (noted,)

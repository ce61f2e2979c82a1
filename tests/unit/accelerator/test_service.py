"""The embedded service over its tables: who may do what, and who has which handle."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jetbridge.accelerator.inventory import declared
from jetbridge.accelerator.service import AcceleratorService, Binding, BoundEvent
from jetbridge.db import accelerators, compute_nodes, pci_devices, server_arqs, servers
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import Conflict, Forbidden, Invalid, NotFound
from jetbridge.model.accelerator import Accelerator, Arq, ServerArq
from jetbridge.model.context import RequestContext
from jetbridge.model.server import TaskState
from jetbridge.pci import device as life
from jetbridge.pci.device import Condition, Status
from tests.contract.db.rows import device, node, server
from tests.schema import new_database
from tests.unit.accelerator.hosts import T4, report, specs

PF, VF = "0000:81:00.0", "0000:81:10.0"
GPU = {**T4, "type": "GPU"}


def new_id() -> str:
    return str(uuid.uuid4())


def who(project: str, *roles: str) -> RequestContext:
    return RequestContext("user", project, frozenset(roles or ("member",)), "req-1")


ADMIN, ANN, BOB = who("admin", "admin"), who("physics"), who("biology")
SERVICE = who("services", "service")


@dataclass
class Stage:
    database: Database
    service: AcceleratorService
    told: list[BoundEvent] = field(default_factory=list)
    node_id: int = 0

    def declare(self, *reports: dict[str, object], line: dict[str, object] | None = None) -> list[Accelerator]:
        """The host has these, and Placement knows them."""

        def write(conn: Connection) -> list[Accelerator]:
            found = declared(specs(line or GPU), reports, self.node_id, "gpu1", new_id)
            accelerators.save(conn, found)
            for each in accelerators.of_host(conn, self.node_id):
                accelerators.set_provider(conn, each.id, new_id())
            return list(accelerators.of_host(conn, self.node_id))

        return self.database.write(write)

    def arqs(self, context: RequestContext = ANN, amount: int = 1) -> tuple[Arq, ...]:
        name = f"p{new_id()}"
        self.service.create_profile(ADMIN, name, [{"resources:PGPU": str(amount)}])
        return self.service.create(context, name)

    def bind(self, arqs: Sequence[Arq], providers: Sequence[str | None], server: str | None = None) -> list[str]:
        """States afterwards."""
        server = server or new_id()
        self.service.bind(
            SERVICE,
            {arq.uuid: Binding("gpu1", str(rp), server) for arq, rp in zip(arqs, providers, strict=True)},
        )
        return [self.state(arq) for arq in arqs]

    def state(self, arq: Arq) -> str:
        return self.service.get(SERVICE, arq.uuid).state.value

    def conditions(self) -> list[Condition]:
        with self.database.read() as conn:
            return [each.condition for each in pci_devices.of_host(conn, self.node_id)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    database = new_database(tmp_path / "jetbridge.sqlite3")
    told: list[BoundEvent] = []
    made = Stage(database, AcceleratorService(database, lambda context, events: told.extend(events), new_id), told)
    made.node_id = database.write(lambda conn: compute_nodes.upsert(conn, node("gpu1"))).id
    yield made
    database.close()


def test_a_request_is_bound_told_and_given_back(stage: Stage) -> None:
    (card,) = stage.declare(report("0000:3b:00.0"))
    (arq,) = stage.arqs()
    server = new_id()
    assert stage.bind([arq], [card.rp_uuid], server) == ["Bound"]
    assert stage.told == [BoundEvent(server, arq.uuid, "completed")]
    bound = stage.service.get(ANN, arq.uuid)
    assert bound.handle is not None
    assert (bound.hostname, bound.instance_uuid, bound.handle.info["bus"]) == ("gpu1", server, "3b")
    stage.service.delete_of_server(SERVICE, server)
    stage.service.delete_of_server(SERVICE, server)
    with pytest.raises(NotFound):
        stage.service.get(ANN, arq.uuid)
    assert stage.service.devices()[0].handles[0].arq_uuid is None


def test_the_second_of_two_finds_nothing_left(stage: Stage) -> None:
    (card,) = stage.declare(report("0000:3b:00.0"))
    first, second = stage.arqs(amount=2)
    assert stage.bind([first, second], [card.rp_uuid] * 2) == ["Bound", "BindFailed"]
    assert [event.status for event in stage.told] == ["completed", "failed"]


def test_a_request_is_bound_again_after_it_was_unbound(stage: Stage) -> None:
    (card,) = stage.declare(report("0000:3b:00.0"))
    (arq,) = stage.arqs()
    stage.bind([arq], [card.rp_uuid])
    with pytest.raises(Conflict, match="is Bound"):
        stage.bind([arq], [card.rp_uuid])
    stage.service.bind(SERVICE, {arq.uuid: None})
    unbound = stage.service.get(ANN, arq.uuid)
    assert (unbound.state.value, unbound.instance_uuid, unbound.handle) == ("Unbound", None, None)
    assert stage.bind([arq], [card.rp_uuid]) == ["Bound"]


def test_a_server_gets_all_its_requests_at_once(stage: Stage) -> None:
    (card,) = stage.declare(report("0000:3b:00.0"))
    server = new_id()
    stage.bind(stage.arqs(), [card.rp_uuid], server)
    (late,) = stage.arqs()
    with pytest.raises(Conflict, match=server):
        stage.bind([late], [card.rp_uuid], server)
    assert stage.state(late) == "Initial"


def test_a_provider_that_is_no_accelerator_binds_nothing(stage: Stage) -> None:
    stage.declare(report("0000:3b:00.0"))
    assert stage.bind(stage.arqs(), [new_id()]) == ["BindFailed"]


def test_a_disabled_device_is_not_bound(stage: Stage) -> None:
    (card,) = stage.declare(report("0000:3b:00.0"))
    stage.service.enable(ADMIN, card.device_uuid, False)
    (arq,) = stage.arqs()
    assert stage.bind([arq], [card.rp_uuid]) == ["BindFailed"]
    stage.service.enable(ADMIN, card.device_uuid, True)
    stage.service.bind(SERVICE, {arq.uuid: None})
    assert stage.bind([arq], [card.rp_uuid]) == ["Bound"]


# --- F17: one device, one owner ---


def pci_row(stage: Stage, address: str, **values: object) -> None:
    def write(conn: Connection) -> None:
        compute_nodes.lock(conn, stage.node_id)
        pci_devices.save(conn, [device(stage.node_id, address, **values)])

    stage.database.write(write)


def test_f17_a_card_is_not_given_whole_while_a_guest_has_a_virtual_function_of_it(stage: Stage) -> None:
    pci_row(stage, PF, dev_type=life.DeviceType.PF)
    (card,) = stage.declare(report(VF, PF))
    (arq,) = stage.arqs()
    assert stage.bind([arq], [card.rp_uuid]) == ["Bound"]
    assert stage.conditions() == [Condition.ACCELERATOR]
    with stage.database.read() as conn:
        assert pci_devices.pools(conn) == {}  # so that no claim can take it
    stage.service.bind(SERVICE, {arq.uuid: None})
    assert stage.conditions() == [Condition.OK]


def test_f17_a_virtual_function_is_not_given_while_a_guest_has_its_card(stage: Stage) -> None:
    owner = new_id()
    pci_row(stage, PF, dev_type=life.DeviceType.PF, status=Status.ALLOCATED, instance_uuid=owner, request_id="r")
    (card,) = stage.declare(report(VF, PF))
    assert stage.bind(stage.arqs(), [card.rp_uuid]) == ["BindFailed"]
    assert stage.conditions() == [Condition.OK]


def test_f17_a_card_as_an_accelerator_keeps_its_virtual_functions_from_others(stage: Stage) -> None:
    pci_row(stage, VF, dev_type=life.DeviceType.VF, parent_addr=PF)
    pci_row(stage, "0000:5e:00.0")
    (card,) = stage.declare(report(PF))
    stage.bind(stage.arqs(), [card.rp_uuid])
    assert stage.conditions() == [Condition.OK, Condition.ACCELERATOR]


# --- F18: a request is its project's ---


def test_f18_two_projects_do_not_see_each_others_requests(stage: Stage) -> None:
    (mine,), (theirs,) = stage.arqs(ANN), stage.arqs(BOB)
    assert [arq.uuid for arq in stage.service.list(ANN)] == [mine.uuid]
    assert {arq.uuid for arq in stage.service.list(ADMIN)} == {mine.uuid, theirs.uuid}
    with pytest.raises(NotFound):
        stage.service.get(ANN, theirs.uuid)
    with pytest.raises(NotFound):
        stage.service.delete(ANN, [theirs.uuid])
    assert stage.state(theirs) == "Initial"


def test_f18_only_a_service_binds(stage: Stage) -> None:
    (card,) = stage.declare(report("0000:3b:00.0"))
    (arq,) = stage.arqs(ANN)
    binding = Binding("gpu1", str(card.rp_uuid), new_id())
    for caller in (ANN, BOB, ADMIN):
        with pytest.raises(Forbidden, match="role service"):
            stage.service.bind(caller, {arq.uuid: binding})
    stage.service.bind(SERVICE, {arq.uuid: binding})
    for caller in (ANN, ADMIN):
        with pytest.raises(Forbidden, match="role service"):
            stage.service.delete(caller, [arq.uuid])
        with pytest.raises(Forbidden):
            stage.service.delete_of_server(caller, binding.instance_uuid)
    assert stage.state(arq) == "Bound"


def test_f18_a_request_that_a_service_made_is_the_servers_owners_once_it_is_bound(stage: Stage) -> None:
    (card,) = stage.declare(report("0000:3b:00.0"))
    (arq,) = stage.arqs(SERVICE)
    assert stage.service.list(ANN) == ()
    stage.service.bind(SERVICE, {arq.uuid: Binding("gpu1", str(card.rp_uuid), new_id(), "physics")})
    assert [each.uuid for each in stage.service.list(ANN)] == [arq.uuid]
    assert stage.service.list(BOB) == ()


def test_an_owner_deletes_what_is_not_bound(stage: Stage) -> None:
    (arq,) = stage.arqs(ANN)
    with pytest.raises(NotFound, match="unknown"):
        stage.service.delete(ANN, [arq.uuid, "unknown"])
    assert stage.service.list(ANN) == ()


def given(stage: Stage, task: TaskState | None) -> tuple[Arq, str]:
    """A request that a server's guest has, or is about to have; answers the server, too."""
    (card,) = stage.declare(report("0000:3b:00.0"))
    (arq,) = stage.arqs(ANN)

    def boot(conn: Connection) -> str:
        made = servers.create(conn, server("s1"))
        servers.place(conn, made.uuid, "gpu1", "gpu1", stage.node_id)
        servers.update(conn, made.uuid, task_state=task)
        server_arqs.insert(conn, [ServerArq(made.uuid, 1, "infer", "physics", "device_profile_0", None, arq.uuid)])
        return made.uuid

    uuid_ = stage.database.write(boot)
    stage.bind([arq], [card.rp_uuid], uuid_)
    stage.database.write(lambda conn: server_arqs.note_attached(conn, arq.uuid, "PCI", {}, new_id(), None))
    return arq, uuid_


@pytest.mark.parametrize("task", [TaskState.SPAWNING, None, TaskState.DELETING])
def test_what_a_guest_may_have_is_taken_away_by_nobody(stage: Stage, task: TaskState | None) -> None:
    """From before it is started until it is gone, not as long as the server is ACTIVE."""
    arq, uuid_ = given(stage, task)
    for take in (
        lambda: stage.service.delete(SERVICE, [arq.uuid]),
        lambda: stage.service.delete_of_server(SERVICE, uuid_),
        lambda: stage.service.bind(SERVICE, {arq.uuid: None}),
    ):
        with pytest.raises(Conflict, match="delete the server"):
            take()
    assert stage.state(arq) == "Bound"
    stage.database.write(lambda conn: server_arqs.note_returned(conn, uuid_))
    stage.service.delete_of_server(SERVICE, uuid_)
    assert stage.service.list(ADMIN) == ()


def test_what_somebody_bound_by_hand_to_a_running_server_can_be_taken_back(stage: Stage) -> None:
    """Its guest doesn't have it."""
    (card,) = stage.declare(report("0000:3b:00.0"))
    (arq,) = stage.arqs(ANN)

    def boot(conn: Connection) -> str:
        made = servers.create(conn, server("s1", launched_at=utcnow()))
        servers.place(conn, made.uuid, "gpu1", "gpu1", stage.node_id)
        return made.uuid

    uuid_ = stage.database.write(boot)
    for _ in range(2):
        assert stage.bind([arq], [card.rp_uuid], uuid_) == ["Bound"]
        stage.service.bind(SERVICE, {arq.uuid: None})
    stage.bind([arq], [card.rp_uuid], uuid_)
    stage.service.delete(SERVICE, [arq.uuid])
    assert stage.service.devices()[0].handles[0].arq_uuid is None


# --- profiles ---


def test_profiles_are_an_administrators(stage: Stage) -> None:
    with pytest.raises(Forbidden, match="role admin"):
        stage.service.create_profile(ANN, "infer", [{"resources:PGPU": "1"}])
    stage.service.create_profile(ADMIN, "infer", [{"resources:PGPU": "1"}, {"resources:FPGA": "2"}])
    assert len(stage.service.create(ANN, "infer")) == 3
    assert [arq.device_profile_group_id for arq in stage.service.create(ANN, "infer", group_id=1)] == [1, 1]
    with pytest.raises(Invalid, match="groups 0 to 1"):
        stage.service.create(ANN, "infer", group_id=2)
    with pytest.raises(NotFound, match="nothing"):
        stage.service.create(ANN, "nothing")
    with pytest.raises(Conflict, match="is used by"):
        stage.service.delete_profiles(ADMIN, ["infer"])
    stage.service.delete(ANN, [arq.uuid for arq in stage.service.list(ANN)])
    with pytest.raises(Forbidden):
        stage.service.delete_profiles(ANN, ["infer"])
    stage.service.delete_profiles(ADMIN, ["infer"])
    assert stage.service.profiles() == ()

"""A server's accelerator requests on its host: events that come never, early and twice, and what can't be given to a guest."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from jetbridge.accelerator import events
from jetbridge.accelerator.service import BoundEvent
from jetbridge.compute.arqs import attach_accelerators, drop_accelerators, drop_stray_accelerators
from jetbridge.compute.domain import domain_xml, verify_devices
from jetbridge.compute.host import AgentHost
from jetbridge.config.settings import Settings
from jetbridge.db import accelerators, interfaces, server_arqs
from jetbridge.errors import BuildAborted, DeviceIdentityMismatch
from jetbridge.model.accelerator import Accelerator, AttachHandle, AttachType, ServerArq
from jetbridge.model.flavor import Flavor
from jetbridge.model.server import NetworkRequest, Server
from jetbridge.pci.port import VnicType
from jetbridge.virt.guest import hostdevs_of
from tests.servers.cyborg import FakeCyborg, Request, arq, fake_cyborg
from tests.unit.compute.conftest import CONTEXT, T4, Bench, MakeBench

FLAVOR = Flavor(
    id=1, flavorid="f", name="f", vcpus=1, memory_mb=512, root_gb=1, extra_specs={"accel:device_profile": "infer"}
)
CARD = {"address": "0000:01:00.0", **T4}


@dataclass
class Stage:
    bench: Bench
    cyborg: FakeCyborg
    host: AgentHost
    server: Server
    arqs: list[dict[str, Any]]

    def attach(self) -> None:
        attach_accelerators(self.host, CONTEXT, self.server, lambda: None)

    def tell(self, uuid_: str, status: str = "completed") -> None:
        events.deliver(self.host.database, self.host.bus, CONTEXT, [BoundEvent(self.server.uuid, uuid_, status)])

    def rows(self) -> tuple[ServerArq, ...]:
        with self.host.database.read() as conn:
            return server_arqs.of_server(conn, self.server.uuid)

    def xml(self) -> str:
        return domain_xml(self.host, CONTEXT, self.server, None, None, ())


@pytest.fixture
def stage(bench: MakeBench) -> Iterator[Stage]:
    """A server with two requests, which the service answers as ``arqs`` say."""
    made = bench(
        devices=[CARD, {**CARD, "address": "0000:02:00.0"}], device_spec=[], settings=Settings(arq_binding_timeout=30)
    )
    server = made.server(flavor=FLAVOR)
    with fake_cyborg() as cyborg:
        uuids = [str(uuid.uuid4()) for _ in range(2)]
        second = {"domain": "0000", "bus": "2", "device": "0", "function": "0"}
        found = [arq(uuids[0], server.uuid), arq(uuids[1], server.uuid, attach_handle_info=second)]
        rows = [
            ServerArq(server.uuid, 1, "infer", "p", f"device_profile_{index}", None, each, "h1", "rp")
            for index, each in enumerate(uuids)
        ]
        made.host.database.write(lambda conn: server_arqs.insert(conn, rows))
        stage = Stage(made, cyborg, replace(made.host, accelerator_client=cyborg.client), server, found)
        cyborg.answer = lambda request: (200, {"arqs": stage.arqs}) if request.method == "GET" else (204, "")
        yield stage


def test_case_121_what_is_bound_already_is_not_waited_for(stage: Stage) -> None:
    stage.attach()
    assert [request.method for request in stage.cyborg.requests] == ["GET"]
    assert [row.identity for row in stage.rows()] == ["0000:01:00.0 [10de:1eb8]", "0000:02:00.0 [10de:1eb8]"]
    assert sorted(hostdevs_of(stage.xml())) == ["0000:01:00.0", "0000:02:00.0"]
    assert stage.xml().count('managed="yes"') == 2


def under_way(stage: Stage) -> list[dict[str, Any]]:
    """The second request's binding takes a while; answers how it ends."""
    ended, stage.arqs = stage.arqs, [stage.arqs[0], {**stage.arqs[1], "state": "BindStarted", "attach_handle_type": ""}]
    return ended


def test_an_event_ends_the_wait(stage: Stage) -> None:
    ended = under_way(stage)
    asked = threading.Event()

    def answer(request: Request) -> tuple[int, Any]:
        found = stage.arqs
        asked.set()
        return 200, {"arqs": found}

    stage.cyborg.answer = answer

    def bound() -> None:
        assert asked.wait(30)
        stage.arqs = ended
        for _ in range(2):  # it may come twice
            stage.tell(ended[1]["uuid"])
        stage.host.events.tell(stage.server.uuid)

    telling = threading.Thread(target=bound)
    telling.start()
    stage.attach()
    telling.join()
    assert [row.attach_type for row in stage.rows()] == ["PCI", "PCI"]
    assert len(stage.cyborg.requests) == 2


def test_an_event_that_came_before_the_wait_counts(stage: Stage) -> None:
    ended = under_way(stage)
    stage.tell(ended[1]["uuid"])

    def answer(request: Request) -> tuple[int, Any]:
        found, stage.arqs = stage.arqs, ended  # bound right after it was asked
        return 200, {"arqs": found}

    stage.cyborg.answer = answer
    stage.attach()
    assert [row.attach_type for row in stage.rows()] == ["PCI", "PCI"]


def test_an_event_that_never_comes_ends_the_build(stage: Stage) -> None:
    ended = under_way(stage)
    stage.host = replace(stage.host, settings=replace(stage.host.settings, arq_binding_timeout=1))
    with pytest.raises(BuildAborted, match="were not bound within 1 s") as aborted:
        stage.attach()
    assert ended[1]["uuid"] in aborted.value.message
    assert ended[0]["uuid"] not in aborted.value.message


def test_a_build_that_nobody_wants_any_more_waits_no_longer(stage: Stage) -> None:
    under_way(stage)

    def unwanted() -> None:
        raise BuildAborted(server=stage.server.uuid, reason="it is being deleted")

    with pytest.raises(BuildAborted, match="being deleted"):
        attach_accelerators(stage.host, CONTEXT, stage.server, unwanted)


def test_d19_a_binding_that_failed_fails_the_build(stage: Stage) -> None:
    stage.arqs[1] = {**stage.arqs[1], "state": "BindFailed"}
    with pytest.raises(BuildAborted, match=r"device_profile_1 .* is BindFailed"):
        stage.attach()


def test_a_request_that_is_gone_fails_the_build(stage: Stage) -> None:
    stage.arqs.pop()
    stage.host = replace(stage.host, settings=replace(stage.host.settings, arq_binding_timeout=1))
    with pytest.raises(BuildAborted, match="were not bound"):
        stage.attach()


def test_a_request_of_our_own_service_that_was_taken_back_since_it_was_asked_for_fails_the_build(stage: Stage) -> None:
    """Its handle is the next server's by then."""
    handle = AttachHandle(str(uuid.uuid4()), AttachType.PCI, "0000:02:00.0", {}, arq_uuid=str(uuid.uuid4()))
    stage.arqs[1] = {**stage.arqs[1], "attach_handle_uuid": handle.uuid}
    card = Accelerator(
        uuid=str(uuid.uuid4()),
        device_uuid=str(uuid.uuid4()),
        compute_node_id=stage.server.compute_node_id or 1,
        hostname="h1",
        name="h1_accelerator_0000:02:00.0",
        address="0000:02:00.0",
        vendor_id="10de",
        product_id="1eb8",
        device_type="GPU",
        resource_class="PGPU",
        handles=(handle,),
    )
    stage.host.database.write(lambda conn: accelerators.save(conn, [card]))
    with pytest.raises(BuildAborted, match="was deleted or unbound"):
        stage.attach()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attach_handle_type": "TEST_PCI"}, "of type 'TEST_PCI', not PCI or MDEV"),
        ({"attach_handle_info": {}}, "names no PCI function"),
        (
            {"attach_handle_info": {"domain": "0", "bus": "9", "device": "0", "function": "0"}},
            "no function 0000:09:00.0",
        ),
        ({"attach_handle_type": "MDEV"}, "names no mediated device"),
        ({"attach_handle_type": "MDEV", "attach_handle_uuid": str(uuid.UUID(int=7))}, "has no mediated device"),
    ],
)
def test_what_cannot_be_given_to_a_guest_fails_the_build(stage: Stage, change: dict[str, Any], said: str) -> None:
    stage.arqs[1] = {**stage.arqs[1], **change}
    with pytest.raises(BuildAborted, match=said):
        stage.attach()


# --- of ports ---

PORT = NetworkRequest("data", "fa:16:3e:00:00:01", None, "n", "port-1", VnicType.ACCELERATOR_DIRECT, None, made=False)
WIRED = {"domain": "0000", "bus": "2", "device": "0", "function": "0", "physical_network": "n1"}


def of_port(stage: Stage, **handle: Any) -> None:
    """The second request is a port's."""
    stage.host.database.write(lambda conn: interfaces.add(conn, stage.server.uuid, [PORT]))
    stage.server = stage.bench.get(stage.server)
    (_, second) = stage.rows()
    stage.host.database.write(lambda conn: server_arqs.forget(conn, [second.id]))
    stage.host.database.write(lambda conn: server_arqs.insert(conn, [replace(second, port_id="port-1")]))
    stage.arqs[1] = {**stage.arqs[1], "attach_handle_info": WIRED, **handle}


def test_what_a_port_s_request_gave_is_its_interface_and_no_device_of_the_flavor(stage: Stage) -> None:
    of_port(stage)
    stage.attach()
    assert hostdevs_of(stage.xml()) == ("0000:01:00.0",)
    verify_devices(stage.host, CONTEXT, stage.server)
    stage.bench.change({"devices": [CARD, {**CARD, "address": "0000:02:00.0", "product_id": "26b9"}]})
    with pytest.raises(DeviceIdentityMismatch, match=r"0000:02:00.0 \[10de:1eb8\]"):
        verify_devices(stage.host, CONTEXT, stage.server)


@pytest.mark.parametrize(
    ("handle", "said"),
    [
        ({"attach_handle_info": {**WIRED, "physical_network": None}}, "port port-1: .* has no physical_network"),
        (
            {"attach_handle_type": "MDEV", "attach_handle_uuid": str(uuid.UUID(int=7))},
            "type MDEV, and a port needs PCI",
        ),
    ],
)
def test_what_can_not_be_a_nic_fails_the_build(stage: Stage, handle: dict[str, Any], said: str) -> None:
    of_port(stage, **handle)
    with pytest.raises(BuildAborted, match=said):
        stage.attach()


@pytest.mark.parametrize(("left", "said"), [(0, "for port port-1"), (1, "of device profile 'infer'")])
def test_a_port_or_a_flavor_whose_request_is_not_there_fails_the_build(stage: Stage, left: int, said: str) -> None:
    of_port(stage)
    gone = stage.rows()[1 - left]
    stage.host.database.write(lambda conn: server_arqs.forget(conn, [gone.id]))
    with pytest.raises(BuildAborted, match=f"no accelerator requests? {said}"):
        stage.attach()


def test_a_profile_without_requests_fails_the_build(stage: Stage) -> None:
    stage.host.database.write(lambda conn: server_arqs.forget(conn, [row.id for row in stage.rows()]))
    with pytest.raises(BuildAborted, match="no accelerator requests of device profile 'infer'"):
        stage.attach()


def test_f28_another_function_at_the_place_of_an_accelerator_is_noticed(stage: Stage) -> None:
    stage.attach()
    verify_devices(stage.host, CONTEXT, stage.server)
    stage.bench.change({"devices": [CARD, {**CARD, "address": "0000:02:00.0", "product_id": "26b9"}]})
    with pytest.raises(DeviceIdentityMismatch, match=r"0000:02:00.0 \[10de:1eb8\].*0000:02:00.0 \[10de:26b9\]"):
        verify_devices(stage.host, CONTEXT, stage.server)


def test_giving_back_forgets_what_is_gone(stage: Stage) -> None:
    stage.attach()
    stage.cyborg.answer = lambda request: (404, {}) if request.path.count("/") > 1 else (204, "")
    assert drop_accelerators(stage.host, CONTEXT, stage.server.uuid)
    assert stage.rows() == ()
    (deletion,) = [request for request in stage.cyborg.requests if request.method == "DELETE"]
    assert deletion.query == {"instance": stage.server.uuid}


def test_what_the_service_keeps_is_tried_again(stage: Stage) -> None:
    stage.cyborg.answer = lambda request: (500, {})
    assert not drop_accelerators(stage.host, CONTEXT, stage.server.uuid)
    assert len(stage.rows()) == 2


def test_what_a_guest_still_runs_with_is_not_given_back_as_a_stray(stage: Stage) -> None:
    stage.attach()
    stage.cyborg.answer = lambda request: (404, {}) if request.path.count("/") > 1 else (204, "")
    mine = frozenset({stage.server.uuid})
    assert not drop_stray_accelerators(stage.host, "h1", placed=frozenset(), domains=mine)
    assert not drop_stray_accelerators(stage.host, "h1", placed=mine, domains=frozenset())
    assert len(stage.rows()) == 2
    assert drop_stray_accelerators(stage.host, "h1", placed=frozenset(), domains=frozenset())
    assert stage.rows() == ()

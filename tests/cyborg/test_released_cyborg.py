"""What the client and our Compute API take for granted of Cyborg, asked of its released package."""

from __future__ import annotations

import uuid

import httpx
import pytest

from jetbridge.accelerator.bindings import Wanted
from jetbridge.accelerator.service import Binding
from jetbridge.db import server_arqs
from jetbridge.errors import AcceleratorRequestBindingFailed, AcceleratorRequestOpFailed, DeviceProfileError
from jetbridge.model.accelerator import ArqState
from tests.cyborg.conftest import Cyborg

HOST = "gpu1"


def new_id() -> str:
    return str(uuid.uuid4())


@pytest.fixture(scope="session")
def profile(cyborg: Cyborg) -> str:
    """Two groups: an FPGA of the fake driver each."""
    groups = [{"resources:FPGA": "1", "trait:CUSTOM_FAKE_DEVICE": "required"}, {"resources:FPGA": "1"}]
    answer = httpx.post(f"{cyborg.url}/device_profiles", json=[{"name": "fpgas", "groups": groups}])
    assert answer.status_code == 201, answer.text
    return "fpgas"


@pytest.fixture
def server(cyborg: Cyborg) -> str:
    if not cyborg.cloud.get("/flavors/small").is_success:
        cyborg.cloud.flavor()
    return cyborg.cloud.booted()


def providers(cyborg: Cyborg) -> dict[str, list[str]]:
    return {f"device_profile_{group}": [cyborg.provider] for group in (0, 1)}


def events(cyborg: Cyborg, server: str) -> list[str | None]:
    with cyborg.cloud.database.read() as conn:
        return [row.event for row in server_arqs.of_server(conn, server)]


def test_a_profile_is_found_by_name(cyborg: Cyborg, profile: str) -> None:
    found = cyborg.client.profile(profile)
    assert found.groups[0] == {"resources:FPGA": "1", "trait:CUSTOM_FAKE_DEVICE": "required"}
    with pytest.raises(DeviceProfileError, match="got nothing"):
        cyborg.client.profile("missing")


def test_requests_are_created_bound_told_and_deleted(cyborg: Cyborg, profile: str, server: str) -> None:
    project = new_id()
    made = cyborg.bindings.create(server, 1, project, [Wanted(profile)])
    assert [row.requester_id for row in made] == ["device_profile_0", "device_profile_1"]
    assert {arq.state for arq in cyborg.client.unbound()} == {ArqState.INITIAL}
    cyborg.bindings.bind(server, HOST, providers(cyborg))
    arqs = cyborg.client.of_server(server, only_resolved=True)
    assert [(arq.state, arq.hostname, arq.rp_uuid) for arq in arqs] == [(ArqState.BOUND, HOST, cyborg.provider)] * 2
    assert {arq.attach_type for arq in arqs} == {"TEST_PCI"}  # which no guest can be given: the fake driver's own
    assert {"domain", "bus", "device", "function"} <= arqs[0].attach_info.keys()
    assert events(cyborg, server) == ["completed", "completed"]  # by POST /os-server-external-events
    assert cyborg.bindings.drop(server)
    with pytest.raises(AcceleratorRequestOpFailed, match="has none"):
        cyborg.client.of_server(server)
    assert cyborg.client.get(arqs[0].uuid) is None


def test_a_bound_request_is_the_servers_owners(cyborg: Cyborg, profile: str, server: str) -> None:
    project = new_id()
    cyborg.bindings.create(server, 1, project, [Wanted(profile)])
    cyborg.bindings.bind(server, HOST, providers(cyborg))

    def seen(by: str) -> set[str]:
        headers = {"X-Test-Project": by, "X-Test-Roles": "member,reader"}
        return {arq["uuid"] for arq in httpx.get(f"{cyborg.url}/accelerator_requests", headers=headers).json()["arqs"]}

    assert seen(project) == {arq.uuid for arq in cyborg.client.of_server(server)}
    assert seen(new_id()) == set()
    assert cyborg.bindings.drop(server)


def test_a_binding_that_is_refused_leaves_nothing(cyborg: Cyborg, profile: str, server: str) -> None:
    cyborg.bindings.create(server, 1, new_id(), [Wanted(profile)])
    with pytest.raises(AcceleratorRequestBindingFailed, match="invalid response"):
        cyborg.bindings.bind(server, HOST, {f"device_profile_{group}": [new_id()] for group in (0, 1)})
    assert cyborg.bindings.drop(server)
    assert cyborg.client.unbound() == ()


def test_all_of_a_servers_requests_are_bound_at_once(cyborg: Cyborg, profile: str, server: str) -> None:
    """Why binding is one call: a second one for the same server is refused."""
    cyborg.bindings.create(server, 1, new_id(), [Wanted(profile)])
    cyborg.bindings.bind(server, HOST, providers(cyborg))
    late = cyborg.client.create(profile)
    with pytest.raises(AcceleratorRequestBindingFailed, match="already has accelerator requests"):
        cyborg.client.bind({arq.uuid: Binding(HOST, cyborg.provider, server) for arq in late})
    assert cyborg.bindings.drop(server)
    cyborg.client.delete([arq.uuid for arq in late])
    assert cyborg.client.unbound() == ()

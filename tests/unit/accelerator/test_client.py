"""The client's calls as a Cyborg gets them, and what it makes of answers; the cases are numbered as in the specification's catalogue."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jetbridge.accelerator.client import AcceleratorClient
from jetbridge.accelerator.service import Binding
from jetbridge.accelerator.session import external_adapter
from jetbridge.config.settings import Settings
from jetbridge.errors import (
    AcceleratorRequestBindingFailed,
    AcceleratorRequestOpFailed,
    DeviceProfileError,
    InvalidConfiguration,
    JetbridgeError,
)
from tests.servers.cyborg import FakeCyborg, Request, arq, fake_cyborg

BINDING = {"a1": Binding("gpu7", "rp", "server", "physics")}
CALLS: list[tuple[type[JetbridgeError], Callable[[AcceleratorClient], Any]]] = [
    (DeviceProfileError, lambda client: client.profile("infer")),
    (AcceleratorRequestOpFailed, lambda client: client.create("infer")),
    (AcceleratorRequestBindingFailed, lambda client: client.bind(BINDING)),
    (AcceleratorRequestOpFailed, lambda client: client.of_server("server")),
    (AcceleratorRequestOpFailed, lambda client: client.unbound()),
    (AcceleratorRequestOpFailed, lambda client: client.delete_of_server("server")),
]


@pytest.fixture
def cyborg() -> Iterator[FakeCyborg]:
    with fake_cyborg() as fake:
        yield fake


def nobody_there() -> AcceleratorClient:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return AcceleratorClient(external_adapter(Settings(cyborg_endpoint_override=f"http://127.0.0.1:{port}/v2")))


@pytest.mark.parametrize("status", [404, 500])
def test_case_115_a_refusal_is_an_invalid_response(cyborg: FakeCyborg, status: int) -> None:
    cyborg.answer = lambda request: (status, {"error_message": {"faultstring": "so not"}})
    for error, call in CALLS:
        with pytest.raises(error, match=f"invalid response.*{status} so not"):
            call(cyborg.client)


def test_case_115_no_answer_could_not_communicate() -> None:
    for error, call in CALLS:
        with pytest.raises(error, match="could not communicate"):
            call(nobody_there())


def test_case_116_a_profile_is_there_exactly_once(cyborg: FakeCyborg) -> None:
    one = {"uuid": "u", "name": "infer", "groups": [{"resources:PGPU": "1"}]}
    cyborg.answer = lambda request: (200, {"device_profiles": [one, one]})
    with pytest.raises(DeviceProfileError, match=r"expected one.*got 2"):
        cyborg.client.profile("infer")
    for wrong in ("infer,infer", "infer,", ""):  # the service reads a comma as several names, and none as all
        cyborg.answer = lambda request: (200, {"device_profiles": [one]})
        with pytest.raises(DeviceProfileError, match="got nothing"):
            cyborg.client.profile(wrong)
    cyborg.answer = lambda request: (200, {"device_profiles": []})
    with pytest.raises(DeviceProfileError, match="got nothing"):
        cyborg.client.profile("infer")
    cyborg.answer = lambda request: (200, {"device_profiles": [one]})
    assert cyborg.client.profile("infer").groups == ({"resources:PGPU": "1"},)
    assert cyborg.requests[-1].query == {"name": "infer"}


def test_no_requests_are_an_error(cyborg: FakeCyborg) -> None:
    cyborg.answer = lambda request: (200, {"arqs": []})
    with pytest.raises(AcceleratorRequestOpFailed, match="create"):
        cyborg.client.create("infer")
    with pytest.raises(AcceleratorRequestOpFailed, match="get"):
        cyborg.client.of_server("server", only_resolved=True)


def test_only_resolved_leaves_out_what_is_under_way(cyborg: FakeCyborg) -> None:
    states = ["Initial", "BindStarted", "Bound", "BindFailed", "Deleting", "Unbound"]
    cyborg.answer = lambda request: (200, {"arqs": [arq(state, "server", state) for state in states]})
    found = cyborg.client.of_server("server", only_resolved=True)
    assert [each.uuid for each in found] == ["Bound", "BindFailed", "Deleting"]
    cyborg.answer = lambda request: (200, {"arqs": [arq("a", "server", "Initial")]})
    assert cyborg.client.of_server("server", only_resolved=True) == ()


def test_binding_is_one_patch_of_all(cyborg: FakeCyborg) -> None:
    cyborg.answer = lambda request: (202, "")
    cyborg.client.bind({**BINDING, "a2": Binding("gpu7", "rp2", "server", "physics")})
    (request,) = cyborg.requests
    assert (request.method, request.path, set(request.body)) == ("PATCH", "/accelerator_requests", {"a1", "a2"})
    assert request.headers["OpenStack-API-Version"] == "accelerator 2.1"  # since which there is a project
    assert request.body["a1"] == [
        {"path": "/hostname", "op": "add", "value": "gpu7"},
        {"path": "/device_rp_uuid", "op": "add", "value": "rp"},
        {"path": "/instance_uuid", "op": "add", "value": "server"},
        {"path": "/project_id", "op": "add", "value": "physics"},
    ]


def test_case_120_deleting_by_uuid_fails_in_the_log_alone(cyborg: FakeCyborg, caplog: pytest.LogCaptureFixture) -> None:
    cyborg.answer = lambda request: (404, {})
    with caplog.at_level(logging.WARNING):
        cyborg.client.delete(["a1", "a2"])
        nobody_there().delete(["a3"])
    assert cyborg.requests[0].query == {"arqs": "a1,a2"}
    assert "a1, a2" in caplog.text
    assert "a3" in caplog.text


@pytest.mark.parametrize("answer", ["not json", {"arqs": [{"uuid": "a"}]}, {"arqs": [arq("a", "s", "Sideways")]}])
def test_an_answer_that_makes_no_sense_is_an_error(cyborg: FakeCyborg, answer: Any) -> None:
    cyborg.answer = lambda request: (200, answer)
    with pytest.raises(AcceleratorRequestOpFailed):
        cyborg.client.of_server("server")


def test_a_request_that_is_gone_is_none(cyborg: FakeCyborg) -> None:
    def answer(request: Request) -> tuple[int, Any]:
        return (200, arq("a1", "server")) if request.path.endswith("/a1") else (404, {})

    cyborg.answer = answer
    found = cyborg.client.get("a1")
    assert found is not None
    assert found.attach_info["bus"] == "1"
    assert cyborg.client.get("a2") is None


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"cyborg_auth_type": "password", "cyborg_auth_url": "http://k/v3"}, "username"),
        ({"cyborg_auth_type": "http_basic", "cyborg_endpoint_override": "http://c/v2"}, "password"),
        ({"cyborg_auth_type": "none", "cyborg_auth_url": "http://k/v3"}, "endpoint_override"),
    ],
)
def test_options_that_lack_something_are_refused(options: dict[str, str], missing: str) -> None:
    with pytest.raises(InvalidConfiguration, match=missing):
        external_adapter(Settings(**options))  # type: ignore[arg-type]

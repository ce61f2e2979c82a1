"""Whatever is sent, the answer is an error of the door's shape that says what is wrong: never a 500."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetbridge.api import compute_routes
from jetbridge.api.http import BODY_LIMIT
from jetbridge.api.microversions import MAXIMUM
from tests.unit.api.clouds import IMAGE, Cloud, message

PREFIX = "/compute/v2.1"


def _operations() -> list[tuple[str, str]]:
    app = FastAPI()
    app.include_router(compute_routes.router(None))  # type: ignore[arg-type]  # nothing is asked of it
    return sorted(
        (method.upper(), path.removeprefix(PREFIX))
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if path.startswith(f"{PREFIX}/")
    )


OPERATIONS = _operations()


texts = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(
    ["", " ", "a" * 300, "\ud800", "nul\x00", "../..", "%", "-1", "99999999999999999999999", "NaN", "💥", "🏳️‍🌈"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
KEYS = st.sampled_from(
    """server flavor name ram vcpus disk id swap description imageRef flavorRef networks uuid min_count max_count
    metadata tags tag meta key_name user_data config_drive availability_zone host keypair public_key type extra_specs
    pci_passthrough:alias os-stop os-start reboot lock unlock os-getConsoleOutput length status binary disabled_reason
    forced_down addTenantAccess tenant block_device_mapping_v2 boot_index OS-SCH-HNT:scheduler_hints hostname
    hypervisor_hostname locked_reason rxtx_factor""".split()  # noqa: SIM905
)
bodies = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | texts, inner, max_size=5),
    max_leaves=12,
)
wrapped = st.builds(
    lambda outer, inner: {outer: inner},
    st.sampled_from(["server", "flavor", "keypair", "metadata", "meta", "tags", "extra_specs", "reboot", "lock"]),
    bodies,
)
versions = st.sampled_from(["2.1", "2.37", "2.47", "2.79", str(MAXIMUM), "latest"])


@given(st.sampled_from(OPERATIONS), texts, bodies | wrapped, versions, st.lists(st.tuples(texts, texts), max_size=3))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_input_makes_a_server_error(
    shared: Cloud, operation: tuple[str, str], key: str, body: Any, version: str, query: list[tuple[str, str]]
) -> None:
    method, template = operation
    path = "/".join(_quoted(key) if part.startswith("{") else part for part in template.split("/"))
    answer = shared.client.request(
        method,
        f"/compute/v2.1{path}",
        content=None if method == "GET" else json.dumps(body).encode(),
        headers={"OpenStack-API-Version": f"compute {version}", "Content-Type": "application/json"},
        params=[(_encodable(name), _encodable(value)) for name, value in query],
    )
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert message(answer)


FILTERS = """all_tenants changes-since changes-before deleted flavor image limit locked marker name not-tags status
sort_key sort_dir tags uuid project_id power_state vm_state task_state with_servers is_public minRam minDisk user_id
hypervisor_hostname_pattern reservation_id""".split()  # noqa: SIM905


@given(
    st.sampled_from([path for method, path in OPERATIONS if method == "GET"]),
    st.dictionaries(st.sampled_from(FILTERS), texts | st.integers().map(str), min_size=1, max_size=4),
    versions,
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_filter_makes_a_server_error(shared: Cloud, path: str, query: dict[str, str], version: str) -> None:
    params = {name: _encodable(value) for name, value in query.items()}
    answer = shared.get(path.replace("{", "").replace("}", ""), params=params, version=version)
    assert answer.status_code < 500, answer.text


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _quoted(text: str) -> str:
    return quote(_encodable(text), safe="") or "x"


@pytest.mark.parametrize(
    ("content", "content_type", "said"),
    [
        (b"{", "application/json", "not valid JSON"),
        (b"", "application/json", "missing"),
        (b"[]", "application/json", "must be a JSON object, not []"),
        (b"{}", "text/plain", "Content-Type 'text/plain' is not supported"),
        (b'{"a": "\xc3"}', "application/json", "could not be read as JSON"),
        (b"[" * 100_000, "application/json", "not deeply nested"),
        (b'{"flavor": {"name": "a"}}', "application/json", "'ram' is a required property"),
        (b'{"flavor": {"name": 5}}', "application/json", "flavor.name. Value: 5."),
        (b'{"flavor": {"colour": 5}}', "application/json", "'colour' was unexpected"),
        (b'{"flavor": {"name": "\\ud800"}}', "application/json", "flavor.name"),
        (b'{"flavor": {"ram": true}}', "application/json", "flavor.ram. Value: True."),
        (b'{"flavor": {"rxtx_factor": NaN}}', "application/json", "flavor.rxtx_factor. Value: nan."),
    ],
)
def test_a_bad_body_is_refused_with_field_value_and_fix(
    shared: Cloud, content: bytes, content_type: str, said: str
) -> None:
    answer = shared.client.post("/compute/v2.1/flavors", content=content, headers={"Content-Type": content_type})
    assert answer.status_code == 400
    assert said in message(answer)


@pytest.mark.parametrize("field", ["name", "imageRef", "flavorRef", "key_name", "user_data", "availability_zone"])
def test_no_text_of_a_server_may_hold_half_a_character(shared: Cloud, field: str) -> None:
    body = {"server": {"name": "web", "imageRef": IMAGE, "flavorRef": "small", field: "\ud800"}}
    content = json.dumps(body).encode()
    answer = shared.client.post(f"{PREFIX}/servers", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert f"server.{field}" in message(answer)


def test_no_address_of_a_nic_may_have_a_zone(shared: Cloud) -> None:
    """A zone is any text: half a character in it broke every list of servers from then on."""
    nic = {"uuid": "data", "fixed_ip": "fe80::1%\ud800"}
    body = {"server": {"name": "web", "imageRef": IMAGE, "flavorRef": "small", "networks": [nic]}}
    content = json.dumps(body).encode()
    answer = shared.client.post(f"{PREFIX}/servers", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "fixed_ip" in message(answer)
    assert "leave out the %" in message(answer)
    assert shared.client.get(f"{PREFIX}/servers/detail").status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/flavors/small/os-extra_specs", {"extra_specs": {"my:note": "a\0"}}, "extra_specs.my:note"),
        (
            "/servers",
            {"server": {"name": "web", "imageRef": IMAGE, "flavorRef": "small", "metadata": {"note": "a\0"}}},
            "server.metadata.note",
        ),
    ],
)
def test_no_value_that_is_kept_may_hold_a_nul(shared: Cloud, path: str, body: dict[str, Any], named: str) -> None:
    """PostgreSQL stores none."""
    answer = shared.ask("POST", path, body)
    assert answer.status_code == 400
    assert named in message(answer)
    assert "NUL" in message(answer)


def test_a_huge_body_is_refused(shared: Cloud) -> None:
    body = {"server": {"name": "a", "imageRef": IMAGE, "flavorRef": "1", "user_data": "A" * BODY_LIMIT}}
    answer = shared.ask("POST", "/servers", body)
    assert answer.status_code == 413
    assert str(BODY_LIMIT) in message(answer)


def test_a_huge_body_without_a_declared_length_is_refused(shared: Cloud) -> None:
    answer = shared.client.post("/compute/v2.1/servers", content=(b"x" * 65536 for _ in range(20)))
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/os-networks", "/os-volumes", "/servers/x/os-nothing", "/nothing", "/images"])
def test_resources_that_do_not_exist_are_404_in_json(shared: Cloud, path: str) -> None:
    answer = shared.get(path)
    assert answer.status_code == 404
    assert "itemNotFound" in answer.json()


def test_a_wrong_method_names_the_right_ones(shared: Cloud) -> None:
    answer = shared.ask("PUT", "/servers", {})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST"
    assert "use GET, POST" in answer.json()["badMethod"]["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"imageRef": "zz"}, "server.imageRef. Value: 'zz'. This is not a UUID: write 8-4-4-4-12 hexadecimal digits."),
        ({"imageRef": 5}, "server.imageRef. Value: 5. Input should be '' or a valid string."),
        ({"networks": "zz"}, "server.networks. Value: 'zz'. Input should be 'none' or 'auto' or a list."),
        ({"networks": [{"uuid": 5}]}, "server.networks.0.uuid. Value: 5. Input should be a valid string."),
        ({"networks": [5]}, "server.networks.0. Value: 5. Input should be an object."),
        (
            {"networks": [{"bogus": 1}]},
            "server.networks.0. Additional properties are not allowed ('bogus' was unexpected)",
        ),
        ({"networks": [{"fixed_ip": "x"}]}, "server.networks.0.fixed_ip. Value: 'x'. 'x' does not appear to be"),
        ({"tags": "x"}, "server.tags. Value: 'x'. Input should be a list."),
        ({"metadata": "x"}, "server.metadata. Value: 'x'. Input should be an object."),
    ],
)
def test_a_field_that_may_be_several_things_is_told_in_words_of_json(
    shared: Cloud, body: dict[str, Any], words: str
) -> None:
    answer = shared.boot(**body)
    assert answer.status_code == 400
    assert f"Invalid input for field/attribute {words}" in message(answer)


def test_a_hint_that_is_neither_text_nor_a_list_is_told_so(shared: Cloud) -> None:
    server = {"name": "web", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}
    answer = shared.ask("POST", "/servers", {"server": server, "OS-SCH-HNT:scheduler_hints": {"a": 5}}, version="2.96")
    assert "scheduler_hints.a. Value: 5. Input should be a valid string or a list." in message(answer)


def test_an_unexpected_error_is_answered_without_its_text(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("secret detail")

    cloud.client.app.add_api_route("/compute/v2.1/broken", broken)  # type: ignore[attr-defined]
    answer = cloud.get("/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-compute-request-id"] in message(answer)
    assert "secret detail" in caplog.text


def test_every_answer_carries_its_request_id(shared: Cloud) -> None:
    for answer in (shared.get("/flavors"), shared.get("/nothing"), shared.get("/flavors", version="9.9")):
        assert answer.headers["x-openstack-request-id"].startswith("req-")
        assert answer.headers["x-compute-request-id"] == answer.headers["x-openstack-request-id"]

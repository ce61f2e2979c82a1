"""What wrong options of ``[placement]`` lead to: an error that names the address, whatever the libraries below make of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from jetbridge.config.settings import Settings
from jetbridge.errors import PlacementRefused, PlacementUnavailable
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.session import placement_adapter
from jetbridge.placement.transport import Transport

Answering = Callable[..., str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """``answering(body, status)``: the URL of a server that answers everything with those."""
    with ExitStack() as stack:

        def start(body: bytes, status: int = 200) -> str:
            class Door(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    self.rfile.read(int(self.headers.get("Content-Length", 0)))
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                do_PUT = do_POST = do_GET

                def log_message(self, format: str, *arguments: object) -> None:
                    pass

            server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield start


def client(**options: str) -> PlacementClient:
    named = {f"placement_{name}": value for name, value in options.items()}
    return PlacementClient(Transport(placement_adapter(Settings(**named))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint_override": "https://127.0.0.1:1", "cafile": "/no/such.pem"},
        {"endpoint_override": f"http://{'a' * 64}.example:8778"},
        {"endpoint_override": "controller:8778"},
    ],
)
def test_what_can_not_be_asked_is_named(options: dict[str, str]) -> None:
    with pytest.raises(PlacementUnavailable) as refused:
        client(**options).providers()
    assert options["endpoint_override"] in refused.value.message


@pytest.mark.parametrize("body", [b"<html>\n<h1>Welcome</h1>", b"[]", b"", b"[" * 100_000])
def test_what_is_no_placement_is_told_as_that(answering: Answering, body: bytes) -> None:
    url = answering(body)
    with pytest.raises(PlacementUnavailable, match="what answers there is no Placement") as refused:
        client(endpoint_override=url).providers()
    assert url in refused.value.message


LACKING: dict[str, tuple[Callable[[PlacementClient], object], str]] = {
    "GET /resource_providers": (lambda asked: asked.providers(), "resource_providers"),
    "GET /resource_providers/a/inventories": (lambda asked: asked.inventories("a"), "resource_provider_generation"),
    "GET /resource_providers/a/usages": (lambda asked: asked.usages("a"), "usages"),
    "GET /resource_providers/a/traits": (lambda asked: asked.traits("a"), "resource_provider_generation"),
    "GET /resource_providers/a/aggregates": (lambda asked: asked.aggregates("a"), "aggregates"),
    "GET /resource_providers/a/allocations": (lambda asked: asked.provider_allocations("a"), "allocations"),
    "GET /allocations/a": (lambda asked: asked.allocations("a"), "allocations"),
    "PUT /resource_providers/a/inventories": (
        lambda asked: asked.set_inventories("a", 1, {}),
        "resource_provider_generation",
    ),
    "PUT /resource_providers/a/traits": (
        lambda asked: asked.set_traits("a", 1, frozenset()),
        "resource_provider_generation",
    ),
    "POST /resource_providers": (lambda asked: asked.create_provider("a", "gpu001"), "uuid"),
}


@pytest.mark.parametrize("request_", LACKING)
def test_an_answer_that_lacks_a_key_is_told_with_request_and_key(answering: Answering, request_: str) -> None:
    ask, key = LACKING[request_]
    with pytest.raises(PlacementUnavailable) as refused:
        ask(client(endpoint_override=answering(b"{}")))
    assert f"what answers there is no Placement: its answer to {request_} has no '{key}'" in refused.value.message


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"resource_providers": [{"uuid": "a"}]}', "has no 'name'"),
        (b'{"resource_providers": null}', 'has another form: {"resource_providers": null}'),
        (b'{"resource_providers": ["a"]}', 'has another form: {"resource_providers": ["a"]}'),
    ],
)
def test_what_is_wrong_further_in_is_told_too(answering: Answering, body: bytes, told: str) -> None:
    with pytest.raises(PlacementUnavailable) as refused:
        client(endpoint_override=answering(body)).providers()
    assert f"its answer to GET /resource_providers {told}" in refused.value.message


@pytest.mark.parametrize("body", [b'{"errors": ["no"]}', b'{"errors": [null]}', b'{"errors": {}}', b"[" * 100_000])
def test_an_error_in_no_form_of_placements_is_told_as_it_came(answering: Answering, body: bytes) -> None:
    with pytest.raises(PlacementRefused) as refused:
        client(endpoint_override=answering(body, 400)).providers()
    assert body.decode()[:300] in refused.value.message


@pytest.mark.parametrize(
    ("url", "shown", "said"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1", "connection refused"),
        ("http://root:secret@127.0.0.1:1/a", "http://root:***@127.0.0.1:1/a", "connection refused"),
        ("http://nowhere.invalid:8778", "http://nowhere.invalid:8778", ""),
    ],
)
def test_who_is_away_is_said_in_words_for_people(url: str, shown: str, said: str) -> None:
    with pytest.raises(PlacementUnavailable) as refused:
        away(url).providers()
    assert refused.value.message.startswith(f"Placement at {shown} doesn't answer: {said}")
    assert "HTTPConnectionPool" not in refused.value.message


def test_who_never_answers_has_timed_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(PlacementUnavailable, match=r"doesn't answer: timed out$"):
            away(f"http://127.0.0.1:{port}", timeout=0.1).providers()


def away(url: str, timeout: float = 5) -> PlacementClient:
    """Of a Placement that isn't waited for."""
    adapter = placement_adapter(Settings(placement_endpoint_override=url))
    adapter.session.timeout = timeout
    seconds = count(0, 100)
    return PlacementClient(Transport(adapter, monotonic=lambda: next(seconds), pause=lambda wait: None))


def test_a_check_waits_for_one_that_hangs_no_longer_than_it_is_told() -> None:
    with socket.socket() as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        with pytest.raises(PlacementUnavailable, match=f"Placement at {url} doesn't answer: timed out"):
            client(endpoint_override=url, auth_type="none").check(0.2)


def test_who_stops_tries_nobody_again() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        adapter = placement_adapter(Settings(placement_endpoint_override=url, placement_auth_type="none"))
        stopping = threading.Event()
        transport = Transport(adapter, pause=lambda wait: stopping.set(), patience=600, stopping=stopping)
        with pytest.raises(PlacementUnavailable, match="connection refused"):
            PlacementClient(transport).provider_named("h1")

"""Each request over HTTP is a span: the front door's, whose children are what its handler sends."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from jetbridge.api import errors
from jetbridge.api.http import RequestFrame
from jetbridge.errors import ServerNotFound
from jetbridge.model.events import Seam
from tests.unit.journey.spans import Recorder

SERVER = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def door(recorder: Recorder) -> TestClient:
    routes, outer = APIRouter(), APIRouter()

    @routes.get("/servers/{server_id}")
    def show(server_id: str) -> Any:
        raise ServerNotFound(server=server_id)

    @routes.post("/servers", status_code=202)
    def create() -> Any:
        with recorder.seams.crossing(Seam.CAST, "api", "conductor", "build_servers", request_id="req-1"):
            return {}

    @routes.delete("/servers/{server_id}")
    def crash(server_id: str) -> Any:
        raise ZeroDivisionError

    outer.include_router(routes, prefix="/compute/v2.1")
    app = FastAPI()
    errors.install(app)
    app.include_router(outer)
    app.add_middleware(RequestFrame, seams=recorder.seams)
    return TestClient(app)


def test_what_a_handler_sends_is_a_child_of_the_request(door: TestClient, recorder: Recorder) -> None:
    """Handlers run in other threads than the door."""
    answer = door.post("/compute/v2.1/servers")
    cast, rest = recorder.spans
    assert (rest.seam, rest.source, rest.target, rest.parent_id) == (Seam.REST, "client", "api", None)
    assert rest.what == "POST /compute/v2.1/servers"
    assert rest.request_id == answer.headers["x-openstack-request-id"]
    assert rest.essentials == {"status": "202"}
    assert (cast.trace_id, cast.parent_id) == (rest.trace_id, rest.span_id)


@pytest.mark.parametrize(
    ("method", "path", "what", "status", "server", "error"),
    [
        ("GET", f"/compute/v2.1/servers/{SERVER}", "GET /compute/v2.1/servers/{server_id}", "404", SERVER, None),
        ("GET", "/compute/v2.1/servers/a-name/", "GET /compute/v2.1/servers/{server_id}", "404", None, None),
        ("DELETE", f"/compute/v2.1/servers/{SERVER}", "DELETE /compute/v2.1/servers/{server_id}", "500", SERVER, "HTTP 500"),
        ("GET", "/wp-login.php", "GET (no such path)", "404", None, None),
        ("GET", "/compute/v2.1/servers/%00", "GET (no such path)", "400", None, None),
    ],
)  # fmt: skip
def test_a_request_is_told_by_its_route_and_how_it_ended(
    door: TestClient,
    recorder: Recorder,
    method: str,
    path: str,
    what: str,
    status: str,
    server: str | None,
    error: str | None,
) -> None:
    door.request(method, path)
    (rest,) = recorder.spans
    assert (rest.what, rest.essentials["status"], rest.server, rest.error) == (what, status, server, error)

"""Who comes in to the embedded Placement, and as whom."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from jetbridge.api.guards import complaint_about
from jetbridge.errors import Unauthorized
from jetbridge.placement.door import Caller, Door

TOKEN = "0123456789"


class Behind:
    """The application, as far as the door can see it."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.seen = environ
        start_response("200 OK", [])
        return [b"{}"]


def ask(**environ: str) -> tuple[str, dict[str, Any] | None, dict[str, Any]]:
    """Status, what the application saw, and the answer."""

    def identify(authorization: str | None) -> Caller:
        if authorization != "Basic right":
            raise Unauthorized(reason="send user and password")
        return Caller("u1", "p1", frozenset({"reader"}))

    behind, statuses = Behind(), []
    door = Door(behind, lambda host, origins: complaint_about(host, origins, loopback=True), identify, TOKEN)
    asked = {"REQUEST_METHOD": "GET", "PATH_INFO": "/resource_providers", "HTTP_HOST": "localhost:8778", **environ}
    body = b"".join(door(asked, lambda status, headers: statuses.append(status)))
    return statuses[0], behind.seen, json.loads(body)


def test_a_user_is_introduced_by_id_project_and_roles() -> None:
    status, seen, _ = ask(HTTP_AUTHORIZATION="Basic right")
    assert status == "200 OK"
    assert seen is not None
    assert (seen["HTTP_X_AUTH_TOKEN"], seen["HTTP_X_ROLES"]) == ("u1:p1", "reader")
    assert "HTTP_AUTHORIZATION" not in seen


def test_what_a_caller_says_of_itself_is_taken_away() -> None:
    said = {
        "HTTP_X_ROLES": "admin",
        "HTTP_X_USER_ID": "root",
        "HTTP_X_TENANT_ID": "t",
        "HTTP_OPENSTACK_SYSTEM_SCOPE": "all",
    }
    _, seen, _ = ask(HTTP_AUTHORIZATION="Basic right", **said)
    assert seen is not None
    assert seen["HTTP_X_ROLES"] == "reader"
    assert {"HTTP_X_USER_ID", "HTTP_X_TENANT_ID", "HTTP_OPENSTACK_SYSTEM_SCOPE"}.isdisjoint(seen)


@pytest.mark.parametrize("token", ["", "admin", "admin:admin", TOKEN + "0", "\xff"])
def test_another_token_than_ours_opens_nothing(token: str) -> None:
    status, seen, answer = ask(HTTP_X_AUTH_TOKEN=token)
    assert (status, seen) == ("401 Unauthorized", None)
    assert answer["errors"][0]["status"] == 401


def test_our_own_services_are_known_by_their_token() -> None:
    _, seen, _ = ask(HTTP_X_AUTH_TOKEN=TOKEN)
    assert seen is not None
    assert seen["HTTP_X_ROLES"] == "admin,service"


def test_anybody_may_read_the_version_document_and_nobody_else_write_there() -> None:
    assert ask(PATH_INFO="/")[0] == "200 OK"
    assert ask(PATH_INFO="/", REQUEST_METHOD="POST")[0] == "401 Unauthorized"


@pytest.mark.parametrize("asked", [{"HTTP_HOST": "evil.example:8778"}, {"HTTP_ORIGIN": "http://evil.example"}])
def test_foreign_hosts_and_origins_are_refused_before_anything_else(asked: dict[str, str]) -> None:
    status, seen, answer = ask(PATH_INFO="/", **asked)
    assert (status, seen) == ("403 Forbidden", None)
    assert "evil.example" in answer["errors"][0]["detail"]

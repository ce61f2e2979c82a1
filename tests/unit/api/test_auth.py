from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from fastapi import APIRouter
from hypothesis import example, given
from hypothesis import strategies as st

from jetbridge.api import identity
from jetbridge.api.auth import TOKEN_SECONDS, Authenticator, basic_credentials, read_password_file
from jetbridge.api.call import ContextOf
from jetbridge.api.services import ApiServices
from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration, Unauthorized
from jetbridge.model.context import ADMIN_ID
from tests.unit.api.doors import Door, PasswordFile, basic, open_door

HASH = "$2b$04$" + "a" * 53


def whoami(services: ApiServices) -> APIRouter:
    routes = APIRouter()

    @routes.get("/jetbridge/v1/me")
    def me(context: ContextOf) -> Any:
        return context.to_message()

    return routes


@pytest.fixture
def people(tmp_path: Path) -> PasswordFile:
    return PasswordFile(tmp_path / "users")


@pytest.fixture
def door(tmp_path: Path, people: PasswordFile) -> Iterator[Door]:
    people.add("root", "s3cret", "admin", "admin")
    people.add("ann", "päss:word", "physics", "member")
    with open_door(tmp_path, [whoami, identity.router], settings=people.settings) as door:
        yield door


ANN = basic("ann", "päss:word")


def test_without_authentication_everybody_is_admin_with_fixed_ids(tmp_path: Path) -> None:
    with open_door(tmp_path, [whoami]) as door:
        for headers in ({}, {"X-Auth-Token": "anything"}, basic("who", "ever"), {"Authorization": "Bearer x"}):
            me = door.get("/jetbridge/v1/me", headers=headers).json()
            assert (me["user"], me["project"]) == (ADMIN_ID, ADMIN_ID)
            assert me["roles"] == ["admin", "member", "reader", "service"]


def test_context_carries_the_users_ids_roles_and_the_answers_request_id(door: Door) -> None:
    first, again = (door.get("/jetbridge/v1/me", headers=ANN) for _ in range(2))
    me = first.json()
    assert me["roles"] == ["member", "reader"]
    assert len(me["user"]) == len(me["project"]) == 32
    assert me["user"] != me["project"]
    assert first.headers["x-openstack-request-id"] == me["request_id"]
    assert {**again.json(), "request_id": None} == {**me, "request_id": None}


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="nothing"),
        pytest.param(basic("ann", "wrong"), id="wrong password"),
        pytest.param(basic("ann", ""), id="empty password"),
        pytest.param(basic("nobody", "s3cret"), id="unknown user"),
        pytest.param(basic("root", "päss:word"), id="somebody else's password"),
        pytest.param({"Authorization": "Bearer abc"}, id="another scheme"),
        pytest.param({"Authorization": "Basic ???"}, id="not base64"),
        pytest.param({"Authorization": "Basic YW5u"}, id="no colon"),
        pytest.param({"Authorization": "Basic"}, id="scheme only"),
        pytest.param({"X-Auth-Token": "abc"}, id="made-up token"),
        pytest.param({"X-Auth-Token": ""}, id="empty token"),
        pytest.param({"X-Auth-Token": "WyJyb290Iiw5ZTk5XQ==.00"}, id="forged token"),
    ],
)
def test_whoever_is_not_known_gets_401_and_the_way_in(door: Door, headers: dict[str, str]) -> None:
    answer = door.get("/jetbridge/v1/me", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert answer.json()["error"]["message"]


def test_a_wrong_password_stays_wrong_after_the_right_one_was_remembered(door: Door) -> None:
    assert door.get("/jetbridge/v1/me", headers=ANN).status_code == 200
    assert door.get("/jetbridge/v1/me", headers=basic("ann", "päss:wor")).status_code == 401
    assert door.get("/jetbridge/v1/me", headers=basic("root", "päss:word")).status_code == 401
    assert door.get("/jetbridge/v1/me", headers=ANN).status_code == 200


def test_right_passwords_are_remembered_without_being_kept(people: PasswordFile) -> None:
    people.add("ann", "hunter22", "p", "member")
    authenticator = Authenticator.from_settings(people.settings)
    assert authenticator.remembered("ann", "hunter22") is None
    principal = authenticator.check_password("ann", "hunter22")
    assert authenticator.remembered("ann", "hunter22") == principal
    assert b"hunter22" not in b"".join(authenticator._known)


def test_a_password_that_bcrypt_would_cut_is_refused(people: PasswordFile) -> None:
    people.add("ann", "x" * 72, "p", "member")
    authenticator = Authenticator.from_settings(people.settings)
    assert authenticator.check_password("ann", "x" * 72).user_name == "ann"
    with pytest.raises(Unauthorized):
        authenticator.check_password("ann", "x" * 72 + "y")


def test_tokens_end(people: PasswordFile) -> None:
    people.add("ann", "pw", "p", "member")
    now = [1000.0]
    authenticator = Authenticator(read_password_file(people.path), clock=lambda: now[0])
    token, ends = authenticator.issue_token(authenticator.check_password("ann", "pw"))
    assert authenticator.check_token(token)[0].user_name == "ann"
    now[0] = ends
    assert ends == 1000.0 + TOKEN_SECONDS
    with pytest.raises(Unauthorized, match="expired"):
        authenticator.check_token(token)


def test_a_token_of_another_process_is_not_taken(people: PasswordFile) -> None:
    people.add("ann", "pw", "p", "member")
    one, other = Authenticator.from_settings(people.settings), Authenticator.from_settings(people.settings)
    token, _ = one.issue_token(one.check_password("ann", "pw"))
    with pytest.raises(Unauthorized):
        other.check_token(token)


@given(st.text())
def test_no_text_is_a_token_by_accident(text: str) -> None:
    authenticator = _AUTHENTICATOR
    with pytest.raises(Unauthorized):
        authenticator.check_token(text)


@pytest.mark.parametrize("user", ["ann", "nobody", "\ud800"])
@pytest.mark.parametrize("password", ["\ud800", "\x00", "p" * 100_000])
def test_a_password_that_nobody_can_have_is_a_wrong_one(door: Door, user: str, password: str) -> None:
    user_of = {"name": user, "password": password, "domain": {"id": "default"}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user_of}}}}
    answer = door.post(
        "/identity/v3/auth/tokens", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 401)


@given(st.text(st.characters(codec="latin-1")) | st.text(st.characters(codec="latin-1")).map("Basic {}".format))
@example("Basic YW5uOnB3\xff")
def test_any_authorization_header_is_credentials_or_refused(header: str) -> None:
    try:
        user, password = basic_credentials(header)
    except Unauthorized:
        return
    assert header.lower().startswith("basic ")
    assert isinstance(user, str)
    assert isinstance(password, str)


_AUTHENTICATOR = Authenticator(users={})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ann:secret:p:member", ["line 3", "bcrypt", "htpasswd"]),
        (f"ann:{HASH}:p", ["line 3", "3 fields", "user:bcrypt:project:roles"]),
        (f"ann:{HASH}:p:member:more", ["line 3", "5 fields"]),
        (f":{HASH}:p:member", ["line 3", "empty"]),
        (f"ann:{HASH}::member", ["line 3", "empty"]),
        (f"ann:{HASH}:p:", ["line 3", "no role"]),
        (f"ann:{HASH}:p:Member!", ["line 3", "'Member!'"]),
        (f"root:{HASH}:p:member", ["line 3", "line 2"]),
    ],
)
def test_a_bad_line_stops_the_start_naming_file_and_line(people: PasswordFile, line: str, words: list[str]) -> None:
    people.path.write_text(f"# people\nroot:{HASH}:admin:admin\n{line}\n")
    with pytest.raises(InvalidConfiguration) as refusal:
        read_password_file(people.path)
    assert [word for word in [str(people.path), *words] if word not in refusal.value.message] == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(auth_strategy="keystone"), ["auth_strategy=keystone", "http_basic"]),
        (Settings(auth_strategy="http_basic"), ["http_basic_auth_user_file"]),
        (Settings(auth_strategy="http_basic", http_basic_auth_user_file=Path("/nowhere/users")), ["/nowhere/users"]),
    ],
)
def test_settings_that_can_not_work_stop_the_start(settings: Settings, words: list[str]) -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        Authenticator.from_settings(settings)
    assert [word for word in words if word not in refusal.value.message] == []


def test_file_of_htpasswd_is_taken(people: PasswordFile) -> None:
    hashed = bcrypt.hashpw(b"pw", bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
    people.path.write_text(f"ann:{hashed}:p:admin , member\n\n")
    authenticator = Authenticator.from_settings(people.settings)
    assert authenticator.check_password("ann", "pw").roles == {"admin", "member", "reader"}


def test_admins_keep_what_was_made_before_authentication_was_switched_on(people: PasswordFile) -> None:
    people.add("admin", "pw", "admin", "admin")
    people.add("other", "pw", "other", "member")
    entries = read_password_file(people.path)
    assert entries["admin"].principal.project_id == ADMIN_ID
    assert entries["other"].principal.project_id != ADMIN_ID

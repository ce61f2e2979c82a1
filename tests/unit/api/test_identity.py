from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetbridge.api import identity, image
from jetbridge.model.context import ADMIN_ID
from tests.unit.api.doors import URL, Door, PasswordFile, open_door

TOKENS = "/identity/v3/auth/tokens"


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    people = PasswordFile(tmp_path / "users")
    people.add("root", "pw", "admin", "admin")
    people.add("ann", "pw2", "physics", "member")
    with open_door(tmp_path, [identity.router, image.router], settings=people.settings) as door:
        yield door


def password(user: dict[str, Any], scope: Any = None) -> dict[str, Any]:
    auth: dict[str, Any] = {"identity": {"methods": ["password"], "password": {"user": user}}}
    return {"auth": auth if scope is None else {**auth, "scope": scope}}


ANN = {"name": "ann", "domain": {"name": "Default"}, "password": "pw2"}
PHYSICS = {"project": {"name": "physics", "domain": {"id": "default"}}}


def token_of(door: Door, user: dict[str, Any] = ANN) -> str:
    answer = door.post(TOKENS, json=password(user))
    assert answer.status_code == 201, answer.text
    return str(answer.headers["x-subject-token"])


def test_discovery_needs_no_password(door: Door) -> None:
    assert door.get("/identity").status_code == 300
    version = door.get("/identity/v3").json()["version"]
    assert (version["id"], version["status"]) == ("v3.14", "stable")
    assert version["links"][0]["href"] == f"{URL}/identity/v3/"


def test_token_names_user_project_roles_and_where_services_are(door: Door) -> None:
    answer = door.post(TOKENS, json=password(ANN, PHYSICS))
    assert answer.status_code == 201
    token = answer.json()["token"]
    assert (token["user"]["name"], token["project"]["name"]) == ("ann", "physics")
    assert [role["name"] for role in token["roles"]] == ["member", "reader"]
    urls = {entry["type"]: entry["endpoints"][0]["url"] for entry in token["catalog"]}
    assert urls == {
        "compute": f"{URL}/compute/v2.1",
        "image": f"{URL}/image",
        "identity": f"{URL}/identity/v3",
        "network": f"{URL}/network",
        "accelerator": f"{URL}/accelerator/v2",
    }
    headers = {"X-Auth-Token": answer.headers["x-subject-token"]}
    assert door.get("/image/v2/images", headers=headers).status_code == 200


def test_user_may_be_given_by_id_and_a_token_gives_another(door: Door) -> None:
    token = token_of(door)
    user_id = door.get(TOKENS, headers={"X-Auth-Token": token, "X-Subject-Token": token}).json()["token"]["user"]["id"]
    assert door.post(TOKENS, json=password({"id": user_id, "password": "pw2"})).status_code == 201
    again = {"auth": {"identity": {"methods": ["token"], "token": {"id": token}}, "scope": PHYSICS}}
    assert door.post(TOKENS, json=again).json()["token"]["user"]["id"] == user_id


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(password({**ANN, "password": "pw"}), 401, id="wrong password"),
        pytest.param(password({"name": "eve", "password": "pw2"}), 401, id="unknown user"),
        pytest.param(password({"id": "eve", "password": "pw2"}), 401, id="unknown id"),
        pytest.param(password({"id": None, "password": "pw2"}), 400, id="no user"),
        pytest.param(password({"name": "ann"}), 400, id="no password"),
        pytest.param(password({"name": ["ann"], "password": "pw2"}), 400, id="a list as name"),
        pytest.param(password(ANN, {"project": {"name": "admin"}}), 401, id="somebody else's project"),
        pytest.param(password(ANN, {"system": {"all": True}}), 401, id="system scope"),
        pytest.param(password(ANN, {"project": "physics"}), 401, id="scope of another shape"),
        pytest.param({"auth": {"identity": {"methods": ["totp"]}}}, 401, id="unknown method"),
        pytest.param({"auth": {"identity": {"methods": ["token"], "token": {"id": "x"}}}}, 401, id="made-up token"),
        pytest.param({"auth": {"identity": {"methods": ["token"], "token": {}}}}, 400, id="no token"),
        pytest.param({"auth": {"identity": None}}, 400, id="null"),
        pytest.param({"auth": []}, 400, id="a list"),
        pytest.param({}, 400, id="empty"),
        pytest.param([], 400, id="no object"),
    ],
)
def test_tokens_are_refused_in_keystones_shape(door: Door, body: Any, status: int) -> None:
    answer = door.post(TOKENS, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == status
    assert "x-subject-token" not in answer.headers


def test_a_revoked_token_is_worth_nothing(door: Door) -> None:
    token = token_of(door)
    other = token_of(door)
    headers = {"X-Auth-Token": token, "X-Subject-Token": token}
    assert door.delete(TOKENS, headers=headers).status_code == 204
    assert door.get("/image/v2/images", headers={"X-Auth-Token": token}).status_code == 401
    assert door.get("/image/v2/images", headers={"X-Auth-Token": other}).status_code == 200


def test_only_admins_look_at_other_peoples_tokens(door: Door) -> None:
    root, ann = token_of(door, {"name": "root", "password": "pw"}), token_of(door)
    assert door.get(TOKENS, headers={"X-Auth-Token": ann, "X-Subject-Token": root}).status_code == 403
    assert door.delete(TOKENS, headers={"X-Auth-Token": ann, "X-Subject-Token": root}).status_code == 403
    assert door.get(TOKENS, headers={"X-Auth-Token": root, "X-Subject-Token": ann}).status_code == 200
    assert door.get(TOKENS, headers={"X-Auth-Token": root, "X-Subject-Token": "x"}).status_code == 404
    assert door.get(TOKENS, headers={"X-Auth-Token": root}).status_code == 400


def names(door: Door, path: str, key: str, token: str) -> list[str]:
    answer = door.get(f"/identity/v3/{path}", headers={"X-Auth-Token": token})
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()[key]]


def test_admins_see_everybody_others_themselves(door: Door) -> None:
    root, ann = token_of(door, {"name": "root", "password": "pw"}), token_of(door)
    assert names(door, "users", "users", root) == ["root", "ann"]
    assert names(door, "users", "users", ann) == ["ann"]
    assert names(door, "users?name=ann", "users", root) == ["ann"]
    assert names(door, "projects", "projects", root) == ["admin", "physics"]
    assert names(door, "projects", "projects", ann) == ["physics"]
    assert names(door, "projects?name=nope", "projects", root) == []
    assert names(door, "auth/projects", "projects", root) == ["admin"]
    assert door.get(f"/identity/v3/projects/{ADMIN_ID}", headers={"X-Auth-Token": ann}).status_code == 404
    assert door.get(f"/identity/v3/projects/{ADMIN_ID}", headers={"X-Auth-Token": root}).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["auth/catalog", "services", "endpoints", "regions", "domains", "domains/default", "roles", "users", "projects"],
)
def test_lists_that_clients_ask_for_need_a_known_caller(door: Door, path: str) -> None:
    assert door.get(f"/identity/v3/{path}").status_code == 401
    assert door.get(f"/identity/v3/{path}", headers={"X-Auth-Token": token_of(door)}).status_code == 200


def test_without_authentication_any_password_gives_an_admins_token(tmp_path: Path) -> None:
    with open_door(tmp_path, [identity.router]) as door:
        answer = door.post(TOKENS, json=password({"name": "who", "password": "ever"}, {"project": {"name": "any"}}))
        assert answer.status_code == 201
        assert answer.json()["token"]["project"]["id"] == ADMIN_ID
        assert names(door, "projects", "projects", "whatever") == ["admin"]

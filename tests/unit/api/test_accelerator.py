"""The Accelerator API as its clients ask it: shapes, versions, refusals, and who may do what."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx import Response

from jetbridge.accelerator.service import AcceleratorService
from jetbridge.api import accelerator
from jetbridge.api.services import ApiServices
from tests.unit.api.doors import Door, PasswordFile, open_door

API = "/accelerator/v2"
GROUPS = [{"resources:PGPU": "1", "trait:CUSTOM_A": "required"}]


def door_of(services: ApiServices) -> Any:
    service = AcceleratorService(services.database, lambda context, events: None, services.new_id)
    return accelerator.router(service)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path, [door_of]) as opened:
        yield opened


def said(answer: Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    return str(answer.json()["error_message"]["faultstring"])


def profile(door: Door, name: str = "infer", **more: Any) -> Any:
    answer = door.post(f"{API}/device_profiles", json=[{"name": name, "groups": GROUPS, "description": None}], **more)
    assert answer.status_code == 201, answer.text
    return answer.json()


def arq(door: Door, name: str = "infer", **more: Any) -> str:
    answer = door.post(f"{API}/accelerator_requests", json={"device_profile_name": name}, **more)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["arqs"][0]["uuid"])


def patches(op: str = "add", **values: str) -> list[dict[str, str]]:
    return [
        {"op": op, "path": f"/{name}", **({"value": value} if op == "add" else {})} for name, value in values.items()
    ]


def binding(**more: str) -> list[dict[str, str]]:
    wanted = {"hostname": "gpu1", "device_rp_uuid": str(uuid.uuid4()), "instance_uuid": str(uuid.uuid4())}
    return patches(**{**wanted, **more})


def test_versions(door: Door) -> None:
    document = door.get(API).json()
    assert (document["id"], document["min_version"], document["max_version"]) == ("v2", "2.0", "2.3")
    assert door.get("/accelerator").json()["versions"] == [document]
    answer = door.get(f"{API}/devices", headers={"OpenStack-API-Version": "compute 2.1, accelerator 2.2"})
    assert answer.headers["OpenStack-API-Version"] == "accelerator 2.2"
    for asked in ("2.4", "3.0", "x"):
        answer = door.get(f"{API}/devices", headers={"OpenStack-API-Version": f"accelerator {asked}"})
        assert asked in said(answer, 406)


def test_profiles(door: Door) -> None:
    made = profile(door)
    assert (made["name"], made["groups"], made["description"]) == ("infer", GROUPS, None)
    for key in ("infer", made["uuid"]):
        assert door.get(f"{API}/device_profiles/{key}").json() == {"device_profile": made}
    assert door.get(f"{API}/device_profiles", params={"name": "infer"}).json() == {"device_profiles": [made]}
    assert door.get(f"{API}/device_profiles", params={"name": "other"}).json() == {"device_profiles": []}
    taken = said(door.post(f"{API}/device_profiles", json=[{"name": "infer", "groups": GROUPS}]), 409)
    assert "A device profile with name 'infer' already exists: choose another name" in taken
    assert "UUID" not in taken
    assert door.delete(f"{API}/device_profiles", params={"value": "infer"}).status_code == 204
    assert "infer" in said(door.delete(f"{API}/device_profiles/infer"), 404)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ([], "at least 1"),
        ([{"groups": GROUPS}], "name"),
        ([{"name": "a", "groups": [{"resources:PGPU": "x"}]}], "resources:PGPU"),
        ([{"name": "a", "groups": GROUPS, "color": "red"}], "color"),
        ({"name": "a", "groups": GROUPS}, "list"),
        ([{"name": "a", "groups": [{"resources:PGPU": ["1"]}]}], "groups"),
        ([{"name": "a", "groups": [{"resources:PGPU": True}]}], "resources:PGPU"),
        ([{"name": "a", "groups": [{**GROUPS[0], "accel:x": "\ud800"}]}], "lone surrogate"),
    ],
)
def test_a_wrong_profile_is_refused_by_field(door: Door, body: Any, named: str) -> None:
    text, headers = json.dumps(body), {"Content-Type": "application/json"}
    assert named in said(door.post(f"{API}/device_profiles", content=text, headers=headers), 400)
    assert door.get(f"{API}/device_profiles").json() == {"device_profiles": []}


def test_requests(door: Door) -> None:
    profile(door)
    uuid_ = arq(door)
    shown = door.get(f"{API}/accelerator_requests/{uuid_}").json()
    assert (shown["state"], shown["device_profile_name"], shown["device_profile_group_id"]) == ("Initial", "infer", 0)
    assert [each["uuid"] for each in door.get(f"{API}/accelerator_requests").json()["arqs"]] == [uuid_]
    body = binding()
    server = body[2]["value"]
    assert door.patch(f"{API}/accelerator_requests", json={uuid_: body}).status_code == 202
    asked = {"instance": server, "bind_state": "resolved"}
    (found,) = door.get(f"{API}/accelerator_requests", params=asked).json()["arqs"]
    assert (found["state"], found["hostname"]) == ("BindFailed", "gpu1")  # there is no such provider
    removal = patches("remove", hostname="", device_rp_uuid="", instance_uuid="")
    assert door.patch(f"{API}/accelerator_requests/{uuid_}", json={uuid_: removal}).json()["state"] == "Unbound"
    assert door.delete(f"{API}/accelerator_requests", params={"instance": server}).status_code == 204
    assert door.delete(f"{API}/accelerator_requests", params={"arqs": uuid_}).status_code == 204
    assert uuid_ in said(door.delete(f"{API}/accelerator_requests/{uuid_}"), 404)


def test_a_wrong_patch_is_refused_by_field(door: Door) -> None:
    profile(door)
    uuid_ = arq(door)
    refused = {
        "hostname": {uuid_: patches(device_rp_uuid=str(uuid.uuid4()), instance_uuid=str(uuid.uuid4()))},
        "not a UUID": {uuid_: binding(instance_uuid="x")},
        "every op": {uuid_: [*binding()[:2], *patches("remove", instance_uuid="")]},
        "Write /hostname": {uuid_: patches(color="red")},
        "not": {"x": binding()},
        "at least 1": {},
    }
    for words, body in refused.items():
        assert words in said(door.patch(f"{API}/accelerator_requests", json=body), 400)
    missing = str(uuid.uuid4())
    assert missing in said(door.patch(f"{API}/accelerator_requests", json={missing: binding()}), 404)
    assert "arqs=" in said(door.delete(f"{API}/accelerator_requests"), 400)
    assert door.get(f"{API}/accelerator_requests/x").status_code == 404


def test_f18_two_projects_and_a_service(tmp_path: Path) -> None:
    people = PasswordFile(tmp_path / "users")
    root = people.add("root", "pw", "admin", "admin")
    ann, bob = people.add("ann", "pw", "physics", "member"), people.add("bob", "pw", "biology", "member")
    eve, cyborg = people.add("eve", "pw", "physics", "reader"), people.add("nova", "pw", "services", "service")
    with open_door(tmp_path, [door_of], settings=people.settings) as door:
        profile(door, headers=root)
        answer = door.post(f"{API}/device_profiles", json=[{"name": "b", "groups": GROUPS}], headers=ann)
        assert "role admin" in said(answer, 403)
        mine, theirs = arq(door, headers=ann), arq(door, headers=bob)
        assert "role member" in said(
            door.post(f"{API}/accelerator_requests", json={"device_profile_name": "infer"}, headers=eve), 403
        )
        seen = door.get(f"{API}/accelerator_requests", headers=ann).json()["arqs"]
        assert [each["uuid"] for each in seen] == [mine]
        assert door.get(f"{API}/accelerator_requests/{theirs}", headers=ann).status_code == 404
        assert door.delete(f"{API}/accelerator_requests/{theirs}", headers=ann).status_code == 404
        for caller in (ann, root):
            answer = door.patch(f"{API}/accelerator_requests", json={mine: binding()}, headers=caller)
            assert "role service" in said(answer, 403)
        answer = door.patch(f"{API}/accelerator_requests", json={mine: binding()}, headers=cyborg)
        assert answer.status_code == 202
        assert "role service" in said(door.delete(f"{API}/accelerator_requests/{mine}", headers=ann), 403)
        assert door.get(API).status_code == 200
        assert door.get(f"{API}/devices").status_code == 401

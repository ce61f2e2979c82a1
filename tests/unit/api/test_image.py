from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from jetbridge.api import image
from jetbridge.api.image import PATCH_TYPES
from jetbridge.image.tiny import tiny_disk
from tests.unit.api.doors import Door, PasswordFile, open_door
from tests.unit.image.files import qcow2

IMAGES = "/image/v2/images"
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path, [image.router]) as door:
        yield door


@pytest.fixture
def people(tmp_path: Path) -> PasswordFile:
    return PasswordFile(tmp_path / "users")


def create(door: Door, headers: dict[str, str] | None = None, **body: Any) -> str:
    given = {"name": "i", "disk_format": "raw", "container_format": "bare", **body}
    answer = door.post(IMAGES, json=given, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def upload(door: Door, image_id: str, data: bytes, headers: dict[str, str] | None = None) -> Any:
    return door.put(f"{IMAGES}/{image_id}/file", content=data, headers={**OCTETS, **(headers or {})})


def patch(door: Door, image_id: str, *operations: Any, headers: dict[str, str] | None = None) -> Any:
    return door.patch(
        f"{IMAGES}/{image_id}", json=list(operations), headers={"Content-Type": PATCH_TYPES[0], **(headers or {})}
    )


def test_discovery_is_a_300_with_versions_that_clients_follow(door: Door) -> None:
    answer = door.get("/image")
    assert answer.status_code == 300
    current = answer.json()["versions"][0]
    assert (current["id"], current["status"]) == ("v2.9", "CURRENT")
    assert current["links"][0]["href"] == "http://127.0.0.1:8774/image/v2/"


def test_image_goes_from_queued_to_active_and_its_data_comes_back(door: Door) -> None:
    image_id = create(door, hw_firmware_type="uefi")
    assert door.get(f"{IMAGES}/{image_id}").json()["status"] == "queued"
    assert door.get(f"{IMAGES}/{image_id}/file").status_code == 204
    assert upload(door, image_id, tiny_disk()).status_code == 204
    shown = door.get(f"{IMAGES}/{image_id}").json()
    assert (shown["status"], shown["size"], shown["hw_firmware_type"]) == ("active", 1024 * 1024, "uefi")
    data = door.get(f"{IMAGES}/{image_id}/file")
    assert data.content == tiny_disk()
    assert data.headers["content-md5"] == shown["checksum"]


def test_upload_larger_than_the_bodies_of_other_requests_is_taken(door: Door) -> None:
    image_id = create(door)
    data = bytes(range(256)) * 4096 * 9  # 9 MiB: more than one piece
    assert upload(door, image_id, data).status_code == 204
    assert door.get(f"{IMAGES}/{image_id}/file").content == data


@pytest.mark.parametrize(
    ("data", "words"), [(qcow2(), "disk_format=raw"), (qcow2(backing_offset=512), "disk_format=raw")]
)
def test_upload_that_is_something_else_is_a_400_and_the_image_stays_queued(door: Door, data: bytes, words: str) -> None:
    image_id = create(door)
    answer = upload(door, image_id, data)
    assert answer.status_code == 400
    assert words in answer.json()["message"]
    assert door.get(f"{IMAGES}/{image_id}").json()["status"] == "queued"


def test_upload_of_another_media_type_is_a_415(door: Door) -> None:
    answer = door.put(f"{IMAGES}/{create(door)}/file", content=b"x", headers={"Content-Type": "application/json"})
    assert answer.status_code == 415
    assert "application/octet-stream" in answer.json()["message"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"disk_format": "vmdk"}, 400, ["disk_format='vmdk'", "qcow2", "qemu-img convert"]),
        ({"container_format": "ova"}, 400, ["container_format='ova'", "bare"]),
        ({"visibility": "everyone"}, 400, ["visibility='everyone'", "public"]),
        ({"min_disk": -1}, 400, ["min_disk=-1"]),
        ({"min_ram": "512"}, 400, ["min_ram='512'"]),
        ({"min_ram": True}, 400, ["min_ram=True"]),
        ({"protected": "yes"}, 400, ["protected='yes'"]),
        ({"tags": "x"}, 400, ["tags='x'"]),
        ({"tags": [1]}, 400, ["tags=1"]),
        ({"id": "x"}, 400, ["id='x'", "UUID"]),
        ({"name": "n" * 256}, 400, ["name", "255"]),
        ({"os_hidden": True}, 400, ["os_hidden"]),
        ({"any_property": 5}, 400, ["any_property=5"]),
        ({"any_property": None}, 400, ["any_property=None"]),
        ({"status": "active"}, 403, ["status", "read-only"]),
        ({"size": 5}, 403, ["size", "read-only"]),
        ({"locations": []}, 403, ["locations", "read-only"]),
        ({f"p{n}": "x" for n in range(129)}, 400, ["128 properties"]),
    ],
)
def test_creating_says_field_value_and_fix(door: Door, body: dict[str, Any], status: int, words: list[str]) -> None:
    answer = door.post(IMAGES, json=body)
    assert answer.status_code == status
    assert [word for word in words if word not in answer.json()["message"]] == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"null", b'{"name": "\\ud800"}', b"\xff"])
def test_bodies_that_are_no_image_are_a_400(door: Door, content: bytes) -> None:
    answer = door.post(IMAGES, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["message"]


def test_id_that_is_taken_is_a_409(door: Door) -> None:
    image_id = create(door)
    assert door.post(IMAGES, json={"id": image_id}).status_code == 409


def test_patch_sets_replaces_and_removes(door: Door) -> None:
    image_id = create(door, a="1", b="2")
    answer = patch(
        door,
        image_id,
        {"op": "replace", "path": "/name", "value": "new"},
        {"op": "add", "path": "/c", "value": "3"},
        {"op": "remove", "path": "/a"},
        {"op": "replace", "path": "/b", "value": "two"},
        {"op": "replace", "path": "/tags", "value": ["t"]},
        {"op": "add", "path": "/with~1slash", "value": "x"},
    )
    assert answer.status_code == 200, answer.text
    shown = door.get(f"{IMAGES}/{image_id}").json()
    assert {key: shown.get(key) for key in ("name", "a", "b", "c", "tags", "with/slash")} == {
        "name": "new",
        "a": None,
        "b": "two",
        "c": "3",
        "tags": ["t"],
        "with/slash": "x",
    }


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        ({"op": "remove", "path": "/name"}, 403),
        ({"op": "replace", "path": "/status", "value": "active"}, 403),
        ({"op": "replace", "path": "/id", "value": "x"}, 403),
        ({"op": "remove", "path": "/nothing"}, 400),
        ({"op": "move", "path": "/a"}, 400),
        ({"op": "add", "path": "a", "value": "x"}, 400),
        ({"op": "add", "path": "/a/b", "value": "x"}, 400),
        ({"op": "add", "path": "/a"}, 400),
        ("text", 400),
    ],
)
def test_a_patch_that_can_not_be_done_changes_nothing(door: Door, operation: Any, status: int) -> None:
    image_id = create(door)
    before = door.get(f"{IMAGES}/{image_id}").json()
    assert patch(door, image_id, {"op": "add", "path": "/x", "value": "y"}, operation).status_code == status
    assert door.get(f"{IMAGES}/{image_id}").json() == before


def test_patch_of_another_media_type_is_a_415(door: Door) -> None:
    assert door.patch(f"{IMAGES}/{create(door)}", json=[]).status_code == 415


def names(door: Door, query: str = "", headers: dict[str, str] | None = None) -> list[str]:
    answer = door.get(f"{IMAGES}?{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["images"]]


def test_list_filters(door: Door) -> None:
    first = create(door, name="one", tags=["x"], os_distro="debian", min_ram=5)
    second = create(door, name="two, or so", visibility="public")
    create(door, name="three", disk_format="qcow2")
    assert names(door, "name=one") == ["one"]
    assert names(door, f"id=in:{first},{second}&sort=name:asc") == ["one", "two, or so"]
    assert names(door, 'name=in:one,"two, or so"&sort=name:asc') == ["one", "two, or so"]
    assert names(door, "status=active") == []
    assert names(door, "visibility=public") == ["two, or so"]
    assert names(door, "tag=x") == ["one"]
    assert names(door, "os_distro=debian") == ["one"]
    assert names(door, "min_ram=5") == ["one"]
    assert names(door, "disk_format=qcow2") == ["three"]
    assert names(door, "protected=true") == []


def test_list_comes_in_pages_that_follow_each_other(door: Door) -> None:
    for name in ("a", "b", "c", "d", "e"):
        create(door, name=name)
    seen: list[str] = []
    link = f"{IMAGES}?limit=2&sort_key=name&sort_dir=asc"
    while link:
        page = door.get(link).json()
        assert len(page["images"]) <= 2
        seen += [each["name"] for each in page["images"]]
        link = f"/image{page['next']}" if "next" in page else ""
    assert seen == ["a", "b", "c", "d", "e"]
    assert names(door, "sort=name:desc") == ["e", "d", "c", "b", "a"]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=x", "limit=²", "marker=nope", "sort_key=nope", "sort_dir=up", "sort=name:up", "visibility=nope",
     "protected=maybe", "size_min=x", "created_at=gt:2020"],
)  # fmt: skip
def test_queries_that_make_no_sense_are_a_400_naming_them(door: Door, query: str) -> None:
    answer = door.get(f"{IMAGES}?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0].removeprefix("sort=") in answer.json()["message"] or "sort" in query


def test_projects_see_their_own_images_and_those_for_all(tmp_path: Path, people: PasswordFile) -> None:
    ann = people.add("ann", "pw", "physics", "member")
    bob = people.add("bob", "pw", "biology", "member")
    root = people.add("root", "pw", "admin", "admin")
    with open_door(tmp_path, [image.router], settings=people.settings) as door:
        private = create(door, ann, name="private", visibility="private")
        shared = create(door, ann, name="shared")
        community = create(door, ann, name="community", visibility="community")
        public = create(door, root, name="public", visibility="public")
        assert sorted(names(door, headers=ann)) == ["community", "private", "public", "shared"]
        assert names(door, headers=bob) == ["public"]
        assert names(door, "visibility=community", headers=bob) == ["community"]
        assert names(door, f"id=in:{community}", headers=bob) == ["community"]
        for hidden in (private, shared):
            assert door.get(f"{IMAGES}/{hidden}", headers=bob).status_code == 404
            assert door.get(f"{IMAGES}/{hidden}/file", headers=bob).status_code == 404
            assert door.delete(f"{IMAGES}/{hidden}", headers=bob).status_code == 404
            assert upload(door, hidden, b"x", bob).status_code == 404
            assert patch(door, hidden, headers=bob).status_code == 404
        for usable in (community, public):
            assert door.get(f"{IMAGES}/{usable}", headers=bob).status_code == 200
            assert door.delete(f"{IMAGES}/{usable}", headers=bob).status_code == 403
            assert patch(door, usable, headers=bob).status_code == 403
        assert door.post(IMAGES, json={"visibility": "public"}, headers=bob).status_code == 403
        assert door.post(IMAGES, json={"owner": "somebody"}, headers=bob).status_code == 403
        assert door.delete(f"{IMAGES}/{private}", headers=root).status_code == 204
        assert door.get(IMAGES).status_code == 401


def test_a_reader_sees_the_projects_images_and_changes_none(tmp_path: Path, people: PasswordFile) -> None:
    ann = people.add("ann", "pw", "physics", "member")
    eve = people.add("eve", "pw", "physics", "reader")
    with open_door(tmp_path, [image.router], settings=people.settings) as door:
        image_id = create(door, ann)
        assert door.get(f"{IMAGES}/{image_id}", headers=eve).status_code == 200
        for answer in (
            door.post(IMAGES, json={"name": "mine"}, headers=eve),
            patch(door, image_id, {"op": "replace", "path": "/name", "value": "x"}, headers=eve),
            upload(door, image_id, b"x", eve),
            door.put(f"{IMAGES}/{image_id}/tags/x", headers=eve),
            door.delete(f"{IMAGES}/{image_id}", headers=eve),
        ):
            assert answer.status_code == 403
            assert "it needs the role member" in answer.json()["message"]
        assert door.get(f"{IMAGES}/{image_id}", headers=ann).json()["status"] == "queued"


@pytest.mark.parametrize("body", [{"a": "x\x00"}, {"x\x00": "a"}, {"name": "\x00"}, {"tags": ["\x00"]}])
def test_a_nul_character_which_no_postgresql_stores_is_refused(door: Door, body: dict[str, Any]) -> None:
    answer = door.post(IMAGES, json=body)
    assert answer.status_code == 400
    assert "NUL character" in answer.json()["message"]


def test_an_upload_whose_client_goes_away_leaves_the_image_queued_and_no_traceback(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    image_id = create(door)
    scope = {
        "type": "http",
        "method": "PUT",
        "path": f"{IMAGES}/{image_id}/file",
        "query_string": b"",
        "headers": [(b"content-type", b"application/octet-stream"), (b"content-length", b"1000")],
    }
    messages = iter([{"type": "http.request", "body": b"abc", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        raise AssertionError(f"nobody is there to get {message}")

    caplog.set_level("INFO")
    anyio.run(door.client.app, scope, receive, send)
    assert "went away" in caplog.text
    assert "Traceback" not in caplog.text
    assert door.get(f"{IMAGES}/{image_id}").json()["status"] == "queued"
    assert upload(door, image_id, b"abc").status_code == 204


def test_tags_are_added_once_and_removed(door: Door) -> None:
    image_id = create(door)
    for _ in range(2):
        assert door.put(f"{IMAGES}/{image_id}/tags/x").status_code == 204
    assert door.get(f"{IMAGES}/{image_id}").json()["tags"] == ["x"]
    assert door.delete(f"{IMAGES}/{image_id}/tags/x").status_code == 204
    assert door.delete(f"{IMAGES}/{image_id}/tags/x").status_code == 404


@pytest.mark.parametrize("name", ["image", "images", "member", "members"])
def test_schemas_are_published(door: Door, name: str) -> None:
    assert door.get(f"/image/v2/schemas/{name}").json()["name"] == name


@pytest.mark.parametrize("key", ["nope", "11111111-2222-4333-8444-555555555555", "..%2f..%2fetc%2fpasswd", "%00"])
def test_images_that_do_not_exist_are_a_404_in_glances_shape(door: Door, key: str) -> None:
    answer = door.get(f"{IMAGES}/{key}")
    assert answer.status_code in (400, 404)
    assert set(answer.json()) == {"message", "code", "title"}


def test_protected_image_is_deleted_only_after_it_is_unprotected(door: Door) -> None:
    image_id = create(door, protected=True)
    assert door.delete(f"{IMAGES}/{image_id}").status_code == 409
    assert patch(door, image_id, {"op": "replace", "path": "/protected", "value": False}).status_code == 200
    assert door.delete(f"{IMAGES}/{image_id}").status_code == 204
    assert door.get(f"{IMAGES}/{image_id}").status_code == 404

"""Who gets what of /jetbridge/v1. What it says of real servers is tested in tests/system."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jetbridge.api import network
from jetbridge.api.jetbridge import hosts, servers, status, vgpus
from jetbridge.config.settings import Settings
from jetbridge.db import services as service_rows
from jetbridge.errors import Invalid
from jetbridge.model.context import RequestContext
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.session import placement_adapter
from jetbridge.placement.transport import Transport
from jetbridge.rpc.bus import Payload
from tests.unit.api.clouds import open_cloud
from tests.unit.api.doors import Door, PasswordFile, open_door

FOR_ADMINS = [
    "/jetbridge/v1/hosts",
    "/jetbridge/v1/devices",
    "/jetbridge/v1/pools",
    "/jetbridge/v1/vgpus",
    "/jetbridge/v1/vgpus/types",
    "/jetbridge/v1/status",
    "/jetbridge/v1/scan?host=h",
    "/jetbridge/v1/servers/s/xml",
    "/jetbridge/v1/servers/s/journey",
    "/jetbridge/v1/servers?host=h",
]


@pytest.fixture
def people(tmp_path: Path) -> PasswordFile:
    return PasswordFile(tmp_path / "users")


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path, [status.router, hosts.router, servers.router, network.router]) as door:
        yield door


@pytest.mark.parametrize("path", FOR_ADMINS)
def test_what_shows_hosts_is_for_admins(tmp_path: Path, people: PasswordFile, path: str) -> None:
    ann = people.add("ann", "pw", "physics", "member")
    root = people.add("root", "pw", "admin", "admin")
    with open_door(
        tmp_path, [status.router, hosts.router, servers.router, vgpus.router], settings=people.settings
    ) as door:
        assert door.get(path).status_code == 401
        refused = door.get(path, headers=ann)
        assert refused.status_code == 403
        assert "role admin" in refused.json()["error"]["message"]
        assert door.get(path, headers=root).status_code in (200, 404)
        assert door.post("/jetbridge/v1/fleet/reload", headers=ann).status_code == 403
        assert door.get("/jetbridge/v1/servers", headers=ann).json() == {"servers": []}


def test_version_is_told_to_everybody(tmp_path: Path, people: PasswordFile) -> None:
    people.add("root", "pw", "admin", "admin")
    with open_door(tmp_path, [status.router], settings=people.settings) as door:
        assert door.get("/jetbridge/v1").json()["name"] == "jetbridge"
        assert door.get("/jetbridge/v1/").status_code == 200


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/jetbridge/v1/servers/nope", 404, "nope"),
        ("/jetbridge/v1/servers/nope/verdicts", 404, "nope"),
        ("/jetbridge/v1/devices?host=nope", 404, "nope"),
        ("/jetbridge/v1/devices?status=free", 400, "'free': use available"),
        ("/jetbridge/v1/scan", 400, "host"),
        ("/jetbridge/v1/nothing", 404, "/jetbridge/v1/nothing"),
    ],
)
def test_errors_are_json_with_code_and_message(door: Door, path: str, code: int, words: str) -> None:
    answer = door.get(path)
    assert answer.status_code == code
    error = answer.json()["error"]
    assert error["code"]
    assert words in error["message"]


@pytest.mark.parametrize(
    "address", ["bogus", "0000:3b:zz.0", "10000:e1:00.0", "3b:00.0", "0000:3b:00.9", "\N{PILE OF POO}"]
)
def test_an_address_that_is_none_is_refused_with_one_that_is(door: Door, address: str) -> None:
    answer = door.post(f"/jetbridge/v1/hosts/h/devices/{quote(address)}/clean")
    assert answer.status_code == 400
    assert f"{address!r} is no PCI address" in answer.json()["error"]["message"]
    assert "0000:3b:00.0" in answer.json()["error"]["message"]


def test_reload_without_a_fleet_says_how_to_have_one(door: Door) -> None:
    answer = door.post("/jetbridge/v1/fleet/reload")
    assert answer.status_code == 400
    assert "--fleet" in answer.json()["error"]["message"]


class Computes:
    """Processes with a part of a fleet each, and what they were asked for."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.asked: list[tuple[str, bool]] = []

    def add(self, owner: str, hosts: list[str], *, served: list[str], answer: dict[str, Any]) -> None:
        self._door.services.database.write(
            lambda conn: service_rows.register(conn, hosts, "nova-compute", "compute", owner, lambda: str(uuid.uuid4()))
        )

        def reload(context: RequestContext, payload: Payload) -> Payload:
            self.asked.append((owner, payload["check_only"]))
            if "error" in answer:
                raise Invalid(reason=answer["error"])
            return {"added": [], "removed": [], "changed": [], "left_out": [], **answer}

        for name in served:
            self._door.services.bus.serve("compute", {"reload_fleet": reload}, server=name)


def test_reload_asks_every_process_once_after_all_have_checked_the_file(door: Door) -> None:
    computes = Computes(door)
    computes.add("p1", ["h1", "h2"], served=["h2"], answer={"changed": ["h1"], "left_out": ["h3", "h4"]})
    computes.add("p2", ["h3"], served=["h3"], answer={"changed": ["h3"], "left_out": ["h1", "h2", "h4"]})
    computes.add("real", ["metal"], served=[], answer={})
    told = door.post("/jetbridge/v1/fleet/reload").json()
    assert told == {"added": [], "removed": [], "changed": ["h1", "h3"], "unserved": ["h4"], "kept": []}
    assert computes.asked == [("p1", True), ("p2", True), ("p1", False), ("p2", False)]


def test_reload_changes_nothing_when_one_process_refuses_the_file(door: Door) -> None:
    computes = Computes(door)
    computes.add("p1", ["h1"], served=["h1"], answer={})
    computes.add("p2", ["h2"], served=["h2"], answer={"error": "Host h2: nonsense"})
    answer = door.post("/jetbridge/v1/fleet/reload")
    assert answer.status_code == 400
    assert "Host h2: nonsense" in answer.json()["error"]["message"]
    assert computes.asked == [("p1", True), ("p2", True)]


# --- /network -------------------------------------------------------------------------------------


def test_network_discovery(door: Door) -> None:
    (version,) = door.get("/network").json()["versions"]
    assert (version["id"], version["status"]) == ("v2.0", "CURRENT")
    assert version["links"][0]["href"] == "http://127.0.0.1:8774/network/v2.0/"


@pytest.mark.parametrize("collection", ["subnets", "security-groups", "routers", "floatingips"])
def test_what_there_is_none_of_is_an_empty_list(door: Door, collection: str) -> None:
    answer = door.get(f"/network/v2.0/{collection}")
    assert answer.json() == {collection.replace("-", "_"): []}
    assert door.get(f"/network/v2.0/{collection}/x").status_code == 404


def test_hosts_are_listed_by_name_whoever_came_first(tmp_path: Path) -> None:
    with open_cloud(tmp_path, hosts=["t4-2", "t4-1", "h100-1"]) as cloud:
        listed = cloud.client.get("/jetbridge/v1/hosts").json()["hosts"]
    assert [host["host"] for host in listed] == ["h100-1", "t4-1", "t4-2"]


def test_devices_can_be_asked_for_by_their_condition(door: Door) -> None:
    answer = door.get("/jetbridge/v1/devices?status=lost")
    assert (answer.status_code, answer.json()) == (200, {"devices": []})


def test_status_tells_whether_placement_answers_and_what_is_reported(tmp_path: Path) -> None:
    with open_door(tmp_path, [status.router]) as door:
        assert door.get("/jetbridge/v1/status").json()["placement"] == {
            "url": None,
            "answers": None,
            "error": None,
            "reported": 0,
            "waiting": 0,
        }
    away = Settings(placement_endpoint_override="http://root:secret@127.0.0.1:1")
    client = PlacementClient(Transport(placement_adapter(away)))
    (tmp_path / "other").mkdir()
    with open_door(tmp_path / "other", [status.router], placement=client) as door:
        told = door.get("/jetbridge/v1/status").json()["placement"]
    assert told["url"] == "http://root:***@127.0.0.1:1"
    assert told["answers"] is False
    assert told["error"] == "Placement at http://root:***@127.0.0.1:1 doesn't answer: connection refused"

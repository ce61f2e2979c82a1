from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetbridge.db import actions, faults, servers
from jetbridge.db import services as service_rows
from jetbridge.model.server import TaskState, VmState
from tests.unit.api.clouds import IMAGE, Cloud, message, open_cloud, put_image
from tests.unit.api.doors import PasswordFile


def names(cloud: Cloud, query: str = "", **more: Any) -> list[str]:
    answer = cloud.get(f"/servers{query}", **more)
    assert answer.status_code == 200, answer.text
    return [server["name"] for server in answer.json()["servers"]]


# --- show ------------------------------------------------------------------------------------------

FIELDS_SINCE = {
    "locked": 9,
    "host_status": 16,
    "description": 19,
    "tags": 26,
    "trusted_image_certificates": 63,
    "server_groups": 71,
    "locked_reason": 73,
    "OS-EXT-SRV-ATTR:hostname": 3,
    "OS-EXT-SRV-ATTR:kernel_id": 3,
    "OS-EXT-SRV-ATTR:user_data": 3,
    "pinned_availability_zone": 96,
}


@pytest.mark.parametrize("minor", [1, 37, 47, 79, 96])
def test_a_server_has_the_fields_of_its_version(cloud: Cloud, minor: int) -> None:
    cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"})
    server_id = cloud.booted("gpu")
    for path in (f"/servers/{server_id}", "/servers/detail"):
        body = cloud.get(path, version=f"2.{minor}").json()
        server = body.get("server") or body["servers"][0]
        for name, since in FIELDS_SINCE.items():
            assert (name in server) == (minor >= since), (path, name)
        if minor < 47:
            assert server["flavor"]["id"] == "gpu"
        else:
            assert "id" not in server["flavor"]
            assert server["flavor"]["original_name"] == "gpu"
            assert server["flavor"]["extra_specs"] == {"pci_passthrough:alias": "GPU:1"}
        assert server["OS-EXT-SRV-ATTR:instance_name"] == "instance-00000001"
        assert server["addresses"] == {}


def test_the_flavor_stays_as_it_was_at_boot(cloud: Cloud) -> None:
    cloud.flavor("f")
    server_id = cloud.booted("f")
    assert cloud.ask("DELETE", "/flavors/f").status_code == 202
    assert cloud.get(f"/servers/{server_id}", version="2.47").json()["server"]["flavor"]["original_name"] == "f"


def test_an_error_shows_its_fault(cloud: Cloud) -> None:
    cloud.flavor()
    server_id = cloud.booted()
    text = "No valid host was found. PciPassthroughFilter: 2 hosts: no free device."
    cloud.become(server_id, vm_state=VmState.ERROR, task_state=None)
    cloud.database.write(lambda conn: faults.add(conn, server_id, 500, text, details="host by host"))
    for path in (f"/servers/{server_id}", "/servers/detail"):
        body = cloud.get(path).json()
        server = body.get("server") or body["servers"][0]
        assert server["status"] == "ERROR"
        assert server["fault"]["message"] == text
        assert server["fault"]["code"] == 500
        assert server["fault"]["details"] == "host by host"


def test_host_status_follows_the_agent(cloud: Cloud) -> None:
    cloud.flavor()
    server_id = cloud.booted()

    def status() -> str:
        return str(cloud.get(f"/servers/{server_id}", version="2.16").json()["server"]["host_status"])

    def change(function: Any, value: Any) -> None:
        with cloud.database.read() as conn:
            service = service_rows.find(conn, "gpu001", "nova-compute")
        cloud.database.write(lambda conn: function(conn, service.id, value))

    assert status() == ""
    cloud.active(server_id)
    assert status() == "UP"
    change(service_rows.set_disabled, True)
    assert status() == "MAINTENANCE"
    change(service_rows.set_forced_down, True)
    assert status() == "DOWN"
    change(service_rows.set_forced_down, False)
    cloud.database.write(lambda conn: service_rows.withdraw(conn, "test"))
    assert status() == "UNKNOWN"


def test_kernel_and_ramdisk_come_from_the_image(cloud: Cloud) -> None:
    image = "22222222-2222-4333-8444-555555555555"
    put_image(cloud.services, image, properties={"kernel_id": "K", "ramdisk_id": "R"})
    cloud.flavor()
    server_id = cloud.booted(imageRef=image)
    shown = cloud.get(f"/servers/{server_id}", version="2.96").json()["server"]
    assert (shown["OS-EXT-SRV-ATTR:kernel_id"], shown["OS-EXT-SRV-ATTR:ramdisk_id"]) == ("K", "R")


@pytest.mark.parametrize(
    ("vm_state", "task_state", "status"),
    [
        (VmState.BUILDING, TaskState.SPAWNING, "BUILD"),
        (VmState.ACTIVE, None, "ACTIVE"),
        (VmState.ACTIVE, TaskState.POWERING_OFF, "ACTIVE"),
        (VmState.ACTIVE, TaskState.REBOOTING, "REBOOT"),
        (VmState.ACTIVE, TaskState.REBOOTING_HARD, "HARD_REBOOT"),
        (VmState.STOPPED, None, "SHUTOFF"),
        (VmState.ERROR, None, "ERROR"),
    ],
)
def test_the_status_can_be_filtered_by(
    cloud: Cloud, vm_state: VmState, task_state: TaskState | None, status: str
) -> None:
    cloud.flavor()
    server_id = cloud.booted()
    cloud.become(server_id, vm_state=vm_state, task_state=task_state)
    assert cloud.get(f"/servers/{server_id}").json()["server"]["status"] == status
    assert names(cloud, f"?status={status}") == ["web"]
    for other in {"BUILD", "ACTIVE", "REBOOT", "HARD_REBOOT", "SHUTOFF", "ERROR"} - {status}:
        assert names(cloud, f"?status={other}") == []


# --- list ------------------------------------------------------------------------------------------


def test_filters(cloud: Cloud) -> None:
    cloud.flavor()
    cloud.flavor("big", ram=2048)
    web = cloud.booted(name="web-1", tags=["a", "b"])
    db = cloud.booted("big", name="db-1", tags=["a"])
    cloud.active(web, "gpu002")
    assert names(cloud) == ["db-1", "web-1"]
    expected = {
        "?name=web": ["web-1"],
        "?name=^d.*1$": ["db-1"],
        "?name=WEB": ["web-1"],
        "?host=gpu002": ["web-1"],
        f"?uuid={db}": ["db-1"],
        "?flavor=big": ["db-1"],
        f"?image={IMAGE}": ["db-1", "web-1"],
        "?image=other": [],
        "?status=ACTIVE": ["web-1"],
        "?status=ACTIVE&status=BUILD&vm_state=active": None,
        "?vm_state=building": ["db-1"],
        "?task_state=scheduling": ["db-1"],
        "?power_state=1": ["web-1"],
        "?tags=a": ["db-1", "web-1"],
        "?tags=a,b": ["web-1"],
        "?not-tags=b": ["db-1"],
        "?deleted=False": ["db-1", "web-1"],
        "?deleted=True": [],
        "?changes-since=2001-01-01T00:00:00Z": ["db-1", "web-1"],
        "?changes-since=2201-01-01T00:00:00%2B01:00": [],
        "?sort_key=display_name&sort_dir=desc": ["web-1", "db-1"],
        "?limit=0": [],
        "?locked=True": ["db-1", "web-1"],  # not a filter before 2.73
    }
    for query, wanted in expected.items():
        if wanted is None:
            assert cloud.get(f"/servers{query}", version="2.26").status_code == 400, query
        else:
            assert names(cloud, query, version="2.26") == wanted, query
    assert names(cloud, "?locked=True", version="2.73") == []


def test_pages(cloud: Cloud) -> None:
    cloud.flavor()
    for number in range(3):
        cloud.booted(name=f"s{number}")
    seen, query = [], "?limit=2"
    while query:
        body = cloud.get(f"/servers/detail{query}").json()
        seen += [server["name"] for server in body["servers"]]
        query = body["servers_links"][0]["href"].partition("detail")[2] if "servers_links" in body else ""
    assert seen == ["s2", "s1", "s0"]


@pytest.mark.parametrize(
    "query",
    [
        "?limit=-1",
        "?limit=x",
        "?marker=nope",
        "?sort_key=colour",
        "?sort_key=name&sort_dir=up",
        "?name=[",
        "?name=(a%2B)%2B$",
        "?name=(a|aa)*b",
        "?changes-since=yesterday",
        "?power_state=9",
        "?deleted=perhaps",
        "?all_tenants=perhaps",
        "?config_drive=True",
    ],
)
def test_filters_that_make_no_sense_are_400(shared: Cloud, query: str) -> None:
    answer = shared.get(f"/servers{query}", version="2.37")
    assert answer.status_code == 400
    assert message(answer)


def test_unknown_statuses_and_filters_by_version(cloud: Cloud) -> None:
    cloud.flavor()
    cloud.booted()
    assert names(cloud, "?status=FLYING", version="2.37") == []
    assert cloud.get("/servers?status=FLYING", version="2.38").status_code == 400
    assert names(cloud, "?colour=red", version="2.74") == ["web"]
    answer = cloud.get("/servers?colour=red", version="2.75")
    assert answer.status_code == 400
    assert "'colour'" in message(answer)


# --- projects --------------------------------------------------------------------------------------


def test_another_projects_server_does_not_exist(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "passwords")
    admin = users.add("admin", "a", "admin", "admin")
    alice, bob = users.add("alice", "a", "red", "member"), users.add("bob", "b", "blue", "member")
    with open_cloud(tmp_path, settings=users.settings) as cloud:
        flavor = {"name": "small", "id": "small", "ram": 512, "vcpus": 1, "disk": 1}
        assert cloud.ask("POST", "/flavors", {"flavor": flavor}, headers=admin).status_code == 200
        body = {"name": "web", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}
        answer = cloud.ask("POST", "/servers", {"server": body}, version="2.96", headers=alice)
        server_id = answer.json()["server"]["id"]

        for method, path, sent in (
            ("GET", "", None),
            ("PUT", "", {"server": {"name": "mine"}}),
            ("DELETE", "", None),
            ("POST", "/action", {"os-stop": None}),
            ("POST", "/action", {"lock": None}),
            ("POST", "/action", {"os-getConsoleOutput": {}}),
            ("GET", "/metadata", None),
            ("POST", "/metadata", {"metadata": {"a": "b"}}),
            ("GET", "/tags", None),
            ("PUT", "/tags/x", None),
            ("GET", "/os-instance-actions", None),
            ("GET", "/os-interface", None),
        ):
            refused = cloud.ask(method, f"/servers/{server_id}{path}", sent, version="2.96", headers=bob)
            assert refused.status_code == 404, (method, path)

        assert names(cloud, headers=alice) == ["web"]
        assert names(cloud, headers=bob) == []
        assert names(cloud, headers=admin) == []
        assert names(cloud, "?all_tenants=1", headers=admin) == ["web"]
        assert cloud.get("/servers?all_tenants=1", headers=alice).status_code == 403
        assert cloud.get(f"/servers/{server_id}", headers=admin).status_code == 200

        owner = cloud.get(f"/servers/{server_id}", version="2.96", headers=alice).json()["server"]
        assert not {"OS-EXT-SRV-ATTR:host", "OS-EXT-SRV-ATTR:instance_name", "host_status"} & set(owner)
        assert owner["OS-EXT-SRV-ATTR:hostname"] == "web"
        for query in ("?host=gpu001", "?vm_state=nothing"):  # not for owners: ignored, as ever
            assert names(cloud, query, headers=alice) == ["web"]
        assert cloud.get("/servers?status=DELETED", headers=alice).status_code == 403
        for path in ("/os-hypervisors", "/os-services", "/os-aggregates", "/os-availability-zone/detail"):
            assert cloud.get(path, headers=alice).status_code == 403, path


def test_owners_see_no_details_of_what_went_wrong_inside(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "passwords")
    admin, alice = users.add("admin", "a", "admin", "admin"), users.add("alice", "a", "red", "member")
    with open_cloud(tmp_path, settings=users.settings) as cloud:
        flavor = {"name": "small", "id": "small", "ram": 512, "vcpus": 1, "disk": 1}
        cloud.ask("POST", "/flavors", {"flavor": flavor}, headers=admin)
        body = {"name": "web", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}
        made = cloud.ask("POST", "/servers", {"server": body}, version="2.96", headers=alice)
        server_id = made.json()["server"]["id"]
        cloud.become(server_id, vm_state=VmState.ERROR, task_state=None)
        cloud.database.write(lambda conn: faults.add(conn, server_id, 500, "m", details="gpu001: secret"))
        assert "secret" not in cloud.get(f"/servers/{server_id}", headers=alice).text
        assert "secret" in cloud.get(f"/servers/{server_id}", headers=admin).text


# --- change and delete -----------------------------------------------------------------------------


def test_name_description_and_hostname_change(cloud: Cloud) -> None:
    cloud.flavor()
    server_id = cloud.booted()
    path = f"/servers/{server_id}"
    assert cloud.ask("PUT", path, {"server": {"name": "new"}}).json()["server"]["name"] == "new"
    body = {"server": {"description": "d"}}
    assert cloud.ask("PUT", path, body, version="2.18").status_code == 400
    assert cloud.ask("PUT", path, body, version="2.19").json()["server"]["description"] == "d"
    cleared = cloud.ask("PUT", path, {"server": {"description": None}}, version="2.96").json()["server"]
    assert cleared["description"] is None
    named = cloud.ask("PUT", path, {"server": {"hostname": "h"}}, version="2.90").json()["server"]
    assert named["OS-EXT-SRV-ATTR:hostname"] == "h"
    assert cloud.ask("PUT", path, {"server": {"hostname": "a.b"}}, version="2.93").status_code == 400
    assert cloud.ask("PUT", path, {"server": {"hostname": "a.b"}}, version="2.94").status_code == 200
    for bad in ({"name": None}, {"name": ""}, {"status": "ACTIVE"}, {"accessIPv4": "1.2.3.4"}):
        assert cloud.ask("PUT", path, {"server": bad}, version="2.96").status_code == 400, bad


def test_the_answer_of_a_change_is_the_whole_server_from_2_75(cloud: Cloud) -> None:
    cloud.flavor()
    server_id = cloud.booted()
    body = {"server": {"name": "new"}}
    old = cloud.ask("PUT", f"/servers/{server_id}", body, version="2.74").json()["server"]
    new = cloud.ask("PUT", f"/servers/{server_id}", body, version="2.75").json()["server"]
    shown = cloud.get(f"/servers/{server_id}", version="2.75").json()["server"]
    assert "OS-EXT-STS:vm_state" not in old
    assert set(new) == set(shown)


def test_delete_is_cast_once_accepted_and_may_be_repeated(cloud: Cloud) -> None:
    cloud.flavor()
    server_id = cloud.booted()
    for _ in range(2):
        assert cloud.ask("DELETE", f"/servers/{server_id}").status_code == 204
    assert cloud.inbox.wait("delete_server", 2) == [{"server_uuid": server_id}] * 2
    with cloud.database.read() as conn:
        assert servers.get(conn, server_id).task_state is TaskState.DELETING
        assert actions.of_server(conn, server_id)[0].action == "delete"
    assert cloud.ask("DELETE", "/servers/nope").status_code == 404


def test_deleted_servers_are_listed_for_admins_and_keep_their_history(cloud: Cloud) -> None:
    cloud.flavor()
    server_id = cloud.booted()
    cloud.database.write(lambda conn: servers.soft_delete(conn, server_id))
    assert cloud.get(f"/servers/{server_id}").status_code == 404
    assert names(cloud) == []
    assert names(cloud, "?deleted=True") == names(cloud, "?status=DELETED") == ["web"]
    assert names(cloud, "?changes-since=2001-01-01T00:00:00Z") == ["web"]
    assert cloud.get(f"/servers/{server_id}/os-instance-actions", version="2.20").status_code == 404
    history = cloud.get(f"/servers/{server_id}/os-instance-actions", version="2.21").json()["instanceActions"]
    assert [action["action"] for action in history] == ["create"]

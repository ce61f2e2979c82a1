from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetbridge.db import actions, servers
from jetbridge.model.context import ADMIN_ID
from jetbridge.model.flavor import Flavor
from jetbridge.model.server import TaskState, VmState
from tests.contract.db.rows import server as server_row
from tests.unit.api.clouds import IMAGE, Cloud, message, open_cloud
from tests.unit.api.doors import PasswordFile


def act(cloud: Cloud, server_id: str, body: Any, **more: Any) -> Any:
    return cloud.ask("POST", f"/servers/{server_id}/action", body, **more)


@pytest.fixture
def running(cloud: Cloud) -> str:
    cloud.flavor()
    server_id = cloud.booted()
    cloud.active(server_id)
    return server_id


@pytest.mark.parametrize(
    ("body", "before", "method", "task", "payload"),
    [
        ({"os-stop": None}, VmState.ACTIVE, "stop_server", "powering-off", {}),
        ({"os-stop": {}}, VmState.ERROR, "stop_server", "powering-off", {}),
        ({"os-start": None}, VmState.STOPPED, "start_server", "powering-on", {}),
        ({"reboot": {"type": "SOFT"}}, VmState.ACTIVE, "reboot_server", "rebooting", {"hard": False}),
        ({"reboot": {"type": "hard"}}, VmState.ACTIVE, "reboot_server", "rebooting_hard", {"hard": True}),
        ({"reboot": {"type": "HARD"}}, VmState.STOPPED, "reboot_server", "rebooting_hard", {"hard": True}),
    ],
)
def test_an_action_sets_the_task_and_is_cast_to_the_host(
    cloud: Cloud, running: str, body: Any, before: VmState, method: str, task: str, payload: dict[str, Any]
) -> None:
    cloud.become(running, vm_state=before)
    answer = act(cloud, running, body)
    assert (answer.status_code, answer.content) == (202, b"")
    assert cloud.inbox.wait(method) == [{"server_uuid": running, **payload}]
    assert [topic for topic, name, *_ in cloud.arrived() if name == method] == ["gpu001"]
    assert cloud.get(f"/servers/{running}").json()["server"]["OS-EXT-STS:task_state"] == task
    history = cloud.get(f"/servers/{running}/os-instance-actions").json()["instanceActions"]
    assert history[0]["request_id"] == answer.headers["x-openstack-request-id"]


@pytest.mark.parametrize(
    ("body", "vm_state", "task_state", "said"),
    [
        ({"os-start": None}, VmState.ACTIVE, None, "Cannot 'start' server ID while it is in vm_state active"),
        ({"os-stop": None}, VmState.STOPPED, None, "Cannot 'stop' server ID while it is in vm_state stopped"),
        ({"os-stop": None}, VmState.BUILDING, TaskState.SPAWNING, "vm_state building"),
        ({"os-stop": None}, VmState.ACTIVE, TaskState.POWERING_OFF, "task_state powering-off"),
        ({"os-stop": None}, VmState.ACTIVE, TaskState.DELETING, "task_state deleting"),
        ({"reboot": {"type": "SOFT"}}, VmState.STOPPED, None, "Cannot 'reboot'"),
        ({"reboot": {"type": "SOFT"}}, VmState.ACTIVE, TaskState.REBOOTING, "task_state rebooting"),
    ],
)
def test_states_that_do_not_allow_it_are_409(
    cloud: Cloud, running: str, body: Any, vm_state: VmState, task_state: TaskState | None, said: str
) -> None:
    cloud.become(running, vm_state=vm_state, task_state=task_state)
    answer = act(cloud, running, body)
    assert answer.status_code == 409
    assert "conflictingRequest" in answer.json()
    assert said.replace("ID", running) in message(answer)


def test_a_hard_reboot_helps_where_a_soft_one_hangs(cloud: Cloud, running: str) -> None:
    cloud.become(running, task_state=TaskState.REBOOTING)
    assert act(cloud, running, {"reboot": {"type": "HARD"}}).status_code == 202


def test_a_server_that_never_had_a_host_can_only_be_deleted(cloud: Cloud) -> None:
    cloud.flavor()
    server_id = cloud.booted()
    cloud.become(server_id, vm_state=VmState.ERROR, task_state=None)
    for body in ({"os-stop": None}, {"reboot": {"type": "HARD"}}):
        assert act(cloud, server_id, body).status_code == 409
    assert act(cloud, server_id, {"os-getConsoleOutput": {}}).status_code == 409
    assert cloud.ask("DELETE", f"/servers/{server_id}").status_code == 204


def test_an_agent_that_is_gone_leaves_the_server_as_it_was(
    cloud: Cloud, running: str, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.services.bus.withdraw("compute", server="gpu001")
    answer = act(cloud, running, {"os-stop": None})
    assert answer.status_code == 503
    assert "openstack compute service list" in message(answer)
    assert "Traceback" not in caplog.text
    assert "gpu001" in message(answer)
    assert cloud.get(f"/servers/{running}").json()["server"]["OS-EXT-STS:task_state"] is None
    with cloud.database.read() as conn:
        assert actions.of_server(conn, running)[0].message == "Error"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "0 actions"),
        ({"os-stop": None, "os-start": None}, "2 actions"),
        ({"resize": {"flavorRef": "1"}}, "'resize'"),
        ({"pause": None}, "'pause'"),
        ({"os-stop": {"force": True}}, "os-stop"),
        ({"reboot": None}, "'type' is a required property"),
        ({"reboot": {"type": "WARM"}}, "'WARM'"),
        ({"reboot": {"type": "SOFT", "when": "now"}}, "'when'"),
        ({"reboot": "SOFT"}, "reboot"),
        ({"os-getConsoleOutput": {"length": -2}}, "length"),
        ({"os-getConsoleOutput": {"length": "many"}}, "length"),
    ],
)
def test_what_does_not_exist_is_400_by_name(cloud: Cloud, running: str, body: Any, said: str) -> None:
    answer = act(cloud, running, body)
    assert answer.status_code == 400
    assert said in message(answer)
    assert len(cloud.arrived()) == 1  # the boot's


@pytest.mark.parametrize(
    ("asked", "length"), [({}, None), (None, None), ({"length": 5}, 5), ({"length": "5"}, 5), ({"length": -1}, None)]
)
def test_the_console_is_asked_of_the_host(cloud: Cloud, running: str, asked: Any, length: int | None) -> None:
    answer = act(cloud, running, {"os-getConsoleOutput": asked})
    assert answer.json() == {"output": "booted\n"}
    assert answer.status_code == 200
    assert cloud.inbox.wait("console_output") == [{"server_uuid": running, "length": length}]


def test_locks(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "passwords")
    admin, alice = users.add("admin", "a", "admin", "admin"), users.add("alice", "a", "red", "member")
    with open_cloud(tmp_path, settings=users.settings) as cloud:
        flavor = {"name": "small", "id": "small", "ram": 512, "vcpus": 1, "disk": 1}
        cloud.ask("POST", "/flavors", {"flavor": flavor}, headers=admin)
        body = {"name": "web", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}
        made = cloud.ask("POST", "/servers", {"server": body}, version="2.96", headers=alice)
        server_id = made.json()["server"]["id"]
        cloud.active(server_id)

        reason = {"lock": {"locked_reason": "audit"}}
        assert act(cloud, server_id, reason, version="2.72", headers=alice).status_code == 400
        assert act(cloud, server_id, reason, version="2.73", headers=alice).status_code == 202
        shown = cloud.get(f"/servers/{server_id}", version="2.73", headers=alice).json()["server"]
        assert (shown["locked"], shown["locked_reason"]) == (True, "audit")
        for refused in (
            act(cloud, server_id, {"os-stop": None}, headers=alice),
            cloud.ask("DELETE", f"/servers/{server_id}", headers=alice),
            cloud.ask("POST", f"/servers/{server_id}/metadata", {"metadata": {}}, headers=alice),
        ):
            assert refused.status_code == 409
            assert "locked" in message(refused)
        assert act(cloud, server_id, {"os-stop": None}, headers=admin).status_code == 202
        assert act(cloud, server_id, {"unlock": None}, headers=alice).status_code == 202
        assert cloud.ask("DELETE", f"/servers/{server_id}", headers=alice).status_code == 204


def test_history_by_version(cloud: Cloud, running: str) -> None:
    request = act(cloud, running, {"os-stop": None}).headers["x-openstack-request-id"]

    def write(conn: Any) -> None:
        actions.start_event(conn, running, request, "compute_stop_instance", host="gpu001")
        actions.finish_event(conn, running, request, "compute_stop_instance", result="Error", details="why")

    cloud.database.write(write)
    path = f"/servers/{running}/os-instance-actions"

    def event(version: str) -> dict[str, Any]:
        action = cloud.get(f"{path}/{request}", version=version).json()["instanceAction"]
        found: dict[str, Any] = action["events"][0]
        return found

    assert event("2.51")["result"] == "Error"
    assert "host" not in event("2.61")
    assert event("2.62")["host"] == "gpu001"
    assert len(event("2.62")["hostId"]) == 56
    assert "details" not in event("2.83")
    assert event("2.84")["details"] == "why"

    first = cloud.get(f"{path}?limit=1", version="2.58").json()
    assert [action["action"] for action in first["instanceActions"]] == ["stop"]
    assert f"marker={request}" in first["links"][0]["href"]
    rest = cloud.get(f"{path}?limit=1&marker={request}", version="2.58").json()
    assert [action["action"] for action in rest["instanceActions"]] == ["create"]
    assert "updated_at" not in cloud.get(path, version="2.57").json()["instanceActions"][0]
    assert cloud.get(f"{path}?marker=nope", version="2.58").status_code == 400
    assert cloud.get(f"{path}/req-nope").status_code == 404


def test_metadata(cloud: Cloud, running: str) -> None:
    path = f"/servers/{running}/metadata"
    assert cloud.ask("POST", path, {"metadata": {"a": "1"}}).json() == {"metadata": {"a": "1"}}
    assert cloud.ask("POST", path, {"metadata": {"b": "2"}}).json() == {"metadata": {"a": "1", "b": "2"}}
    assert cloud.ask("PUT", f"{path}/a", {"meta": {"a": "3"}}).json() == {"meta": {"a": "3"}}
    assert cloud.get(f"{path}/a").json() == {"meta": {"a": "3"}}
    assert cloud.ask("PUT", path, {"metadata": {"c": "4"}}).json() == {"metadata": {"c": "4"}}
    assert cloud.ask("DELETE", f"{path}/c").status_code == 204
    assert cloud.get(path).json() == {"metadata": {}}
    assert cloud.get(f"{path}/c").status_code == cloud.ask("DELETE", f"{path}/c").status_code == 404
    for body in ({"meta": {"other": "x"}}, {"meta": {}}, {"meta": {"a": "1", "b": "2"}}, {"meta": {"a": 1}}):
        assert cloud.ask("PUT", f"{path}/a", body).status_code == 400, body


def test_tags(cloud: Cloud, running: str) -> None:
    path, version = f"/servers/{running}/tags", "2.26"
    assert cloud.get(path, version="2.25").status_code == 404
    assert cloud.ask("PUT", path, {"tags": ["b", "a"]}, version=version).json() == {"tags": ["a", "b"]}
    assert cloud.ask("PUT", f"{path}/c", version=version).status_code == 201
    assert cloud.ask("PUT", f"{path}/c", version=version).status_code == 204
    assert cloud.get(f"{path}/c", version=version).status_code == 204
    assert cloud.ask("DELETE", f"{path}/c", version=version).status_code == 204
    assert cloud.get(f"{path}/c", version=version).status_code == 404
    assert cloud.ask("DELETE", f"{path}/c", version=version).status_code == 404
    assert cloud.ask("PUT", f"{path}/{'x' * 61}", version=version).status_code == 400
    cloud.ask("PUT", path, {"tags": [str(number) for number in range(50)]}, version=version)
    assert cloud.ask("PUT", f"{path}/one-more", version=version).status_code == 400
    assert cloud.ask("DELETE", path, version=version).status_code == 204
    assert cloud.get(path, version=version).json() == {"tags": []}


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("os-volume_attachments", {"volumeAttachments": []}),
        ("os-security-groups", {"security_groups": []}),
        ("ips", {"addresses": {}}),
    ],
)
def test_lists_that_are_always_empty(cloud: Cloud, running: str, path: str, answer: Any) -> None:
    assert cloud.get(f"/servers/{running}/{path}").json() == answer
    assert cloud.get(f"/servers/nope/{path}").status_code == 404


@pytest.mark.parametrize("action", ["suspend", "resize", "migrate", "os-migrateLive"])
def test_what_cannot_be_done_with_accelerators_says_so(cloud: Cloud, action: str) -> None:
    cloud.flavor("plain")
    server = cloud.booted("plain")
    assert "There is no such action" in message(cloud.ask("POST", f"/servers/{server}/action", {action: None}))
    flavor = Flavor(0, "f", "f", 1, 512, 1, extra_specs={"accel:device_profile": "infer"})
    with_one = server_row("s", flavor=flavor, project_id=ADMIN_ID)
    cloud.database.write(lambda conn: servers.create(conn, with_one))
    answer = cloud.ask("POST", f"/servers/{with_one.uuid}/action", {action: None})
    assert answer.status_code == 400
    for words in (action, with_one.uuid, "'infer'"):
        assert words in message(answer)

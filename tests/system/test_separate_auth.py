"""Services as processes of their own where everybody has to say who they are, the services too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jetbridge.config.settings import Settings
from tests.servers.rabbitmq import RabbitNode
from tests.system.cloud import fleet, gpu
from tests.system.invariants import check_at_rest
from tests.system.separate import SeparateCloud
from tests.system.test_accelerators import Accelerators, accelerated
from tests.unit.api.doors import PasswordFile

QUICK = Settings(service_down_time=6, report_interval=1, update_resources_interval=2)
"""What a process left is seen soon."""

Headers = dict[str, str]


class Users(PasswordFile):
    """Those of the test, with the headers that they send."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.root = self.add("root", "r", "admin", "admin")
        self.bob = self.add("bob", "b", "research", "member")
        self.eve = self.add("eve", "e", "sales", "member")
        self.service = self.add("jetbridge", "s", "services", "admin,service")


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users")


@pytest.fixture
def cloud(tmp_path: Path, rabbit: RabbitNode, users: Users) -> Iterator[SeparateCloud]:
    ours: dict[str, Any] = {}
    for group in ("cyborg", "placement"):
        ours |= {f"{group}_auth_type": "http_basic", f"{group}_username": "jetbridge", f"{group}_password": "s"}
    settings = replace(QUICK, auth_strategy="http_basic", http_basic_auth_user_file=users.path, **ours)
    made = SeparateCloud(tmp_path, rabbit, settings, in_pairs=False)
    made.write_fleet(fleet(accelerated("h1", gpu(1), gpu(2))))
    try:
        made.start()
        made.client.headers.update(users.root)
        yield made
    finally:
        made.stop()


def arqs(cloud: SeparateCloud, who: Headers) -> list[dict[str, Any]]:
    answer = cloud.client.get(f"{cloud.url}/accelerator/v2/accelerator_requests", headers=who)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["arqs"]
    return found


def test_model_4_where_all_services_say_who_they_are(cloud: SeparateCloud, users: Users) -> None:
    """A server of a member: what the services make for it is its owner's, and what a process that died had made is taken back, while
    what people made stays theirs."""
    accelerators = Accelerators(cloud)
    accelerators.prepare()
    flavor, image = cloud.flavor("two", {"accel:device_profile": "two"}), cloud.image()
    cloud.client.headers.update(users.bob)
    server = cloud.boot(flavor, imageRef=image)
    shown = cloud.wait(server, "ACTIVE", "ERROR")
    assert shown["status"] == "ACTIVE", shown["fault"]
    assert {(arq["state"], arq["instance_uuid"]) for arq in arqs(cloud, users.bob)} == {("Bound", server)}
    assert arqs(cloud, users.eve) == []
    assert len(accelerators.xml(server, "h1").hostdevs) == 2
    late = cloud.boot(flavor, imageRef=image)
    assert "No valid host" in cloud.wait(late, "ERROR")["fault"]["message"]

    body = {"device_profile_name": "one"}
    path = f"{cloud.url}/accelerator/v2/accelerator_requests"
    (eves,) = cloud.client.post(path, json=body, headers=users.eve).json()["arqs"]
    (lost,) = cloud.client.post(path, json=body, headers=users.service).json()["arqs"]
    cloud.change(
        "INSERT INTO server_arqs (instance_uuid, build_id, profile, project_id, requester_id, attach_info)"
        " VALUES ('gone', 1, 'one', 'p', '', '{}')"
    )
    cloud.until(
        lambda: [arq["uuid"] for arq in arqs(cloud, users.root) if arq["instance_uuid"] is None] == [eves["uuid"]],
        f"{lost['uuid']}, which nobody wrote down, is taken back",
        lambda: arqs(cloud, users.root),
    )
    assert cloud.client.delete(f"{path}/{eves['uuid']}", headers=users.eve).status_code == 204
    assert {arq["state"] for arq in arqs(cloud, users.bob)} == {"Bound"}
    cloud.client.headers.update(users.root)
    for each in (server, late):
        cloud.delete(each)
        cloud.wait_gone(each)
    accelerators.check_nothing_left()
    check_at_rest(cloud)

"""SIGKILL while vGPUs are reserved, made, given and let go: what exists afterwards is written down, and nobody has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetbridge.steps.runtime import Moment
from tests.system.child import SENT, Death, MortalCloud, dying
from tests.system.cloud import host
from tests.system.invariants import check_at_rest

CARD = {"vendor_id": "10de", "product_id": "2235", "driver": "nvidia"}
HOST = host(
    "h1",
    [
        {"address": "0000:3b:00.0", **CARD, "mdev_types": {"nvidia-222": {"available": "4"}}},
        {"address": "0000:65:00.0", **CARD, "pf": {"vfs": 2, "max_vfs": 2}, "vgpu_types": {"558": "L40S-4Q"}},
    ],
    config={
        "devices": {"enabled_mdev_types": ["nvidia-222", "nvidia-558"]},
        "mdev_nvidia-558": {"device_addresses": ["0000:65:00.0"], "mdev_class": "CUSTOM_VENDOR"},
    },
)
BOTH = {"resources1:VGPU": "1", "resources2:CUSTOM_VENDOR": "1", "group_policy": "none"}
BUILD = [Death("claim", Moment.CHANGED), *(Death("vgpus", moment) for moment in Moment)] + [
    Death(call, SENT) for call in ("create_mdev", "set_vgpu_type", "define_domain")
]
DELETE = [*(Death("vgpus", moment, spared=1) for moment in Moment), Death("clear_vgpu_type", SENT)]
"""A build has a step of that name, too."""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MortalCloud]:
    made = MortalCloud(tmp_path)
    made.write_fleet({"hosts": [HOST]})
    yield made
    made.stop()


def name(death: Death) -> str:
    return f"{death.step}-{death.moment}"


def hypervisor(cloud: MortalCloud) -> dict[str, Any]:
    path = cloud.state / "sim" / "h1" / "state.json"
    if not path.exists():
        return {"mdevs": {}, "files": {}, "domains": {}}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def check_nobody_has_any(cloud: MortalCloud) -> None:
    rows = cloud.sql("SELECT uuid, kind, instance_uuid FROM vgpus")
    assert {row[2] for row in rows} <= {None}
    state = hypervisor(cloud)
    assert {mdev["uuid"] for mdev in state["mdevs"].values()} == {row[0] for row in rows if row[1] == "mdev"}
    assert [row for row in rows if row[1] == "vfio"] == []
    assert {text.strip() for text in state["files"].values()} <= {"0"}
    assert state["domains"] == {}


def boot(cloud: MortalCloud) -> str:
    """Once its cards are in Placement."""
    flavor_id = cloud.flavor("g", BOTH)
    cloud.until(
        lambda: len(cloud.sql("SELECT uuid FROM placement_providers WHERE kind = 'mdev'")) == 2, "cards reported"
    )
    return cloud.boot(flavor_id)


@pytest.mark.parametrize("death", BUILD, ids=name)
def test_a_killed_build_leaves_no_vgpu_with_anybody(cloud: MortalCloud, death: Death) -> None:
    with dying(cloud, death):
        boot(cloud)
    server_id = cloud.only_server()
    cloud.start()
    check_at_rest(cloud)
    assert cloud.show(server_id)["status"] == "ERROR"
    check_nobody_has_any(cloud)
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    again = cloud.boot(cloud.sql("SELECT flavorid FROM flavors WHERE name = 'g'")[0][0])
    assert cloud.wait(again, "ACTIVE", "ERROR")["status"] == "ACTIVE"


@pytest.mark.parametrize("death", DELETE, ids=name)
def test_a_killed_delete_is_finished(cloud: MortalCloud, death: Death) -> None:
    with dying(cloud, death):
        server_id = boot(cloud)
        assert cloud.wait(server_id, "ACTIVE", "ERROR")["status"] == "ACTIVE"
        cloud.delete(server_id)
    cloud.start()
    check_at_rest(cloud)
    assert cloud.client.get(f"/servers/{server_id}").status_code == 404
    check_nobody_has_any(cloud)

"""python-cyborgclient and openstacksdk against the embedded accelerator service."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.system.clients import OpenStack, openstack_client
from tests.system.cloud import Cloud, fleet, gpu, host, running

GROUPS = [{"resources:PGPU": "1", "trait:CUSTOM_FAST": "required"}]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with running(tmp_path_factory.mktemp("accelerator"), fleet(host("gpu001", [gpu(0x3B)]))) as started:
        yield started


@pytest.fixture(scope="module")
def openstack(cloud: Cloud) -> Iterator[OpenStack]:
    with openstack_client(cloud) as client:
        yield client


def test_device_profiles(openstack: OpenStack) -> None:
    made = openstack.json(
        "accelerator", "device", "profile", "create", "infer", json.dumps(GROUPS), "--description", "for inference"
    )
    assert (made["name"], made["description"]) == ("infer", "for inference")
    assert openstack.json("accelerator", "device", "profile", "show", "infer")["uuid"] == made["uuid"]
    listed = openstack.json("accelerator", "device", "profile", "list")
    assert [(profile["name"], profile["groups"]) for profile in listed] == [("infer", GROUPS)]
    wrong = json.dumps([{"resources:GPUS": "1"}])
    assert "'GPUS'" in openstack.refused("accelerator", "device", "profile", "create", "wrong", wrong)
    openstack.ok("accelerator", "device", "profile", "delete", made["uuid"])
    openstack.refused("accelerator", "device", "profile", "show", "infer")


def test_requests(openstack: OpenStack) -> None:
    openstack.ok("accelerator", "device", "profile", "create", "train", json.dumps(GROUPS))
    made = openstack.json("accelerator", "arq", "create", "train")
    assert (made["state"], made["device_profile_name"]) == ("Initial", "train")
    assert [arq["uuid"] for arq in openstack.json("accelerator", "arq", "list")] == [made["uuid"]]
    assert openstack.json("accelerator", "arq", "show", made["uuid"])["state"] == "Initial"
    assert "train" in openstack.refused("accelerator", "device", "profile", "delete", "train")
    openstack.ok("accelerator", "arq", "delete", made["uuid"])
    assert openstack.json("accelerator", "arq", "list") == []
    openstack.ok("accelerator", "device", "profile", "delete", "train")

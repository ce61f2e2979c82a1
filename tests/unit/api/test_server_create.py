from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jetbridge.api.server_create import hostname_of
from jetbridge.db import actions, flavors, request_specs, servers
from jetbridge.model.image import ImageStatus, Visibility
from jetbridge.network.embedded import network_id
from jetbridge.pci.request import NumaPolicy
from tests.servers.cyborg import fake_cyborg
from tests.unit.api.clouds import IMAGE, Cloud, message, open_cloud, put_image
from tests.unit.api.doors import PasswordFile

OTHER_IMAGE = "22222222-2222-4333-8444-555555555555"


def test_a_request_is_frozen_before_anything_is_scheduled(cloud: Cloud) -> None:
    cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:2", "hw:numa_nodes": "1"}, vcpus=2)
    answer = cloud.boot("gpu", metadata={"k": "v"}, tags=["t"], description="d")
    server_id = answer.json()["server"]["id"]
    assert answer.headers["location"].endswith(f"/compute/v2.1/servers/{server_id}")
    assert cloud.inbox.wait("build_servers") == [{"server_uuids": [server_id]}]

    with cloud.database.read() as conn:
        server = servers.get(conn, server_id)
        spec = request_specs.get(conn, server_id)
        requests = servers.pci_requests(conn, server_id)
        (action,) = actions.of_server(conn, server_id)
    assert spec.pci_requests == requests
    assert [(request.alias_name, request.count) for request in requests] == [("GPU", 2)]
    assert spec.flavor.extra_specs["pci_passthrough:alias"] == "GPU:2"
    assert spec.numa_topology is not None
    assert len(spec.numa_topology.cells) == 1
    assert (server.metadata, server.tags, server.display_description) == ({"k": "v"}, ("t",), "d")
    request_id = answer.headers["x-openstack-request-id"]
    assert server.request_id == action.request_id == request_id
    assert cloud.inbox.messages[0][3].request_id == request_id


def test_an_unknown_alias_is_refused_at_boot_by_name(cloud: Cloud) -> None:
    cloud.flavor("typo", {"pci_passthrough:alias": "GPUU:1"})
    answer = cloud.boot("typo")
    assert answer.status_code == 400
    assert "GPUU" in message(answer)
    assert cloud.get("/servers").json()["servers"] == []
    assert cloud.arrived() == []


@pytest.mark.parametrize("value", ["gpu", "gpu:x", "gpu:0", "gpu:-1"])
@pytest.mark.parametrize("version", ["2.37", "2.96"])
def test_f11_a_wrong_alias_that_a_flavor_has_already_is_refused_at_boot(cloud: Cloud, value: str, version: str) -> None:
    """The door for flavors takes none; a table that somebody edited, or filled before, may hold one."""
    cloud.flavor("old", {"pci_passthrough:alias": "GPU:1"})
    cloud.database.write(lambda conn: flavors.set_extra_specs(conn, "old", {"pci_passthrough:alias": value}))
    answer = cloud.boot("old", version=version)
    assert answer.status_code == 400
    assert repr(value) in message(answer)
    assert "NAME:COUNT" in message(answer)
    assert cloud.get("/servers").json()["servers"] == []


def test_policies_of_flavor_and_image_that_differ_are_403(cloud: Cloud) -> None:
    put_image(cloud.services, OTHER_IMAGE, properties={"hw_pci_numa_affinity_policy": "required"})
    cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1", "hw:pci_numa_affinity_policy": "preferred"})
    answer = cloud.boot("gpu", imageRef=OTHER_IMAGE)
    assert answer.status_code == 403
    assert "preferred" in message(answer)


def test_the_image_policy_holds_for_the_requests(cloud: Cloud) -> None:
    put_image(cloud.services, OTHER_IMAGE, properties={"hw_pci_numa_affinity_policy": "required"})
    cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"})
    server_id = cloud.booted("gpu", imageRef=OTHER_IMAGE)
    with cloud.database.read() as conn:
        (request,) = servers.pci_requests(conn, server_id)
    assert request.numa_policy is NumaPolicy.REQUIRED


def test_a_topology_that_cannot_be_built_is_400(cloud: Cloud) -> None:
    cloud.flavor("odd", {"hw:numa_nodes": "3"}, vcpus=2)
    answer = cloud.boot("odd")
    assert answer.status_code == 400
    assert "hw:numa_nodes" in message(answer)


def test_many_servers_of_one_request(cloud: Cloud) -> None:
    cloud.flavor("gpu", {"pci_passthrough:alias": "GPU:1"})
    answer = cloud.boot("gpu", min_count=2, max_count=3, return_reservation_id=True)
    reservation = answer.json()["reservation_id"]
    (payload,) = cloud.inbox.wait("build_servers")
    uuids = payload["server_uuids"]
    with cloud.database.read() as conn:
        made = [servers.get(conn, uuid) for uuid in uuids]
        ids = {request.request_id for uuid in uuids for request in servers.pci_requests(conn, uuid)}
    assert [server.display_name for server in made] == ["web-1", "web-2", "web-3"]
    assert [server.launch_index for server in made] == [0, 1, 2]
    assert {server.reservation_id for server in made} == {reservation}
    assert len(ids) == 3
    assert len(cloud.get(f"/servers?reservation_id={reservation}").json()["servers"]) == 3


def test_networks_become_nics_with_their_own_addresses(cloud: Cloud) -> None:
    cloud.flavor()
    for networks in ("auto", [{"uuid": network_id("default")}], [{"uuid": "default", "tag": "front"}]):
        server_id = cloud.booted(networks=networks)
        (nic,) = cloud.get(f"/servers/{server_id}/os-interface", version="2.96").json()["interfaceAttachments"]
        assert nic["net_id"] == network_id("default")
        assert nic["mac_addr"].startswith("fa:16:3e:")
        assert nic["tag"] == ("front" if "tag" in networks[0] else None)
        # Clients take a server without any entry here for one that failed.
        assert cloud.get(f"/servers/{server_id}").json()["server"]["addresses"] == {"default": []}
        assert cloud.get(f"/servers/{server_id}/ips/default").json() == {"default": []}
        assert cloud.get(f"/servers/{server_id}/ips/nope").status_code == 404
    assert cloud.get(f"/servers/{cloud.booted()}/os-interface").json() == {"interfaceAttachments": []}


def test_networks_by_microversion(cloud: Cloud) -> None:
    cloud.flavor()
    body: dict[str, Any] = {"name": "web", "imageRef": IMAGE, "flavorRef": "small"}
    assert cloud.ask("POST", "/servers", {"server": body}, version="2.36").status_code == 202
    missing = cloud.ask("POST", "/servers", {"server": body}, version="2.37")
    assert missing.status_code == 400
    assert "'networks' is a required property" in message(missing)
    words = cloud.ask("POST", "/servers", {"server": {**body, "networks": "none"}}, version="2.36")
    assert words.status_code == 400


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"imageRef": "not-an-id"}, "imageRef"),
        ({"imageRef": ""}, "imageRef"),
        ({"imageRef": OTHER_IMAGE}, OTHER_IMAGE),
        ({"flavorRef": "nope"}, "nope"),
        ({"min_count": 3, "max_count": 2}, "min_count must be <= max_count"),
        ({"max_count": 1001}, "max_count"),
        ({"min_count": 0}, "min_count"),
        ({"networks": [{"port": "x"}]}, "Port x could not be found"),
        ({"networks": [{}]}, "'uuid' or 'port'"),
        ({"networks": [{"port": "x"}], "max_count": 2}, "a port is one NIC"),
        ({"networks": [{"port": "x", "fixed_ip": "10.0.0.1"}]}, "fixed_ip"),
        ({"networks": [{"uuid": "nope"}]}, "nope"),
        ({"networks": "some"}, "networks"),
        ({"networks": None}, "networks"),
        ({"networks": [{"uuid": "default", "tag": "a"}, {"uuid": "default", "tag": "a"}]}, "not unique"),
        ({"key_name": "nope"}, "'nope'"),
        ({"user_data": "§"}, "base64"),
        ({"user_data": "A" * 65536}, "user_data"),
        ({"availability_zone": "mars"}, "'mars'"),
        ({"availability_zone": "nova:nohost"}, "nohost"),
        ({"availability_zone": "nova:gpu001", "host": "gpu001"}, "use one of"),
        ({"host": "nohost"}, "nohost"),
        ({"hypervisor_hostname": "nonode"}, "nonode"),
        ({"hostname": "a", "max_count": 2}, "hostname"),
        ({"hostname": "-a"}, "hostname"),
        ({"metadata": {"k": 1}}, "metadata.k"),
        ({"metadata": {"a/b": "x"}}, "metadata"),
        ({"metadata": {"k": "x" * 256}}, "metadata.k"),
        ({"tags": ["a", "a"]}, "not unique"),
        ({"tags": ["a/b"]}, "tags"),
        ({"tags": [str(n) for n in range(51)]}, "tags"),
        ({"trusted_image_certificates": ["x"]}, "'trusted_image_certificates'"),
        ({"personality": []}, "'personality'"),
        ({"security_groups": [{"name": "x"}]}, "'security_groups'"),
        ({"accessIPv4": "1.2.3.4"}, "'accessIPv4'"),
        ({"adminPass": "x"}, "'adminPass'"),
        ({"OS-DCF:diskConfig": "AUTO"}, "'OS-DCF:diskConfig'"),
        ({"block_device_mapping": []}, "'block_device_mapping'"),
        ({"block_device_mapping_v2": [{"source_type": "volume", "uuid": IMAGE}]}, "source_type='volume'"),
        (
            {"block_device_mapping_v2": [{"source_type": "image", "destination_type": "volume", "uuid": IMAGE}]},
            "destination_type='volume'",
        ),
        (
            {"block_device_mapping_v2": [{"source_type": "image", "boot_index": 1, "uuid": IMAGE}]},
            "boot_index=1",
        ),
        ({"block_device_mapping_v2": [{"source_type": "image", "uuid": OTHER_IMAGE}]}, "differs from imageRef"),
        ({"block_device_mapping_v2": [{"source_type": "image"}]}, "uuid is missing"),
        ({"block_device_mapping_v2": [{"source_type": "image", "uuid": IMAGE}] * 2}, "2 mappings"),
        (
            {"block_device_mapping_v2": [{"source_type": "image", "uuid": IMAGE, "volume_size": 1}]},
            "'volume_size'",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(shared: Cloud, more: dict[str, Any], said: str) -> None:
    answer = shared.boot(**more)
    assert answer.status_code == 400
    assert said in message(answer)
    assert shared.arrived() == []
    assert shared.get("/servers").json() == {"servers": []}


@pytest.mark.parametrize(
    ("field", "value", "since"),
    [
        ("description", "d", 19),
        ("tags", ["t"], 52),
        ("host", "gpu001", 74),
        ("hypervisor_hostname", "gpu001", 74),
        ("hostname", "guest", 90),
    ],
)
def test_fields_exist_from_their_version_on(cloud: Cloud, field: str, value: object, since: int) -> None:
    cloud.flavor()
    networks = {"networks": []} if since <= 37 else {}
    before = cloud.boot(version=f"2.{since - 1}", **{**networks, field: value})
    assert before.status_code == 400
    assert f"{field!r} was unexpected" in message(before)
    assert cloud.boot(version=f"2.{since}", **{**networks, field: value}).status_code == 202


def test_the_boot_disk_may_be_named_as_a_mapping(cloud: Cloud) -> None:
    cloud.flavor()
    device = {
        "uuid": IMAGE,
        "boot_index": 0,
        "source_type": "image",
        "destination_type": "local",
        "delete_on_termination": True,
    }
    for image in (IMAGE, ""):
        assert cloud.boot(imageRef=image, block_device_mapping_v2=[device]).status_code == 202


@pytest.mark.parametrize("hint", ["group", "same_host", "different_host", "query"])
def test_hints_that_nothing_honours_are_refused(cloud: Cloud, hint: str) -> None:
    cloud.flavor()
    body = {
        "server": {"name": "web", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"},
        "OS-SCH-HNT:scheduler_hints": {hint: "x"},
    }
    answer = cloud.ask("POST", "/servers", body, version="2.96")
    assert answer.status_code == 400
    assert hint in message(answer)


def test_what_a_flavor_asks_of_placement_is_kept_with_the_server(cloud: Cloud) -> None:
    cloud.flavor(specs={"resources1:VGPU": "1", "trait1:CUSTOM_FAST": "required", "resources:MEMORY_MB": "512"})
    server_id = cloud.boot().json()["server"]["id"]
    with cloud.database.read() as conn:
        (group,) = request_specs.get(conn, server_id).groups
    assert (group.requester_id, group.resources, group.required) == ("1", {"VGPU": 1}, {"CUSTOM_FAST"})


def test_an_amount_that_is_no_number_is_refused_by_its_key(cloud: Cloud) -> None:
    cloud.flavor(specs={"resources:VGPU": "many"})
    answer = cloud.boot()
    assert answer.status_code == 400
    assert "'many' for extra spec resources:VGPU" in message(answer)


def test_a_device_profile_that_is_not_there_exactly_once_is_refused(cloud: Cloud) -> None:
    cloud.flavor(specs={"accel:device_profile": "fast"})
    answer = cloud.boot()
    assert answer.status_code == 400
    assert "[cyborg]endpoint_override" in message(answer)
    with fake_cyborg() as cyborg:
        cloud.client.app.state.services = replace(cloud.services, accelerator_client=cyborg.client)  # type: ignore[attr-defined]
        for status, content, said in (
            (200, {"device_profiles": []}, "got nothing"),
            (200, {"device_profiles": [{}, {}]}, "got 2"),
            (500, {}, "invalid response"),
        ):
            cyborg.answer = lambda request, found=(status, content): found  # type: ignore[misc]
            answer = cloud.boot()
            assert answer.status_code == 400
            assert said in message(answer)
            assert "'fast'" in message(answer)
    assert cloud.get("/servers").json()["servers"] == []


def test_a_device_profile_becomes_request_groups(cloud: Cloud) -> None:
    cloud.flavor(specs={"accel:device_profile": "fast"})
    groups = [{"resources:FPGA": "1", "trait:CUSTOM_A": "required"}, {"resources:PGPU": "1", "accel:function_id": "x"}]
    with fake_cyborg() as cyborg:
        cloud.client.app.state.services = replace(cloud.services, accelerator_client=cyborg.client)  # type: ignore[attr-defined]
        cyborg.answer = lambda request: (200, {"device_profiles": [{"uuid": "u", "name": "fast", "groups": groups}]})
        server = cloud.booted()
    with cloud.database.read() as conn:
        wanted = request_specs.get(conn, server).groups
    assert [(group.requester_id, dict(group.resources), group.required) for group in wanted] == [
        ("device_profile_0", {"FPGA": 1}, {"CUSTOM_A"}),
        ("device_profile_1", {"PGPU": 1}, frozenset()),
    ]


def test_hints_of_ones_own_filters_are_kept(cloud: Cloud) -> None:
    cloud.flavor()
    body = {
        "server": {"name": "web", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"},
        "os:scheduler_hints": {"rack": "r1", "near": ["a", "b"]},
    }
    server_id = cloud.ask("POST", "/servers", body, version="2.96").json()["server"]["id"]
    with cloud.database.read() as conn:
        assert request_specs.get(conn, server_id).hints == {"rack": ("r1",), "near": ("a", "b")}


@pytest.mark.parametrize(
    "where",
    [
        {"availability_zone": "nova:gpu002"},
        {"availability_zone": "nova::gpu002"},
        {"availability_zone": "nova:gpu002:gpu002"},
        {"host": "gpu002"},
        {"hypervisor_hostname": "gpu002"},
        {"host": "gpu002", "hypervisor_hostname": "gpu002"},
    ],
)
def test_a_host_may_be_named(cloud: Cloud, where: dict[str, str]) -> None:
    cloud.flavor()
    server_id = cloud.booted(**where)
    with cloud.database.read() as conn:
        assert request_specs.get(conn, server_id).force_host == "gpu002"


def test_only_admins_name_hosts(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "passwords")
    admin, guest = users.add("admin", "a", "admin", "admin"), users.add("guest", "g", "guests", "member")
    with open_cloud(tmp_path, settings=users.settings) as cloud:
        flavor = {"name": "small", "id": "small", "ram": 1, "vcpus": 1, "disk": 1}
        assert cloud.ask("POST", "/flavors", {"flavor": flavor}, headers=admin).status_code == 200
        for where in ({"availability_zone": "nova:gpu001"}, {"host": "gpu001"}):
            body = {"name": "web", "imageRef": IMAGE, "flavorRef": "small", "networks": "none", **where}
            assert cloud.ask("POST", "/servers", {"server": body}, version="2.96", headers=guest).status_code == 403


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ({"status": ImageStatus.QUEUED}, "not active"),
        ({"min_ram": 1024}, "min_ram=1024"),
        ({"min_disk": 2}, "min_disk=2"),
        ({"virtual_size": 2 * 1024**3}, "disk is too small"),
    ],
)
def test_the_image_must_fit_the_flavor(cloud: Cloud, image: dict[str, Any], said: str) -> None:
    put_image(cloud.services, OTHER_IMAGE, **image)
    cloud.flavor()
    answer = cloud.boot(imageRef=OTHER_IMAGE)
    assert answer.status_code == 400
    assert said in message(answer)


def test_a_root_disk_of_0_is_as_large_as_the_image(cloud: Cloud) -> None:
    put_image(cloud.services, OTHER_IMAGE, virtual_size=50 * 1024**3, min_disk=40)
    cloud.flavor(disk=0)
    assert cloud.boot(imageRef=OTHER_IMAGE).status_code == 202


def test_another_projects_private_image_does_not_exist(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "passwords")
    admin, guest = users.add("admin", "a", "admin", "admin"), users.add("guest", "g", "guests", "member")
    with open_cloud(tmp_path, settings=users.settings) as cloud:
        put_image(cloud.services, OTHER_IMAGE, visibility=Visibility.PRIVATE)
        flavor = {"name": "small", "id": "small", "ram": 512, "vcpus": 1, "disk": 1}
        cloud.ask("POST", "/flavors", {"flavor": flavor}, headers=admin)
        body = {"name": "web", "imageRef": OTHER_IMAGE, "flavorRef": "small", "networks": "none"}
        answer = cloud.ask("POST", "/servers", {"server": body}, version="2.96", headers=guest)
        assert answer.status_code == 400
        assert "could not be found" in message(answer)


def test_key_user_data_and_config_drive_reach_the_server(cloud: Cloud) -> None:
    cloud.flavor()
    key = cloud.ask("POST", "/os-keypairs", {"keypair": {"name": "k"}}).json()["keypair"]
    data = base64.b64encode(b"#!/bin/sh\n").decode()
    server_id = cloud.booted(key_name="k", user_data=data, config_drive=True)
    with cloud.database.read() as conn:
        server, kept = servers.get(conn, server_id), servers.keypair(conn, server_id)
    assert (server.key_name, server.user_data, server.config_drive) == ("k", data, True)
    assert kept is not None
    assert kept["public_key"] == key["public_key"]
    shown = cloud.get(f"/servers/{server_id}", version="2.3").json()["server"]
    assert (shown["config_drive"], shown["OS-EXT-SRV-ATTR:user_data"]) == ("True", data)


def test_servers_that_nobody_will_build_say_so(cloud: Cloud) -> None:
    cloud.flavor()
    cloud.services.bus.withdraw("conductor")
    answer = cloud.boot()
    assert answer.status_code == 503
    (server,) = cloud.get("/servers/detail").json()["servers"]
    assert server["status"] == "ERROR"
    assert "conductor" in server["fault"]["message"]


@pytest.mark.parametrize(
    ("name", "hostname"),
    [
        ("web", "web"),
        ("My Server_1", "my-server-1"),
        ("a.b", "a-b"),
        ("-x-", "x"),
        ("日本", "server-ID"),
        ("x" * 200, "x" * 63),
    ],
)
def test_host_names_are_made_from_names(name: str, hostname: str) -> None:
    assert hostname_of(name, "ID") == hostname

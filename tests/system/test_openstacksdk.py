"""openstacksdk against the running product, at the microversions it negotiates and at fixed ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openstack import exceptions
from openstack.config import OpenStackConfig
from openstack.connection import Connection

from tests.system.cloud import Cloud, fleet, gpu, host, running

VERSIONS = ["2.1", "2.37", "2.47", "2.79", "2.96"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with running(tmp_path_factory.mktemp("sdk"), fleet(host("gpu001", [gpu(0x3B), gpu(0x5E)]))) as started:
        yield started


def connect(cloud: Cloud, **more: Any) -> Connection:
    config = OpenStackConfig(config_files=[str(cloud.state / "clouds.yaml")], load_envvars=False)
    return Connection(config=config.get_one("jetbridge", **more))


@pytest.fixture(scope="module")
def sdk(cloud: Cloud) -> Connection:
    return connect(cloud)


@pytest.fixture(scope="module")
def flavor(sdk: Connection) -> Any:
    made = sdk.compute.create_flavor(name="gpu.small", ram=512, vcpus=1, disk=1)
    sdk.compute.create_flavor_extra_specs(made, {"pci_passthrough:alias": "GPU:1"})
    return made


def test_a_server_through_the_compute_proxy(sdk: Connection, cloud: Cloud, flavor: Any) -> None:
    made = sdk.compute.create_server(name="sdk", image_id=cloud.image(), flavor_id=flavor.id, networks="none")
    server = sdk.compute.wait_for_server(made, wait=60)
    assert server.status == "ACTIVE"
    assert server.hypervisor_hostname == "gpu001"
    assert server.flavor.original_name == "gpu.small"
    assert server.flavor.extra_specs == {"pci_passthrough:alias": "GPU:1"}
    assert sdk.compute.find_server("sdk").id == server.id
    assert [each.name for each in sdk.compute.servers(status="ACTIVE")] == ["sdk"]

    sdk.compute.stop_server(server)
    assert sdk.compute.wait_for_server(server, status="SHUTOFF", wait=60).vm_state == "stopped"
    with pytest.raises(exceptions.ConflictException, match="vm_state stopped"):
        sdk.compute.stop_server(server)
    sdk.compute.start_server(server)
    sdk.compute.wait_for_server(server, wait=60)
    sdk.compute.reboot_server(server, "HARD")
    sdk.compute.wait_for_server(server, wait=60)
    assert "output" in sdk.compute.get_server_console_output(server)
    assert sdk.compute.set_server_metadata(server, k="v").metadata == {"k": "v"}
    sdk.compute.update_server(server, name="renamed")
    names = [action.action for action in sdk.compute.server_actions(server)]
    assert names[0] == "reboot"
    assert names[-1] == "create"
    sdk.compute.delete_server(server)
    sdk.compute.wait_for_delete(server, wait=60)
    assert cloud.statuses() == ["available", "available"]


def test_the_cloud_layer(sdk: Connection, cloud: Cloud, flavor: Any) -> None:
    server = sdk.create_server("layer", image=cloud.image(), flavor=flavor.id, network="default", wait=True)
    assert server.status == "ACTIVE"
    assert sdk.get_server("layer").id == server.id
    assert sdk.delete_server("layer", wait=True)
    assert sdk.list_servers() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_at(cloud: Cloud, flavor: Any, version: str) -> None:
    fixed = connect(cloud, compute_default_microversion=version)
    networks = {} if version == "2.1" else {"networks": "none"}
    body = {"name": "at", "imageRef": cloud.image(), "flavorRef": flavor.id, **networks}
    answer = fixed.compute.post("/servers", json={"server": body}, microversion=version)
    assert answer.headers["OpenStack-API-Version"] == f"compute {version}"
    server_id = answer.json()["server"]["id"]
    cloud.wait(server_id, "ACTIVE")
    server = fixed.compute.get_server(server_id)
    assert server.status == "ACTIVE"
    assert [each.id for each in fixed.compute.servers()] == [server_id]
    assert [each.name for each in fixed.compute.hypervisors(details=True)] == ["gpu001"]
    assert {each.binary for each in fixed.compute.services()} >= {"nova-compute"}
    fixed.compute.delete_server(server_id)
    cloud.wait_gone(server_id)


def test_refusals_are_the_exceptions_people_catch(sdk: Connection, cloud: Cloud, flavor: Any) -> None:
    with pytest.raises(exceptions.BadRequestException, match="NAME:COUNT"):
        sdk.compute.create_flavor_extra_specs(flavor, {"pci_passthrough:alias": "GPU"})
    with pytest.raises(exceptions.ConflictException, match="already exists"):
        sdk.compute.create_flavor(name="gpu.small", ram=512, vcpus=1, disk=1)
    with pytest.raises(exceptions.NotFoundException):
        sdk.compute.get_server("00000000-0000-0000-0000-000000000000")
    body = {"name": "s", "imageRef": cloud.image(), "flavorRef": flavor.id, "networks": "none", "personality": []}
    answer = sdk.compute.post("/servers", json={"server": body}, microversion="2.37")
    with pytest.raises(exceptions.BadRequestException, match="personality"):
        exceptions.raise_from_response(answer)
    assert sdk.compute.find_server("nothing") is None


def test_hosts_keys_and_limits(sdk: Connection) -> None:
    (found,) = sdk.compute.hypervisors(details=True)
    assert (found.name, found.state, found.status) == ("gpu001", "up", "enabled")
    service = next(each for each in sdk.compute.services(binary="nova-compute"))
    assert sdk.compute.disable_service(service, disabled_reason="fan").status == "disabled"
    assert sdk.compute.enable_service(service).status == "enabled"
    pair = sdk.compute.create_keypair(name="k")
    assert pair.private_key
    assert [each.name for each in sdk.compute.keypairs()] == ["k"]
    sdk.compute.delete_keypair(pair)
    assert sdk.compute.get_limits().absolute.instances == -1
    assert [zone.name for zone in sdk.compute.availability_zones()] == ["nova"]
    assert list(sdk.compute.server_groups()) == list(sdk.compute.aggregates()) == []

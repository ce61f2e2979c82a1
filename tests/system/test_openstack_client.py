"""python-openstackclient as people use it, against the running product."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.clients import OpenStack, openstack_client
from tests.system.cloud import Cloud, fleet, gpu, host, running

VERSIONS = ["2.1", "2.37", "2.47", "2.79", "2.96"]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f someone@here\n"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    hosts = fleet(host("gpu001", [gpu(0x3B), gpu(0x5E)]), host("gpu002", [gpu(0x3B)]))
    with running(tmp_path_factory.mktemp("openstack"), hosts) as started:
        yield started


@pytest.fixture(scope="module")
def openstack(cloud: Cloud) -> Iterator[OpenStack]:
    with openstack_client(cloud) as client:
        yield client


@pytest.fixture(scope="module")
def image(cloud: Cloud) -> str:
    return cloud.image()


@pytest.fixture(scope="module")
def gpu_flavor(openstack: OpenStack) -> str:
    size = ("--ram", "512", "--vcpus", "1", "--disk", "1")
    openstack.ok("flavor", "create", *size, "--property", "pci_passthrough:alias=GPU:1", "gpu.small")
    return "gpu.small"


def test_flavors(openstack: OpenStack) -> None:
    size = ("--ram", "512", "--vcpus", "2", "--disk", "1")
    made = openstack.json("flavor", "create", *size, "--id", "tiny-id", "--description", "small one", "tiny")
    assert (made["id"], made["ram"], made["vcpus"], made["description"]) == ("tiny-id", 512, 2, "small one")
    openstack.ok("flavor", "set", "--property", "pci_passthrough:alias=GPU:1", "--property", "hw:numa_nodes=1", "tiny")
    assert openstack.ok("flavor", "show", "tiny", "-c", "properties", "-f", "value").strip() == (
        "{'hw:numa_nodes': '1', 'pci_passthrough:alias': 'GPU:1'}"
    )
    openstack.ok("flavor", "unset", "--property", "hw:numa_nodes", "tiny")
    assert openstack.json("flavor", "show", "tiny")["properties"] == {"pci_passthrough:alias": "GPU:1"}
    assert "tiny" in [flavor["Name"] for flavor in openstack.json("flavor", "list", "--long")]
    openstack.ok("flavor", "delete", "tiny")
    assert "No flavor found" in openstack.refused("flavor", "show", "tiny").replace("Flavor", "flavor")


@pytest.mark.parametrize("value", ["GPU", "GPU:x", "GPU:0", "GPU:-1"])
def test_f11_a_wrong_alias_is_refused_when_the_flavor_is_set(openstack: OpenStack, gpu_flavor: str, value: str) -> None:
    said = openstack.refused("flavor", "set", "--property", f"pci_passthrough:alias={value}", gpu_flavor)
    assert f"'{value}'" in said
    assert "NAME:COUNT" in said


def test_a_server_from_boot_to_delete(openstack: OpenStack, cloud: Cloud, image: str, gpu_flavor: str) -> None:
    boot = ("server", "create", "--flavor", gpu_flavor, "--image", image, "--nic", "none", "--wait")
    made = openstack.json(*boot, "--tag", "red", "--description", "mine", "--property", "k=v", "life")
    assert made["status"] == "ACTIVE"
    assert made["OS-EXT-SRV-ATTR:instance_name"].startswith("instance-")
    server_id, its_host = made["id"], made["OS-EXT-SRV-ATTR:host"]
    assert [status for status, owner in cloud.devices().values() if owner == server_id] == ["allocated"]

    (listed,) = openstack.json("server", "list", "--long", "--name", "life")
    assert (listed["Status"], listed["Host"], listed["Properties"]) == ("ACTIVE", its_host, {"k": "v"})

    openstack.ok("server", "stop", "life")
    cloud.wait(server_id, "SHUTOFF")
    assert "vm_state stopped" in openstack.refused("server", "stop", "life")
    openstack.ok("server", "start", "life")
    cloud.wait(server_id, "ACTIVE")
    openstack.ok("server", "reboot", "--hard", "--wait", "life")
    openstack.ok("server", "reboot", "--soft", "--wait", "life")
    openstack.ok("console", "log", "show", "life")

    openstack.ok("server", "lock", "--reason", "audit", "life")
    shown = openstack.json("server", "show", "life")
    assert (shown["locked"], shown["locked_reason"]) == (True, "audit")
    openstack.ok("server", "unlock", "life")
    openstack.ok("server", "set", "--name", "renamed", "--property", "a=b", "--tag", "blue", "life")
    openstack.ok("server", "unset", "--property", "k", "--tag", "red", "renamed")
    shown = openstack.json("server", "show", "renamed")
    assert (shown["properties"], shown["tags"]) == ({"a": "b"}, ["blue"])

    events = openstack.json("server", "event", "list", "renamed")
    assert {"create", "stop", "start", "reboot"} <= {event["Action"] for event in events}
    first = next(event for event in events if event["Action"] == "create")
    assert openstack.json("server", "event", "show", "renamed", first["Request ID"])["action"] == "create"

    openstack.ok("server", "delete", "--wait", "renamed")
    assert "renamed" not in openstack.ok("server", "list")
    assert all(owner != server_id for _, owner in cloud.devices().values())


def test_many_at_once_and_a_named_host(openstack: OpenStack, cloud: Cloud, image: str, gpu_flavor: str) -> None:
    boot = ("server", "create", "--flavor", gpu_flavor, "--image", image, "--nic", "none", "--wait")
    openstack.ok(*boot, "--min", "2", "--max", "2", "many")
    listed = {server["Name"]: server["Status"] for server in openstack.json("server", "list")}
    assert (listed["many-1"], listed["many-2"]) == ("ACTIVE", "ACTIVE")
    openstack.ok("server", "delete", "--wait", "many-1", "many-2")
    for words in (("--availability-zone", "nova:gpu002"), ("--host", "gpu002")):
        made = openstack.json(*boot, *words, "here")
        assert made["OS-EXT-SRV-ATTR:host"] == "gpu002"
        openstack.ok("server", "delete", "--wait", "here")


def test_refusals_say_what_to_do(openstack: OpenStack, image: str, gpu_flavor: str) -> None:
    boot = ("server", "create", "--image", image, "--nic", "none")
    size = ("--ram", "512", "--vcpus", "1", "--disk", "1")
    openstack.ok("flavor", "create", *size, "--property", "pci_passthrough:alias=GPUU:1", "typo")
    assert "GPUU" in openstack.refused(*boot, "--flavor", "typo", "s")
    assert "group" in openstack.refused(*boot, "--flavor", gpu_flavor, "--hint", "group=x", "s")
    assert "volume_size" in openstack.refused(*boot, "--flavor", gpu_flavor, "--boot-from-volume", "1", "s")
    assert "nohost" in openstack.refused(*boot, "--flavor", gpu_flavor, "--host", "nohost", "s")
    assert "No Server found" in openstack.refused("server", "show", "nothing")


def test_a_server_that_fits_nowhere_says_why(openstack: OpenStack, image: str) -> None:
    size = ("--ram", "512", "--vcpus", "1", "--disk", "1")
    openstack.ok("flavor", "create", *size, "--property", "pci_passthrough:alias=GPU:3", "three")
    boot = ("server", "create", "--flavor", "three", "--image", image, "--nic", "none", "--wait", "toomany")
    assert openstack.run(*boot).code != 0
    fault = openstack.json("server", "show", "toomany")["fault"]
    assert "No valid host was found" in fault["message"]
    openstack.ok("server", "delete", "--wait", "toomany")


@pytest.mark.parametrize("version", VERSIONS)
def test_boot_list_show_delete_at(
    openstack: OpenStack, cloud: Cloud, image: str, gpu_flavor: str, version: str
) -> None:
    nic = () if version == "2.1" else ("--nic", "none")
    name = f"at-{version}"
    boot = ("server", "create", "--flavor", gpu_flavor, "--image", image, *nic, name)
    server_id = openstack.json(*boot, version=version)["id"]
    cloud.wait(server_id, "ACTIVE")
    assert name in [server["Name"] for server in openstack.json("server", "list", version=version)]
    assert openstack.json("server", "show", name, version=version)["status"] == "ACTIVE"
    hypervisors = openstack.json("hypervisor", "list", version=version)
    assert {each["Hypervisor Hostname"] for each in hypervisors} == {"gpu001", "gpu002"}
    assert openstack.json("compute", "service", "list", version=version)
    openstack.ok("server", "delete", name, version=version)
    cloud.wait_gone(server_id)


def test_hosts_and_services(openstack: OpenStack) -> None:
    listed = {each["Hypervisor Hostname"]: each["State"] for each in openstack.json("hypervisor", "list")}
    assert listed == {"gpu001": "up", "gpu002": "up"}
    shown = openstack.json("hypervisor", "show", "gpu001")
    assert (shown["hypervisor_hostname"], shown["status"]) == ("gpu001", "enabled")

    def status() -> dict[str, Any]:
        services = openstack.json("compute", "service", "list", "--service", "nova-compute", "--long")
        return {each["Host"]: (each["Status"], each["Disabled Reason"]) for each in services}

    openstack.ok("compute", "service", "set", "--disable", "--disable-reason", "fan", "gpu001", "nova-compute")
    assert status()["gpu001"] == ("disabled", "fan")
    openstack.ok("compute", "service", "set", "--enable", "gpu001", "nova-compute")
    assert status() == {"gpu001": ("enabled", None), "gpu002": ("enabled", None)}
    assert openstack.json("availability", "zone", "list", "--compute")
    assert openstack.json("aggregate", "list") == []


def test_key_pairs(openstack: OpenStack, tmp_path: Path) -> None:
    file = tmp_path / "key.pub"
    file.write_text(KEY)
    openstack.ok("keypair", "create", "--public-key", str(file), "mine")
    assert openstack.json("keypair", "show", "mine")["fingerprint"].startswith("0f:a2:0a:d7")
    assert "PRIVATE KEY" in openstack.ok("keypair", "create", "made")
    assert {pair["Name"] for pair in openstack.json("keypair", "list")} == {"mine", "made"}
    openstack.ok("keypair", "delete", "mine", "made")
    assert openstack.json("keypair", "list") == []
    file.write_text("nonsense")
    assert "public_key" in openstack.refused("keypair", "create", "--public-key", str(file), "bad")

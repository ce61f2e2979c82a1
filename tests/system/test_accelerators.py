"""Model 4 in the running product: a device profile, requests of the embedded service, and devices in guests; and what is left of them: nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jetbridge.errors import InvalidConfiguration
from jetbridge.virt.guest import parse_domain
from tests.system.clients import openstack_client
from tests.system.cloud import Cloud, fleet, gpu, host
from tests.system.conftest import deployed
from tests.system.invariants import check_at_rest

T4 = {"vendor_id": "10de", "product_id": "1eb8"}
GRID = "nvidia-55"


def accelerated(name: str, *devices: Mapping[str, Any], lines: list[Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """A host whose T4s belong to the accelerator service."""
    config = {"pci": {"device_spec": []}, "accelerator": {"device_spec": lines or [{**T4, "type": "GPU"}]}}
    return host(name, devices, config=config)


def mediated(bus: int) -> dict[str, Any]:
    """A card that carries mediated devices."""
    return gpu(bus, mdev_types={GRID: {"available": 2, "name": "GRID", "device_api": "vfio-pci"}})


MIXED = [
    {**T4, "address": "0000:03:00.0", "type": "GPU", "traits": "CUSTOM_WHOLE"},
    {**T4, "address": "0000:04:00.0", "type": "GPU", "mdev_type": GRID, "mdev_count": 2},
]
CARD = {"vendor_id": "10de", "product_id": "2235"}
SLICE = {"vendor_id": "10de", "product_id": "2236"}
CUT = {"address": "0000:81:00.0", **CARD, "pf": {"vfs": 2, "max_vfs": 2, "vf_product_id": "2236"}}
BOTH_WAYS = host(
    "h3",
    [CUT],
    config={
        "pci": {"device_spec": [CARD]},
        "accelerator": {"device_spec": [{**SLICE, "type": "GPU", "resource_class": "CUSTOM_SLICE"}]},
    },
)
"""Its card is given away whole by an alias, and its virtual functions by a device profile."""
ALIASES = [{"name": "CARD", **CARD, "device_type": "type-PF"}]
NIC = {"address": "0000:a1:00.0", "vendor_id": "15b3", "product_id": "101d", "driver": "mlx5_core"}
NIC_LINE = {"vendor_id": "15b3", "product_id": "101d", "type": "NIC", "physical_network": "n1"}
HOSTS = fleet(
    accelerated("h1", gpu(1), gpu(2), NIC, lines=[{**T4, "type": "GPU"}, NIC_LINE]),
    accelerated("h2", gpu(3), mediated(4), lines=MIXED),
    BOTH_WAYS,
    pci={"alias": ALIASES},
)
PROFILES: dict[str, list[dict[str, str]]] = {
    "one": [{"resources:PGPU": "1", "trait:CUSTOM_WHOLE": "forbidden"}],
    "two": [{"resources:PGPU": "1", "trait:CUSTOM_WHOLE": "forbidden"}] * 2,
    "slice": [{"resources:CUSTOM_SLICE": "1"}],
    "nic": [{"resources:CUSTOM_NIC": "1"}],
    "mixed": [{"resources:PGPU": "1", "trait:CUSTOM_WHOLE": "required"}, {"resources:VGPU": "1"}],
}


class Accelerators:
    """A cloud, its accelerator API, and everything that may be left of a server."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def api(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.cloud.client.request(method, f"{self.cloud.url}/accelerator/v2{path}", json=body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def prepare(self) -> None:
        for name, groups in PROFILES.items():
            self.api("POST", "/device_profiles", [{"name": name, "groups": groups}])
        self.cloud.until(
            lambda: all(each["rp_uuid"] for each in self.api("GET", "/deployables")["deployables"]),
            "Placement knows the accelerators",
        )

    def boot(self, profile: str, **more: Any) -> str:
        known = {each["name"]: str(each["id"]) for each in self.cloud.client.get("/flavors").json()["flavors"]}
        flavor = known.get(profile) or self.cloud.flavor(profile, {"accel:device_profile": profile})
        return self.cloud.boot(flavor, **more)

    def arqs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api("GET", "/accelerator_requests")["arqs"]
        return found

    def xml(self, server: str, host_name: str) -> Any:
        for domain in self.cloud.domains(host_name).values():
            if domain["uuid"] == server:
                return parse_domain(domain["xml"])
        raise AssertionError(f"no domain of {server}")

    def check_nothing_left(self) -> None:
        def left() -> dict[str, Any]:
            rows = {
                "arqs": self.cloud.sql("SELECT uuid, state FROM accelerator_requests"),
                "known": self.cloud.sql("SELECT instance_uuid, arq_uuid FROM server_arqs"),
                "handles": self.cloud.sql("SELECT address FROM attach_handles WHERE arq_uuid IS NOT NULL"),
            }
            return {name: found for name, found in rows.items() if found}

        self.cloud.until(lambda: not left(), "nothing is left", left)


@pytest.fixture(scope="module")
def accelerators(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accelerators]:
    with deployed(request, tmp_path_factory.mktemp("accelerators"), HOSTS) as cloud:
        made = Accelerators(cloud)
        made.prepare()
        yield made


def gone(accelerators: Accelerators, server: str) -> None:
    accelerators.cloud.delete(server)
    accelerators.cloud.wait_gone(server)
    accelerators.check_nothing_left()


def test_a_profile_becomes_a_device_in_the_guest_and_comes_back(accelerators: Accelerators) -> None:
    server = accelerators.boot("one")
    accelerators.cloud.wait(server, "ACTIVE")
    (arq,) = accelerators.arqs()
    assert (arq["state"], arq["hostname"], arq["instance_uuid"], arq["attach_handle_type"]) == (
        "Bound",
        "h1",
        server,
        "PCI",
    )
    check_at_rest(accelerators.cloud)
    (hostdev,) = accelerators.xml(server, "h1").hostdevs
    assert hostdev.managed
    assert f"{hostdev.source.bus:02x}" == arq["attach_handle_info"]["bus"]
    with openstack_client(accelerators.cloud) as openstack:
        (listed,) = openstack.json("accelerator", "arq", "list", "--long")
        assert (listed["state"], listed["hostname"], listed["instance_uuid"]) == ("Bound", "h1", server)
        assert {device["hostname"] for device in openstack.json("accelerator", "device", "list")} == {"h1", "h2", "h3"}
        assert len(openstack.json("accelerator", "deployable", "list")) == 6
        assert "delete the server" in openstack.refused("accelerator", "arq", "delete", arq["uuid"])
        assert (
            json.loads(openstack.ok("accelerator", "device", "profile", "show", "one", "-f", "json"))["name"] == "one"
        )
    gone(accelerators, server)


def test_two_devices_are_two_and_what_is_taken_is_not_given_again(accelerators: Accelerators) -> None:
    both = accelerators.boot("two")
    accelerators.cloud.wait(both, "ACTIVE")
    assert len(accelerators.xml(both, "h1").hostdevs) == 2
    late = accelerators.boot("one")
    assert "No valid host" in accelerators.cloud.wait(late, "ERROR")["fault"]["message"]
    assert {arq["instance_uuid"] for arq in accelerators.arqs()} == {both}
    accelerators.cloud.delete(late)
    gone(accelerators, both)
    again = accelerators.boot("two")
    accelerators.cloud.wait(again, "ACTIVE")
    gone(accelerators, again)


def test_a_function_and_a_mediated_device_may_be_mixed(accelerators: Accelerators) -> None:
    server = accelerators.boot("mixed")
    accelerators.cloud.wait(server, "ACTIVE")
    guest = accelerators.xml(server, "h2")
    assert [str(hostdev.source) for hostdev in guest.hostdevs] == ["0000:03:00.0"]
    (mdev,) = guest.mdevs
    assert mdev.uuid in {arq["attach_handle_uuid"] for arq in accelerators.arqs()}
    view = accelerators.cloud.client.get(f"{accelerators.cloud.url}/jetbridge/v1/servers/{server}").json()["server"]
    assert {each["held_as"] for each in view["accelerators"]} == {"0000:03:00.0", mdev.uuid}
    assert {each["arq"] for each in view["accelerators"]} == {arq["uuid"] for arq in accelerators.arqs()}
    gone(accelerators, server)


@pytest.mark.parametrize("key", ["resources:VGPU", "resources1:VGPU"])
def test_f17_a_flavors_own_resources_are_never_an_accelerator(accelerators: Accelerators, key: str) -> None:
    """Mediated devices of the accelerator service are of the class VGPU as well, and reach a guest by its requests alone: a server that
    asked for a vGPU was active without one."""
    cloud = accelerators.cloud
    server = cloud.boot(cloud.flavor(key.replace(":", "-"), {key: "1"}))
    shown = cloud.wait(server, "ERROR", "ACTIVE")
    assert shown["status"] == "ERROR"
    assert "Placement has no free VGPU)" in shown["fault"]["message"]
    gone(accelerators, server)


def test_f19_when_one_of_two_cannot_be_bound_the_build_fails_and_nothing_stays(accelerators: Accelerators) -> None:
    cloud = accelerators.cloud
    cloud.change("UPDATE attach_handles SET arq_uuid = 'somebody' WHERE address = '0000:02:00.0'")
    server = accelerators.boot("two")
    fault = cloud.wait(server, "ERROR")["fault"]["message"]
    assert "is BindFailed" in fault
    cloud.change("UPDATE attach_handles SET arq_uuid = NULL WHERE arq_uuid = 'somebody'")
    accelerators.check_nothing_left()
    assert cloud.domains("h1") == {}
    cloud.delete(server)
    cloud.wait_gone(server)
    again = accelerators.boot("two")  # and Placement has forgotten it, too
    cloud.wait(again, "ACTIVE")
    gone(accelerators, again)


def test_a_stopped_server_keeps_its_accelerator(accelerators: Accelerators) -> None:
    server = accelerators.boot("one")
    cloud = accelerators.cloud
    cloud.wait(server, "ACTIVE")
    before = accelerators.arqs()
    cloud.act(server, "os-stop")
    cloud.wait(server, "SHUTOFF")
    cloud.update_resources("h1")
    assert accelerators.arqs() == before
    cloud.act(server, "os-start")
    cloud.wait(server, "ACTIVE")
    cloud.act(server, "reboot", {"type": "HARD"})
    cloud.wait(server, "ACTIVE")
    assert len(accelerators.xml(server, "h1").hostdevs) == 1
    gone(accelerators, server)


@pytest.mark.parametrize("name", ["missing", "", "one,one"])
def test_a_profile_that_is_not_there_is_refused_at_once(accelerators: Accelerators, name: str) -> None:
    cloud = accelerators.cloud
    flavor = cloud.flavor(f"asks for {name!r}", {"accel:device_profile": name})
    body = {"name": "s", "imageRef": cloud.image(), "flavorRef": flavor, "networks": "none"}
    answer = cloud.client.post("/servers", json={"server": body})
    assert answer.status_code == 400
    assert f"'{name}'" in answer.text


def test_what_was_not_deleted_is_by_the_next_pass(accelerators: Accelerators) -> None:
    """As if the accelerator service had not answered when the server was deleted."""
    cloud = accelerators.cloud
    server = accelerators.boot("one")
    cloud.wait(server, "ACTIVE")
    (arq,) = accelerators.arqs()
    cloud.delete(server)
    cloud.wait_gone(server)
    accelerators.check_nothing_left()
    cloud.change(
        "INSERT INTO accelerator_requests (uuid, state, project_id, device_profile_name, device_profile_group_id, profile_group,"
        " hostname, device_rp_uuid, instance_uuid) VALUES (:uuid, 'Bound', 'p', 'one', 0, '{}', 'h1', :rp, :server)",
        uuid=arq["uuid"],
        rp=arq["device_rp_uuid"],
        server=server,
    )
    cloud.change(
        "INSERT INTO server_arqs (instance_uuid, build_id, profile, project_id, requester_id, arq_uuid, hostname, attach_info)"
        " VALUES (:server, 1, 'one', 'p', 'device_profile_0', :uuid, 'h1', '{}')",
        uuid=arq["uuid"],
        server=server,
    )
    cloud.change("UPDATE attach_handles SET arq_uuid = :uuid WHERE address = '0000:01:00.0'", uuid=arq["uuid"])
    cloud.update_resources("h1")
    accelerators.check_nothing_left()


def test_f17_a_host_that_gives_a_function_in_two_ways_does_not_start(tmp_path: Path) -> None:
    both = host("h1", [gpu(1)], config={"accelerator": {"device_spec": [{**T4, "type": "GPU"}]}})
    cloud = Cloud(tmp_path)
    cloud.write_fleet(fleet(both))
    with pytest.raises(
        InvalidConfiguration, match=r"0000:01:00.0 .*\[pci\]device_spec line 1.*\[accelerator\]device_spec line 1"
    ):
        cloud.start()


def test_f17_a_card_and_its_virtual_functions_are_given_once_whatever_the_way(accelerators: Accelerators) -> None:
    cloud = accelerators.cloud
    card = cloud.flavor("card", {"pci_passthrough:alias": "CARD:1"})
    part = accelerators.boot("slice")
    cloud.wait(part, "ACTIVE")
    refused = cloud.boot(card)
    assert "No valid host" in cloud.wait(refused, "ERROR")["fault"]["message"]
    cloud.delete(refused)
    gone(accelerators, part)
    whole = cloud.boot(card)
    cloud.wait(whole, "ACTIVE")
    assert cloud.owned(whole) == ["0000:81:00.0"]
    late = accelerators.boot("slice")
    cloud.wait(late, "ERROR")
    assert accelerators.arqs() == []
    for server in (late, whole):
        cloud.delete(server)
        cloud.wait_gone(server)
    again = accelerators.boot("slice")
    cloud.wait(again, "ACTIVE")
    gone(accelerators, again)

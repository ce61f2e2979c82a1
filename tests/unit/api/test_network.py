"""The embedded Network API by its documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from jetbridge.api import network
from jetbridge.config.settings import Settings
from jetbridge.network.embedded import network_id
from tests.unit.api.doors import Door, open_door

VLAN = {
    "name": "data",
    "provider:network_type": "vlan",
    "provider:physical_network": "n1",
    "provider:segmentation_id": 42,
}


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path, [network.router]) as opened:
        yield opened


def said(answer: Any, status: int = 400) -> str:
    assert answer.status_code == status, answer.text
    return str(answer.json()["NeutronError"]["message"])


def make_port(door: Door, **more: Any) -> dict[str, Any]:
    door.post("/network/v2.0/networks", json={"network": VLAN})
    answer = door.post("/network/v2.0/ports", json={"port": {"network_id": network_id("data"), **more}})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()["port"]
    return made


@pytest.mark.parametrize("collection", network.COLLECTIONS)
def test_what_there_is_none_of_can_not_be_made_and_says_where_it_is(door: Door, collection: str) -> None:
    assert door.get(f"/network/v2.0/{collection}").json() == {collection.replace("-", "_"): []}
    refused = said(door.post(f"/network/v2.0/{collection}", json={collection[:-1]: {"name": "x"}}))
    assert f"there are no {collection} to make" in refused
    assert "[neutron]endpoint_override" in refused


def test_a_network_from_making_to_deleting(door: Door) -> None:
    assert door.get("/network/v2.0/networks").json() == {"networks": []}
    made = door.post("/network/v2.0/networks", json={"network": VLAN})
    assert made.status_code == 201
    shown = made.json()["network"]
    assert {name: shown[name] for name in VLAN} == VLAN
    assert door.get("/network/v2.0/networks?name=data").json()["networks"] == [shown]
    assert door.get("/network/v2.0/networks?name=other").json()["networks"] == []
    changed = door.put(f"/network/v2.0/networks/{shown['id']}", json={"network": {"shared": True, "description": "d"}})
    assert (changed.json()["network"]["shared"], changed.json()["network"]["description"]) == (True, "d")
    assert "already" in said(door.post("/network/v2.0/networks", json={"network": VLAN}), 409)
    assert door.delete(f"/network/v2.0/networks/{shown['id']}").status_code == 204
    assert "could not be found" in said(door.get(f"/network/v2.0/networks/{shown['id']}"), 404)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"provider:segmentation_id": 4095}, ["segmentation_id", "4095", "1 to 4094"]),
        ({"provider:segmentation_id": None}, ["segmentation_id", "VLAN"]),
        ({"provider:physical_network": None}, ["physical_network", "name the physical network"]),
        ({"provider:network_type": "flat"}, ["segmentation_id", "leave it out"]),
        ({"provider:network_type": "vxlan"}, ["physical_network", "leave it out"]),
        ({"provider:network_type": "token-ring"}, ["network_type", "token-ring"]),
        ({"name": ""}, ["name"]),
        ({"admin_state_up": False}, ["admin_state_up"]),
        ({"vlan_transparent": True}, ["vlan_transparent"]),
    ],
)
def test_networks_that_can_not_be_are_refused_with_the_field(
    door: Door, changes: dict[str, Any], words: list[str]
) -> None:
    text = said(door.post("/network/v2.0/networks", json={"network": {**VLAN, **changes}}))
    assert [word for word in words if word not in text] == []


def test_a_port_from_making_to_deleting(door: Door) -> None:
    wanted = {
        "name": "p",
        "binding:vnic_type": "direct",
        "binding:profile": {"trusted": "true"},
        "numa_affinity_policy": "required",
        "mac_address": "FA:16:3E:00:00:09",
        "fixed_ips": [{"ip_address": "10.0.0.9"}],
        "port_security_enabled": False,
        "security_groups": [],
    }
    made = make_port(door, **wanted)
    assert {name: made[name] for name in wanted} == {**wanted, "mac_address": "fa:16:3e:00:00:09"}
    assert (made["status"], made["device_id"], made["binding:vif_type"]) == ("DOWN", "", "unbound")
    path = f"/network/v2.0/ports/{made['id']}"
    assert door.get("/network/v2.0/ports?binding:vnic_type=direct").json()["ports"] == [made]
    changes = {"name": "q", "binding:vnic_type": "macvtap", "binding:profile": {}, "numa_affinity_policy": None}
    changed = door.put(path, json={"port": changes}).json()["port"]
    assert {name: changed[name] for name in changes} == changes
    assert door.delete(path).status_code == 204
    assert "could not be found" in said(door.get(path), 404)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"binding:vnic_type": "baremetal"}, ["binding:vnic_type", "baremetal", "direct-physical"]),
        ({"binding:profile": {"pci_slot": "0000:a1:00.2"}}, ["pci_slot", "leave it out"]),
        ({"binding:profile": {"x": "y" * 5000}}, ["4095"]),
        ({"mac_address": "01:00:5e:00:00:01"}, ["first octet"]),
        ({"mac_address": "nonsense"}, ["six pairs"]),
        ({"fixed_ips": [{"subnet_id": "x"}]}, ["subnet_id"]),
        ({"fixed_ips": [{"ip_address": "10.0.0.300"}]}, ["10.0.0.300"]),
        ({"fixed_ips": [{"ip_address": "fe80::1%eth0"}]}, ["fixed_ips.0.ip_address", "leave out the %"]),
        ({"numa_affinity_policy": "near"}, ["numa_affinity_policy", "near"]),
        ({"security_groups": ["default"]}, ["security_groups"]),
        ({"device_id": "x"}, ["device_id"]),
        ({"qos_policy_id": "x"}, ["qos_policy_id"]),
    ],
)
def test_ports_that_can_not_be_are_refused_with_the_field(
    door: Door, changes: dict[str, Any], words: list[str]
) -> None:
    make_port(door)
    body = {"port": {"network_id": network_id("data"), **changes}}
    text = said(door.post("/network/v2.0/ports", json=body))
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", '"\\ud800"', '{"\\ud800": 1}', '[{"a": [NaN]}]'])
def test_a_profile_that_no_answer_could_hold_is_refused_and_breaks_no_list(door: Door, value: str) -> None:
    make_port(door)
    text = f'{{"port": {{"network_id": "{network_id("data")}", "binding:profile": {{"a": {value}}}}}}}'
    answer = door.post("/network/v2.0/ports", content=text, headers={"Content-Type": "application/json"})
    assert "binding:profile" in said(answer)
    assert len(door.get("/network/v2.0/ports").json()["ports"]) == 1


def test_a_zone_that_no_answer_could_hold_is_refused_and_breaks_no_list(door: Door) -> None:
    text = f'{{"port": {{"network_id": "{network_id("data")}", "fixed_ips": [{{"ip_address": "fe80::1%\\ud800"}}]}}}}'
    answer = door.post("/network/v2.0/ports", content=text, headers={"Content-Type": "application/json"})
    assert "fixed_ips.0.ip_address" in said(answer)
    assert door.get("/network/v2.0/ports").json() == {"ports": []}


def test_what_is_for_administrators(tmp_path: Path) -> None:
    users = tmp_path / "users"
    password = bcrypt.hashpw(b"s", bcrypt.gensalt(4)).decode()
    users.write_text(f"root:{password}:ops:admin\nann:{password}:p2:member\n")
    settings = Settings(auth_strategy="http_basic", http_basic_auth_user_file=users)
    with open_door(tmp_path, [network.router], settings=settings) as door:
        ann, root = ("ann", "s"), ("root", "s")
        assert "create_network" in said(door.post("/network/v2.0/networks", json={"network": VLAN}, auth=ann), 403)
        shared = {**VLAN, "shared": True}
        made = door.post("/network/v2.0/networks", json={"network": shared}, auth=root).json()["network"]
        seen = door.get(f"/network/v2.0/networks/{made['id']}", auth=ann).json()["network"]
        assert not [name for name in seen if name.startswith("provider:")]
        profile = {"network_id": made["id"], "binding:profile": {"trusted": "true"}}
        assert "binding:profile" in said(door.post("/network/v2.0/ports", json={"port": profile}, auth=ann), 403)
        foreign = {"network_id": made["id"], "project_id": "other"}
        assert "tenant_id" in said(door.post("/network/v2.0/ports", json={"port": foreign}, auth=ann), 403)
        port = door.post("/network/v2.0/ports", json={"port": {"network_id": made["id"]}}, auth=ann).json()["port"]
        assert "binding:host_id" not in port
        assert door.get("/network/v2.0/ports", auth=ann).json()["ports"] == [port]
        hidden = door.post("/network/v2.0/ports", json={"port": {"network_id": made["id"]}}, auth=root).json()["port"]
        said(door.get(f"/network/v2.0/ports/{hidden['id']}", auth=ann), 404)

"""What the agents write into Placement, read back through osc-placement: the rows of docs/models.md, PCI devices in Placement."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.clients import openstack_client
from tests.system.cloud import T4, Cloud, fleet, gpu, host, running
from tests.system.placement import Providers

MANAGED = {"COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"}
T4_CLASS = "CUSTOM_PCI_10DE_1EB8"
VF = {"vendor_id": "8086", "product_id": "1520"}
VF_CLASS = "CUSTOM_PCI_8086_1520"
PF = {"vendor_id": "8086", "product_id": "1521"}
NIC = {**PF, "address": "0000:3b:00.0", "driver": "igb"}


def nic(vfs: int) -> dict[str, Any]:
    """A card with so many VFs, 0000:3b:00.1 and so on."""
    return {**NIC, "pf": {"vfs": vfs, "max_vfs": 8, "vf_product_id": "1520"}}


@dataclass
class Bench:
    """A host that changes, in a cloud that goes on running."""

    cloud: Cloud
    providers: Providers
    hosts: dict[str, dict[str, Any]]

    def host(
        self,
        name: str,
        devices: Sequence[Mapping[str, Any]],
        specs: Sequence[Mapping[str, Any]],
        *,
        report: bool = True,
        **options: Any,
    ) -> None:
        """The host is so from now on: its agent starts anew where its options changed. ``options``: more of ``[pci]``."""
        pci = {"device_spec": [dict(spec) for spec in specs], "report_in_placement": report, **options}
        self.hosts[name] = host(name, devices, config={"pci": pci})
        self.cloud.reload(cloud_of(self.hosts))
        self.settle(name)

    def refused(self, name: str, specs: Sequence[Mapping[str, Any]], *, report: bool = True) -> str:
        """What a start with these options says."""
        before = self.hosts[name]
        pci = {"device_spec": [dict(spec) for spec in specs], "report_in_placement": report}
        self.cloud.write_fleet(cloud_of({**self.hosts, name: {**before, "config": {"pci": pci}}}))
        answer = self.cloud.client.post(f"{self.cloud.url}/jetbridge/v1/fleet/reload")
        assert answer.status_code == 400, answer.text
        self.cloud.reload(cloud_of(self.hosts))
        self.settle(name)
        message: str = json.dumps(answer.json())
        return message

    def settle(self, name: str) -> None:
        """One pass of the agent has come to its end."""
        self.cloud.update_resources(name)

    def boot(self, name: str, alias: str, count: int = 1, status: str = "ACTIVE") -> str:
        flavors = self.cloud.client.get("/flavors").json()["flavors"]
        wanted = f"{alias}{count}"
        known = [flavor["id"] for flavor in flavors if flavor["name"] == wanted]
        flavor = known[0] if known else self.cloud.flavor(wanted, {"pci_passthrough:alias": f"{alias}:{count}"})
        server = self.cloud.boot(flavor, availability_zone=f"nova:{name}")
        self.cloud.wait(server, status)
        return server

    def delete(self, server: str) -> None:
        self.cloud.delete(server)
        self.cloud.wait_gone(server)

    def totals(self, name: str) -> dict[str, dict[str, int]]:
        """Of the host's children: totals by class."""
        tree = self.providers.tree(name)
        return {
            child: {resource: total for resource, (total, _) in self.providers.inventory(uuid).items()}
            for child, uuid in tree.items()
            if child != name
        }

    def devices(self, server: str, name: str) -> dict[str, dict[str, int]]:
        """The server's allocation of the host's children, by name."""
        names = {uuid: child for child, uuid in self.providers.tree(name).items()}
        allocation = self.providers.allocation(server)
        assert set(allocation) <= set(names)
        return {names[uuid]: resources for uuid, resources in allocation.items() if names[uuid] != name}


def cloud_of(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    aliases = [
        {"name": "GPU", **T4, "device_type": "type-PCI"},
        {"name": "VF", **VF, "device_type": "type-VF"},
        {"name": "PF", **PF, "device_type": "type-PF"},
    ]
    return fleet(*hosts.values(), pci={"alias": aliases})


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    hosts = {"plain": host("plain", [gpu(0x17)], numa={"cells": 1, "cpus_per_cell": 4, "memory_mb_per_cell": 4096})}
    for gone in ("vcpus", "memory_mb"):
        hosts["plain"].pop(gone)
    with running(tmp_path_factory.mktemp("report"), cloud_of(hosts)) as cloud, openstack_client(cloud) as openstack:
        cloud.update_resources("plain")
        yield Bench(cloud, Providers(openstack), hosts)


def test_every_host_is_a_provider_whatever_the_model(bench: Bench) -> None:
    """Case 82, first half: no children where devices aren't reported."""
    tree = bench.providers.tree("plain")
    assert set(tree) == {"plain"}
    inventory = bench.providers.inventory(tree["plain"])
    assert inventory == {"VCPU": (4, 0), "PCPU": (4, 0), "MEMORY_MB": (4096, 512), "DISK_GB": (1000, 0)}
    assert bench.providers.traits(tree["plain"]) >= {"COMPUTE_NODE", "OWNER_NOVA"}
    assert "[pci]report_in_placement is off on host plain" in bench.cloud.log()


def test_case_72_73_75_providers_classes_and_traits(bench: Bench) -> None:
    specs = [
        {**T4, "address": "0000:17:00.0"},
        {**T4, "address": "0000:18:00.0", "resource_class": "gpu", "traits": "HW_GPU_API_VULKAN,red"},
        {**T4, "address": "0000:19:00.0", "physical_network": "physnet0"},
        VF,
    ]
    bench.host("names", [gpu(0x17), gpu(0x18), gpu(0x19), nic(2)], specs)
    assert bench.totals("names") == {
        "names_0000:17:00.0": {T4_CLASS: 1},
        "names_0000:18:00.0": {"CUSTOM_GPU": 1},
        "names_0000:3B:00.0": {VF_CLASS: 2},
    }
    tree = bench.providers.tree("names")
    assert bench.providers.traits(tree["names_0000:17:00.0"]) == MANAGED
    assert bench.providers.traits(tree["names_0000:18:00.0"]) == MANAGED | {"HW_GPU_API_VULKAN", "CUSTOM_RED"}
    rows = dict(
        bench.cloud.sql(
            "SELECT d.address, d.rp_uuid FROM pci_devices d JOIN compute_nodes n ON n.id = d.compute_node_id"
            " WHERE n.host = 'names' AND d.deleted = 0"
        )
    )
    assert rows == {
        "0000:17:00.0": tree["names_0000:17:00.0"],
        "0000:18:00.0": tree["names_0000:18:00.0"],
        "0000:19:00.0": None,
        "0000:3b:00.1": tree["names_0000:3B:00.0"],
        "0000:3b:00.2": tree["names_0000:3B:00.0"],
    }
    assert len(bench.providers.candidates(f"{T4_CLASS}=1")) >= 1
    log = bench.cloud.log()
    assert "update_provider_tree: host names: device 0000:17:00.0 [10de:1eb8] is inventory of provider" in log
    assert "update_provider_tree: host names: device 0000:19:00.0 [10de:1eb8] is not reported" in log


def test_case_89_what_operators_set_stays(bench: Bench) -> None:
    bench.host("ops", [gpu(0x17), nic(3)], [{**T4, "traits": "red"}, VF])
    providers, tree = bench.providers, bench.providers.tree("ops")
    card, port = tree["ops_0000:17:00.0"], tree["ops_0000:3B:00.0"]
    aggregate = "11111111-2222-3333-4444-555555555555"
    generation = httpx.get(f"{placement_url(bench)}/resource_providers/{card}", headers=ADMIN).json()["generation"]
    providers.ok(
        "resource", "provider", "aggregate", "set", "--aggregate", aggregate, "--generation", str(generation), card
    )
    providers.set_traits(card, "CUSTOM_MINE", "HW_GPU_API_VULKAN")
    providers.set_reserved(card, T4_CLASS, 1)
    providers.set_reserved(port, VF_CLASS, 1)
    providers.set_traits(tree["ops"], "CUSTOM_RACK_7")
    bench.settle("ops")
    assert providers.traits(card) == MANAGED | {"CUSTOM_RED", "CUSTOM_MINE", "HW_GPU_API_VULKAN"}
    bench.host("ops", [gpu(0x17), nic(2)], [{**T4, "traits": "blue"}, VF])
    assert providers.traits(card) == MANAGED | {"CUSTOM_BLUE", "CUSTOM_MINE", "HW_GPU_API_VULKAN"}
    assert providers.inventory(card) == {T4_CLASS: (1, 1)}
    assert providers.inventory(port) == {VF_CLASS: (2, 1)}
    assert "CUSTOM_RACK_7" in providers.traits(tree["ops"])
    assert aggregate in providers.ok("resource", "provider", "aggregate", "list", card)


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        ([PF, VF], ["0000:3b:00.1", "0000:3b:00.0", "exclude each other"]),
        ([{**VF, "address": "0000:3b:00.2", "resource_class": "b"}, VF], ["CUSTOM_B", VF_CLASS, "0000:3b:00.2"]),
        ([{**VF, "address": "0000:3b:00.2", "traits": "b"}, VF], ["CUSTOM_B", "0000:3b:00.2"]),
        ([{**VF, "one_time_use": True}], ["one_time_use", "type-PF"]),
        ([{"devname": "eth0"}], ["devname", "address"]),
    ],
)
def test_case_74_76_contradictions_stop_the_agent(bench: Bench, specs: list[dict[str, Any]], says: list[str]) -> None:
    if "wrong" not in bench.hosts:
        bench.host("wrong", [nic(2)], [VF])
    said = bench.refused("wrong", specs)
    assert "Host wrong: " in said
    for word in says:
        assert word in said
    assert bench.totals("wrong") == {"wrong_0000:3B:00.0": {VF_CLASS: 2}}


def test_case_77_78_devices_that_go(bench: Bench) -> None:
    bench.host("shrink", [gpu(0x17), gpu(0x18), nic(3)], [T4, VF])
    assert bench.totals("shrink")["shrink_0000:3B:00.0"] == {VF_CLASS: 3}
    bench.host("shrink", [gpu(0x18), nic(2)], [T4, VF])
    assert bench.totals("shrink") == {"shrink_0000:18:00.0": {T4_CLASS: 1}, "shrink_0000:3B:00.0": {VF_CLASS: 2}}
    bench.host("shrink", [gpu(0x18), nic(0)], [T4, VF])
    assert bench.totals("shrink") == {"shrink_0000:18:00.0": {T4_CLASS: 1}}


def test_case_79_vfs_replaced_by_their_pf_and_back(bench: Bench) -> None:
    vfs, pf = [{**VF, "traits": "part"}], [{**PF, "traits": "whole"}]
    bench.host("swap", [nic(4)], vfs)
    card = bench.providers.tree("swap")["swap_0000:3B:00.0"]
    assert bench.providers.inventory(card) == {VF_CLASS: (4, 0)}
    for specs, inventory, trait in (
        (pf, {"CUSTOM_PCI_8086_1521": (1, 0)}, "CUSTOM_WHOLE"),
        (vfs, {VF_CLASS: (4, 0)}, "CUSTOM_PART"),
    ):
        bench.host("swap", [nic(4)], specs)
        assert bench.providers.tree("swap")["swap_0000:3B:00.0"] == card
        assert bench.providers.inventory(card) == inventory
        assert bench.providers.traits(card) == MANAGED | {trait}


def test_case_80_81_a_pf_in_use(bench: Bench) -> None:
    bench.host("held", [nic(2), gpu(0x17)], [PF, T4])
    server = bench.boot("held", "PF")
    bench.settle("held")
    usage = {"held_0000:3B:00.0": {"CUSTOM_PCI_8086_1521": 1}}
    assert bench.devices(server, "held") == usage
    said = bench.refused("held", [VF, T4])
    assert server in said
    assert "0000:3b:00.0" in said
    # It vanishes from the host: provider and allocation are as they were.
    bench.host("held", [gpu(0x17)], [PF, T4])
    assert bench.totals("held")["held_0000:3B:00.0"] == {"CUSTOM_PCI_8086_1521": 1}
    assert bench.devices(server, "held") == usage
    assert "the host doesn't report it any more: put it back" in bench.cloud.log()
    bench.delete(server)
    bench.settle("held")
    assert bench.totals("held") == {"held_0000:17:00.0": {T4_CLASS: 1}}


def test_case_82_reporting_can_not_be_switched_off(bench: Bench) -> None:
    bench.host("off", [gpu(0x17)], [T4])
    said = bench.refused("off", [T4], report=False)
    assert "can't be switched off again" in said
    assert "off_0000:17:00.0" in said


def test_case_83_servers_that_were_there_before(bench: Bench) -> None:
    cards = [gpu(0x17), gpu(0x18), nic(4)]
    bench.host("late", cards, [T4, VF], report=False)
    one, two = bench.boot("late", "GPU"), bench.boot("late", "VF", 2)
    bench.host("late", cards, [T4, VF])
    assert list(bench.devices(one, "late").values()) == [{T4_CLASS: 1}]
    assert bench.devices(two, "late") == {"late_0000:3B:00.0": {VF_CLASS: 2}}
    # One of its two is taken away by hand: it comes back.
    port = bench.providers.tree("late")["late_0000:3B:00.0"]
    held = httpx.get(f"{placement_url(bench)}/allocations/{two}", headers=ADMIN).json()
    held["allocations"][port]["resources"][VF_CLASS] = 1
    for each in held["allocations"].values():
        each.pop("generation", None)
    assert httpx.put(f"{placement_url(bench)}/allocations/{two}", headers=ADMIN, json=held).status_code == 204
    bench.host("late", cards, [T4, {**VF, "traits": "new"}])
    assert bench.devices(two, "late") == {"late_0000:3B:00.0": {VF_CLASS: 2}}
    for server in (one, two):
        bench.delete(server)


@pytest.mark.parametrize(("alias", "specs"), [("VF", [T4]), ("PF", [T4])])
def test_f1_the_line_of_a_device_in_use_is_removed(bench: Bench, alias: str, specs: list[dict[str, Any]]) -> None:
    """The last VF of a PF, and a PF: held until it is freed, never handed out again, and then gone."""
    name, lines = f"f1-{alias.lower()}", [T4, VF if alias == "VF" else PF]
    bench.host(name, [nic(1), gpu(0x17)], lines)
    server = bench.boot(name, alias)
    bench.settle(name)
    before = bench.devices(server, name)
    bench.host(name, [nic(1), gpu(0x17)], specs)
    assert bench.devices(server, name) == before
    assert len(bench.totals(name)) == 2
    assert f"used by server {server}, and no [pci]device_spec line matches it" in bench.cloud.log()
    bench.delete(server)
    bench.settle(name)
    assert bench.totals(name) == {f"{name}_0000:17:00.0": {T4_CLASS: 1}}
    assert bench.cloud.statuses(name) == ["available"]


def test_f1_d18_the_line_of_one_vf_of_three_is_removed(bench: Bench) -> None:
    bench.host("f1-mid", [nic(3)], [VF])
    server = bench.boot("f1-mid", "VF")
    (address,) = bench.cloud.owned(server)
    others = [{**VF, "address": f"0000:3b:00.{n}"} for n in (1, 2, 3) if address != f"0000:3b:00.{n}"]
    bench.host("f1-mid", [nic(3)], others)
    card = bench.providers.tree("f1-mid")["f1-mid_0000:3B:00.0"]
    # The one that is held counts: two are free, and both can be had.
    assert bench.providers.inventory(card) == {VF_CLASS: (3, 0)}
    assert bench.providers.usage(card) == {VF_CLASS: 1}
    other = bench.boot("f1-mid", "VF", 2)
    bench.delete(server)
    bench.settle("f1-mid")
    assert bench.providers.inventory(card) == {VF_CLASS: (2, 0)}
    assert bench.devices(other, "f1-mid") == {"f1-mid_0000:3B:00.0": {VF_CLASS: 2}}
    bench.delete(other)


def test_all_lines_removed_while_one_of_three_vfs_is_in_use(bench: Bench) -> None:
    bench.host("empty", [nic(3)], [{**VF, "traits": "red"}])
    server = bench.boot("empty", "VF")
    bench.settle("empty")
    bench.host("empty", [nic(3)], [])
    card = bench.providers.tree("empty")["empty_0000:3B:00.0"]
    assert bench.providers.inventory(card) == {VF_CLASS: (1, 0)}
    assert bench.providers.traits(card) == MANAGED | {"CUSTOM_RED"}
    assert bench.cloud.statuses("empty") == ["allocated"]
    bench.delete(server)
    bench.settle("empty")
    assert bench.totals("empty") == {}


def test_case_86_one_time_use(bench: Bench) -> None:
    bench.host("once", [gpu(0x17)], [{**T4, "one_time_use": True}])
    card = bench.providers.tree("once")["once_0000:17:00.0"]
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 0)}
    assert bench.providers.traits(card) == MANAGED | {"HW_PCI_ONE_TIME_USE"}
    server = bench.boot("once", "GPU")
    bench.settle("once")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
    assert bench.providers.usage(card) == {T4_CLASS: 1}
    bench.delete(server)
    bench.settle("once")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
    refused = bench.boot("once", "GPU", status="ERROR")
    assert "No valid host was found" in bench.cloud.show(refused)["fault"]["message"]
    # An operator's own tool lowers what is reserved.
    bench.providers.set_reserved(card, T4_CLASS, 0)
    bench.settle("once")
    again = bench.boot("once", "GPU")
    bench.delete(again)
    # Or the device is said to be clean here.
    path = f"{bench.cloud.url}/jetbridge/v1/hosts/once/devices/0000:17:00.0/clean"
    assert bench.cloud.client.post(path).json() == {"state": "done"}
    bench.settle("once")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 0)}
    bench.delete(bench.boot("once", "GPU"))


def test_a_cleaner_brings_one_time_devices_back(bench: Bench, tmp_path: Path) -> None:
    fails, log = tmp_path / "fails", tmp_path / "log"
    script = tmp_path / "wipe"
    script.write_text(f"#!/bin/sh\necho wiped $1 >>{log}\necho cannot wipe\ntest ! -e {fails}\n")
    script.chmod(0o755)
    bench.host("wiped", [gpu(0x17)], [{**T4, "one_time_use": True}], cleaner=str(script))
    card = bench.providers.tree("wiped")["wiped_0000:17:00.0"]
    fails.touch()
    bench.delete(bench.boot("wiped", "GPU"))

    def device() -> dict[str, Any]:
        found = bench.cloud.client.get(f"{bench.cloud.url}/jetbridge/v1/devices", params={"host": "wiped"}).json()
        (only,) = found["devices"]
        return dict(only)

    bench.cloud.until(lambda: (device()["cleaning"] or {}).get("state") == "failed", "the cleaner has failed", device)
    assert device()["condition"] == "cleaning"
    assert (device()["cleaning"]["exit_code"], device()["cleaning"]["output"]) == (1, "cannot wipe")
    bench.settle("wiped")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
    fails.unlink()
    path = f"{bench.cloud.url}/jetbridge/v1/hosts/wiped/devices/0000:17:00.0/clean"
    assert bench.cloud.client.post(path).json() == {"state": "running"}
    bench.cloud.until(lambda: device()["condition"] == "ok", "it is back", device)
    assert log.read_text() == "wiped 0000:17:00.0\n" * 2
    bench.settle("wiped")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 0)}
    bench.delete(bench.boot("wiped", "GPU"))


def test_allocations_that_nobody_has_a_right_to_are_taken_back(bench: Bench) -> None:
    """And servers without one get theirs; until then the audit tells both."""
    bench.host("drift", [gpu(0x17), gpu(0x18)], [T4])
    server = bench.boot("drift", "GPU")
    gone = bench.boot("drift", "GPU")
    bench.settle("drift")
    stale = httpx.get(f"{placement_url(bench)}/allocations/{gone}", headers=ADMIN).json()
    before = bench.devices(server, "drift")
    bench.delete(gone)
    bench.settle("drift")
    body = {**stale, "consumer_generation": None}
    for each in body["allocations"].values():
        each.pop("generation", None)
    assert httpx.put(f"{placement_url(bench)}/allocations/{gone}", headers=ADMIN, json=body).status_code == 204
    bench.providers.ok("resource", "provider", "allocation", "delete", server)
    found = audit(bench, "drift")
    assert {f["subject"] for f in found} >= {gone, server}
    bench.settle("drift")
    bench.host("drift", [gpu(0x17), gpu(0x18)], [{**T4, "traits": "again"}])
    assert bench.devices(server, "drift") == before
    assert bench.providers.allocation(gone) == {}
    assert audit(bench, "drift") == []
    bench.delete(server)


def test_a_provider_of_somebody_else_is_left_alone(bench: Bench) -> None:
    bench.providers.ok("resource", "provider", "create", "taken")
    bench.hosts["taken"] = host("taken", [gpu(0x17)])
    bench.cloud.reload(cloud_of(bench.hosts))
    answer = bench.cloud.client.get(f"{bench.cloud.url}/jetbridge/v1/hosts").json()["hosts"]
    (mine,) = [each for each in answer if each["host"] == "taken"]
    assert not mine["reported"]
    told = bench.cloud.until(lambda: "did not create" in bench.cloud.log(), "the agent says so")
    assert told
    assert bench.providers.inventory(bench.providers.named("taken")) == {}


def test_a_host_that_leaves_the_fleet_leaves_placement(bench: Bench) -> None:
    bench.host("leaver", [gpu(0x17)], [T4])
    assert len(bench.providers.tree("leaver")) == 2
    leaver = bench.hosts.pop("leaver")
    bench.cloud.reload(cloud_of(bench.hosts))
    bench.cloud.until(lambda: "leaver" not in bench.providers.ok("resource", "provider", "list"), "it is gone")
    # A host of the same name may come later.
    bench.hosts["leaver"] = leaver
    bench.host("leaver", [gpu(0x17)], [T4])
    assert len(bench.providers.tree("leaver")) == 2


def test_a_restart_with_nothing_changed_asks_once_for_each_host(tmp_path: Path) -> None:
    pci = {"device_spec": [T4], "report_in_placement": True}
    hosts = {name: host(name, [gpu(0x17), gpu(0x18)], config={"pci": pci}) for name in ("h1", "h2", "h3")}
    with running(tmp_path, cloud_of(hosts)) as cloud:
        for name in hosts:
            cloud.update_resources(name)
        cloud.stop()
        cloud.events.clear()
        cloud.start()
        assert cloud.service is not None
        assert cloud.service.agents is not None
        assert cloud.service.agents.settle_reports(60)
        asked = [event for event in cloud.events if event.target == "placement" and event.source.startswith("compute:")]
        assert sorted(event.source for event in asked) == ["compute:h1", "compute:h2", "compute:h3"]
        assert {event.what.split("?")[0] for event in asked} == {"GET /resource_providers"}


def audit(bench: Bench, name: str) -> list[dict[str, Any]]:
    answer: dict[str, Any] = bench.cloud.client.get(
        f"{bench.cloud.url}/jetbridge/v1/audit", params={"host": name}
    ).json()
    assert answer["unseen"] == {}
    findings: list[dict[str, Any]] = answer["findings"]
    return findings


ADMIN = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.36"}


def placement_url(bench: Bench) -> str:
    assert bench.cloud.service is not None
    assert bench.cloud.service.embedded is not None
    return bench.cloud.service.embedded.url

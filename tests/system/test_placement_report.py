"""What the agents write into Placement, read back through osc-placement: the rows of docs/models.md, PCI devices in Placement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jetbridge.errors import PlacementPciException
from tests.system.cloud import T4, gpu, host, running
from tests.system.placement_bench import (
    ADMIN,
    MANAGED,
    PF,
    T4_CLASS,
    VF,
    VF_CLASS,
    Bench,
    audit,
    cloud_of,
    nic,
    open_bench,
    placement_url,
    stored_allocation,
    write_allocation,
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("report")) as bench:
        yield bench


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


def test_case_74_a_contradiction_that_comes_while_the_agent_runs_is_told_and_changes_nothing(bench: Bench) -> None:
    """SR-IOV is switched on on a card whose line matches the functions as well."""
    lines = [{"vendor_id": "8086"}, T4]
    bench.host("grown", [nic(0), gpu(0x17)], lines)
    before = {"grown_0000:17:00.0": {T4_CLASS: 1}, "grown_0000:3B:00.0": {"CUSTOM_PCI_8086_1521": 1}}
    assert bench.totals("grown") == before
    bench.hosts["grown"]["devices"] = [nic(2), gpu(0x17)]
    bench.cloud.reload(bench.content())
    with pytest.raises(PlacementPciException, match="exclude each other"):
        bench.settle("grown")
    assert bench.totals("grown") == before
    told = "The report of host grown to Placement failed: Failed to report PCI devices to Placement: [pci]device_spec offers 0000:3b:00.1"
    assert bench.cloud.service is not None
    agents = bench.cloud.service.agents
    assert agents is not None
    agents["grown"].periodic()
    assert agents.settle_reports(60)
    assert told in bench.cloud.log()
    server = bench.boot("grown", "GPU")
    bench.host("grown", [nic(0), gpu(0x17)], lines)
    assert bench.totals("grown") == before
    assert bench.devices(server, "grown") == {"grown_0000:17:00.0": {T4_CLASS: 1}}
    bench.delete(server)


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


def test_case_80_vfs_in_use_are_not_replaced_by_their_pf(bench: Bench) -> None:
    bench.host("kept", [nic(2)], [VF])
    server = bench.boot("kept", "VF")
    bench.settle("kept")
    said = bench.refused("kept", [PF])
    assert server in said
    assert bench.totals("kept") == {"kept_0000:3B:00.0": {VF_CLASS: 2}}
    assert bench.devices(server, "kept") == {"kept_0000:3B:00.0": {VF_CLASS: 1}}
    bench.delete(server)


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
    held = stored_allocation(bench, two)
    held["allocations"][port]["resources"][VF_CLASS] = 1
    write_allocation(bench, two, held)
    bench.host("late", cards, [T4, {**VF, "traits": "new"}])
    assert bench.devices(two, "late") == {"late_0000:3B:00.0": {VF_CLASS: 2}}
    for server in (one, two):
        bench.delete(server)


@pytest.mark.parametrize("reserved", [1, 3], ids=["beside-the-server", "more-than-is-left"])
def test_case_89_what_an_operator_reserved_outlives_healing(bench: Bench, reserved: int) -> None:
    name = f"heal-{reserved}"
    bench.host(name, [nic(4)], [VF])
    server = bench.boot(name, "VF", 2)
    port = bench.providers.tree(name)[f"{name}_0000:3B:00.0"]
    bench.providers.set_reserved(port, VF_CLASS, reserved)
    assert bench.devices(server, name) == {}
    bench.settle(name)
    assert bench.devices(server, name) == {f"{name}_0000:3B:00.0": {VF_CLASS: 2}}
    assert bench.providers.inventory(port) == {VF_CLASS: (4, reserved)}
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


def test_allocations_that_nobody_has_a_right_to_are_taken_back(bench: Bench) -> None:
    """And servers without one get theirs; until then the audit tells both."""
    bench.host("drift", [gpu(0x17), gpu(0x18)], [T4])
    server = bench.boot("drift", "GPU")
    gone = bench.boot("drift", "GPU")
    bench.settle("drift")
    stale = stored_allocation(bench, gone)
    before = bench.devices(server, "drift")
    bench.delete(gone)
    bench.settle("drift")
    write_allocation(bench, gone, {**stale, "consumer_generation": None})
    bench.providers.ok("resource", "provider", "allocation", "delete", server)
    found = audit(bench, "drift")
    assert {f["subject"] for f in found} >= {gone, server}
    bench.settle("drift")
    bench.host("drift", [gpu(0x17), gpu(0x18)], [{**T4, "traits": "again"}])
    assert bench.devices(server, "drift") == before
    assert bench.providers.allocation(gone) == {}
    assert audit(bench, "drift") == []
    bench.delete(server)


def test_an_allocation_that_somebody_changed_is_told(bench: Bench) -> None:
    """It is left as it is; once it is deleted the server gets its own again."""
    bench.host("changed", [gpu(0x17)], [T4])
    server = bench.boot("changed", "GPU")
    bench.settle("changed")
    assert audit(bench, "changed") == []
    stored, root = stored_allocation(bench, server), bench.providers.tree("changed")["changed"]
    right = dict(stored["allocations"][root]["resources"])
    stored["allocations"][root]["resources"] = {"VCPU": 7}
    write_allocation(bench, server, stored)
    (found,) = audit(bench, "changed")
    assert (found["ledger"], found["subject"]) == ("allocations", server)
    wanted = ", ".join(f"{name}:{amount}" for name, amount in sorted(right.items()))
    assert found["text"] == f"takes {wanted} of the host and has VCPU:7 of it allocated"
    bench.providers.ok("resource", "provider", "allocation", "delete", server)
    bench.settle("changed")
    assert audit(bench, "changed") == []
    bench.delete(server)


def test_what_nobody_has_a_right_to_is_taken_back_of_a_device_alone(bench: Bench) -> None:
    """The host's own provider doesn't tell of it."""
    bench.host("stray", [gpu(0x17), gpu(0x18)], [T4])
    gone, stays = bench.boot("stray", "GPU"), bench.boot("stray", "GPU")
    bench.settle("stray")
    stale, root = stored_allocation(bench, gone), bench.providers.tree("stray")["stray"]
    bench.delete(gone)
    bench.settle("stray")
    del stale["allocations"][root]
    write_allocation(bench, gone, {**stale, "consumer_generation": None})
    assert len(bench.providers.allocation(gone)) == 1
    assert [finding["text"] for finding in audit(bench, "stray")] == [
        f"server {gone} owns 0 of its devices and has 1 of it allocated"
    ]
    bench.settle("stray")
    assert bench.providers.allocation(gone) == {}
    assert list(bench.devices(stays, "stray").values()) == [{T4_CLASS: 1}]
    assert audit(bench, "stray") == []
    bench.delete(stays)


def test_a_provider_of_somebody_else_is_left_alone(bench: Bench) -> None:
    bench.providers.ok("resource", "provider", "create", "taken")
    bench.hosts["taken"] = host("taken", [gpu(0x17)])
    bench.cloud.reload(bench.content())
    answer = bench.cloud.client.get(f"{bench.cloud.url}/jetbridge/v1/hosts").json()["hosts"]
    (mine,) = [each for each in answer if each["host"] == "taken"]
    assert not mine["reported"]
    told = bench.cloud.until(lambda: "did not create" in bench.cloud.log(), "the agent says so")
    assert told
    assert bench.providers.inventory(bench.providers.named("taken")) == {}


def test_what_a_pass_that_failed_half_way_wrote_is_ours(bench: Bench) -> None:
    """Traits of one device, and then a provider of somebody else's in the way of the next: the traits go with their line nevertheless."""
    bench.providers.ok("resource", "provider", "create", "half_0000:18:00.0")
    lines = [{**T4, "address": "0000:17:00.0", "traits": "red"}, T4]
    pci = {"device_spec": lines, "report_in_placement": True}
    bench.hosts["half"] = host("half", [gpu(0x17), gpu(0x18)], config={"pci": pci})
    bench.cloud.reload(bench.content())
    first = "half_0000:17:00.0"
    bench.cloud.until(lambda: first in bench.providers.ok("resource", "provider", "list"), "the first is there")
    card = bench.providers.tree("half")["half_0000:17:00.0"]
    bench.cloud.until(lambda: bench.providers.traits(card) == MANAGED | {"CUSTOM_RED"}, "and its traits are")
    bench.providers.ok("resource", "provider", "delete", bench.providers.named("half_0000:18:00.0"))
    bench.host("half", [gpu(0x17), gpu(0x18)], [{**lines[0], "traits": "blue"}, T4])
    assert bench.providers.traits(card) == MANAGED | {"CUSTOM_BLUE"}


def test_a_host_that_leaves_the_fleet_leaves_placement(bench: Bench) -> None:
    bench.host("leaver", [gpu(0x17)], [T4])
    assert len(bench.providers.tree("leaver")) == 2
    leaver = bench.hosts.pop("leaver")
    bench.cloud.reload(bench.content())
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

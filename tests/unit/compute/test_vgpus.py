"""vGPUs on a simulated host: reserved, made, used again, made again, taken down; never what somebody else made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from jetbridge.compute import tracker, vgpus
from jetbridge.compute.host import AgentHost
from jetbridge.compute.inventory import take_inventory
from jetbridge.compute.reconcile import reconcile
from jetbridge.compute.vgpu_cards import VgpuProviders
from jetbridge.config.settings import Settings
from jetbridge.db import compute_nodes, servers, vgpu_cards
from jetbridge.db import vgpus as rows
from jetbridge.errors import (
    ComputeResourcesUnavailable,
    HypervisorError,
    InvalidConfiguration,
    InvalidLibvirtMdevConfig,
    JetbridgeError,
    ProbeFailed,
)
from jetbridge.mdev.choice import Wanted
from jetbridge.mdev.config import TypeOptions
from jetbridge.mdev.values import State, Vgpu
from jetbridge.model.server import Server, VmState
from jetbridge.virt.nodedev import parse_node_device
from jetbridge.virt.simulated import SimulatedConnection
from tests.unit.compute.conftest import CONTEXT, Bench, MakeBench
from tests.unit.virt.fleets import LAB, domain

CARD = "pci_0000_3b_00_0"
WHOLE: dict[str, Any] = {
    "address": "0000:3b:00.0",
    "vendor_id": "10de",
    "product_id": "1db6",
    "driver": "nvidia",
    "mdev_types": {"nvidia-222": {"available": "4"}, "nvidia-223": {"available": "2"}},
}
SLICED: dict[str, Any] = {
    "address": "0000:65:00.0",
    "vendor_id": "10de",
    "product_id": "2235",
    "driver": "nvidia",
    "pf": {"vfs": "16"},
    "mdev_types": {"nvidia-712": {"available": "1", "max_instance": "4"}},
}
VENDOR: dict[str, Any] = {
    **{name: value for name, value in SLICED.items() if name != "mdev_types"},
    "pf": {"vfs": "4"},
    "vgpu_types": {"558": {"name": "NVIDIA L40S-4Q", "max_instance": "2"}},
}
FOREIGN = "c0ffee00-0000-4000-8000-000000000001"


def settings(*types: str, **sections: TypeOptions) -> Settings:
    return Settings(
        enabled_mdev_types=types, mdev_types={name.replace("_", "-"): one for name, one in sections.items()}
    )


def simulated(bench: Bench) -> SimulatedConnection:
    connection = bench.host.connection
    assert isinstance(connection, SimulatedConnection)
    return connection


def claim(bench: Bench, *wanted: Wanted, server: Server | None = None) -> tuple[Server, tuple[Vgpu, ...]]:
    server = server or bench.server()
    reserve = vgpus.reserving(bench.host, CONTEXT, server.uuid, bench.node_id, wanted)
    claimed = tracker.claim(bench.host, CONTEXT, server.uuid, bench.selection(), reserve)
    return server, claimed.vgpus


def boot(bench: Bench, *wanted: Wanted) -> tuple[Server, tuple[Vgpu, ...]]:
    """As far as the vGPUs are concerned: there is no domain."""
    server, _ = claim(bench, *wanted)
    mine = vgpus.make(bench.host, CONTEXT, server.uuid)
    now = bench.host.now()
    bench.host.database.write(
        lambda conn: servers.update(
            conn, server.uuid, vm_state=VmState.ACTIVE, task_state=None, launched_at=now, now=now
        )
    )
    return server, mine


def delete(bench: Bench, server: Server) -> None:
    vgpus.let_go(bench.host, CONTEXT, server.uuid, bench.node_id)
    tracker.leave(bench.host, CONTEXT, server.uuid, bench.node_id)


def ours(bench: Bench) -> tuple[Vgpu, ...]:
    with bench.host.database.read() as conn:
        return rows.of_node(conn, bench.node_id)


def totals(bench: Bench) -> dict[str, dict[str, int]]:
    with bench.host.database.read() as conn:
        return {card.name: dict(card.totals) for card in vgpu_cards.of_node(conn, bench.node_id) if card.totals}


def existing(bench: Bench) -> dict[str, str]:
    """Parents of the mediated devices that are there, by UUID."""
    nodes = map(parse_node_device, simulated(bench).node_devices())
    return {node.mdev.uuid: node.parent or "" for node in nodes if node.mdev and node.path}


def carried(bench: Bench, number: int) -> str:
    return (bench.host.files.read_text(f"/sys/bus/pci/devices/0000:65:00.{number}/nvidia/current_vgpu_type") or "")[:-1]


def make_foreign(bench: Bench, parent: str = CARD, kind: str = "nvidia-222", uuid: str = FOREIGN) -> None:
    simulated(bench).create_mdev(
        f"<device><parent>{parent}</parent><capability type='mdev'><type id='{kind}'/><uuid>{uuid}</uuid></capability></device>"
    )


def with_settings(bench: Bench, changed: Settings) -> Bench:
    """The same host after its agent was started with other options."""
    again = replace(
        bench,
        host=replace(
            bench.host,
            settings=replace(
                bench.host.settings,
                enabled_mdev_types=changed.enabled_mdev_types,
                mdev_types=changed.mdev_types,
            ),
        ),
    )
    take_inventory(again.host, starting=True)
    reconcile(again.host, starting=True)
    return again


ONE = Wanted(CARD, "VGPU", 1)


def test_104_a_card_carries_as_many_after_a_guest_as_before(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    assert totals(host) == {CARD: {"VGPU": 4}}
    _, [mine] = boot(host, ONE)
    take_inventory(host.host)
    assert totals(host) == {CARD: {"VGPU": 4}}
    assert existing(host) == {mine.uuid: CARD}


def test_105_a_free_mdev_is_used_again(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    server, [first] = boot(host, ONE)
    delete(host, server)
    [kept] = ours(host)
    assert (kept.uuid, kept.server, kept.state) == (first.uuid, None, State.READY)
    _, [second] = boot(host, ONE)
    assert second.uuid == first.uuid
    assert list(existing(host)) == [first.uuid]


def test_it_is_written_down_before_it_is_made(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    server, [reserved] = claim(host, ONE)
    assert ours(host) == (reserved,)
    assert (reserved.server, reserved.state) == (server.uuid, State.RESERVED)
    assert existing(host) == {}


def test_d25_servers_that_are_built_at_once_get_their_own(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    first, [old] = boot(host, ONE)
    delete(host, first)
    waiting = [host.server() for _ in range(6)]

    def build(server: Server) -> str | None:
        try:
            claim(host, ONE, server=server)
            [mine] = vgpus.make(host.host, CONTEXT, server.uuid)
        except ComputeResourcesUnavailable:
            return None
        return mine.uuid

    with ThreadPoolExecutor(6) as pool:
        got = [uuid for uuid in pool.map(build, waiting) if uuid is not None]
    assert len(got) == len(set(got)) == 4
    assert old.uuid in got
    assert set(existing(host)) == set(got)


def test_f9_a_card_with_16_vfs_boots_what_its_type_fits_and_tells_the_next_why(bench: MakeBench) -> None:
    host = bench(devices=[SLICED], settings=settings("nvidia-712"))
    card = Wanted("pci_0000_65_00_0", "VGPU", 1)
    assert totals(host) == {"pci_0000_65_00_0": {"VGPU": 4}}
    for _ in range(4):
        boot(host, card)
        take_inventory(host.host)
        assert totals(host) == {"pci_0000_65_00_0": {"VGPU": 4}}
    assert len(set(existing(host).values())) == 4
    with pytest.raises(ComputeResourcesUnavailable, match=r"pci_0000_65_00_0 has 0 of 4 vGPUs of type nvidia-712"):
        claim(host, card)


def test_f21_what_somebody_else_made_is_left_alone(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    make_foreign(host)
    take_inventory(host.host)
    assert totals(host) == {CARD: {"VGPU": 3}}
    for _ in range(3):
        server, [mine] = boot(host, ONE)
        assert mine.uuid != FOREIGN
        delete(host, server)
    reconcile(host.host, starting=True)
    assert FOREIGN in existing(host)
    with host.host.database.read() as conn:
        [card] = vgpu_cards.of_node(conn, host.node_id)
    assert [instance.uuid for instance in card.foreign] == [FOREIGN]


def test_f21_a_type_that_is_taken_out_and_put_back_comes_back(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    make_foreign(host)
    server, [held] = boot(host, ONE)
    other, [idle] = boot(host, ONE)
    delete(host, other)
    without = with_settings(host, settings("nvidia-223"))
    assert totals(without) == {CARD: {"VGPU": 1}}
    assert set(existing(without)) == {held.uuid, FOREIGN}
    assert idle.uuid not in existing(without)
    with pytest.raises(ComputeResourcesUnavailable):
        claim(without, ONE)
    again = with_settings(without, settings("nvidia-222"))
    assert totals(again) == {CARD: {"VGPU": 3}}
    boot(again, ONE)
    assert FOREIGN in existing(again)
    delete(again, server)
    _, [reused] = boot(again, ONE)
    assert reused.uuid == held.uuid


def test_f22_a_vf_gets_its_type_and_loses_it(bench: MakeBench) -> None:
    host = bench(devices=[VENDOR], settings=settings("nvidia-558"))
    card = Wanted("pci_0000_65_00_0", "VGPU", 1)
    assert totals(host) == {"pci_0000_65_00_0": {"VGPU": 4}}  # no description says that two fit
    server, [mine] = boot(host, card)
    assert (mine.parent, carried(host, 1)) == ("pci_0000_65_00_1", "558")
    assert [vgpu.address for vgpu in vgpus.guest_vgpus(host.host, server.uuid)] == ["0000:65:00.1"]
    boot(host, card)
    take_inventory(host.host)
    assert totals(host) == {"pci_0000_65_00_0": {"VGPU": 2}}
    with pytest.raises(ComputeResourcesUnavailable, match="has 0 of 2"):
        claim(host, card)
    delete(host, server)
    assert carried(host, 1) == "0"
    assert [vgpu.parent for vgpu in ours(host)] == ["pci_0000_65_00_2"]
    boot(host, card)


def test_f22_max_instances_says_what_no_description_does(bench: MakeBench) -> None:
    host = bench(devices=[VENDOR], settings=settings("nvidia-558", nvidia_558=TypeOptions(max_instances=2)))
    assert totals(host) == {"pci_0000_65_00_0": {"VGPU": 2}}


def test_f22_a_type_that_somebody_else_set_is_left_alone(bench: MakeBench) -> None:
    host = bench(devices=[VENDOR], settings=settings("nvidia-558"))
    host.host.files.write_text("/sys/bus/pci/devices/0000:65:00.1/nvidia/current_vgpu_type", "558")
    take_inventory(host.host)
    server, [mine] = boot(host, Wanted("pci_0000_65_00_0", "VGPU", 1))
    assert mine.parent == "pci_0000_65_00_2"
    delete(host, server)
    reconcile(host.host, starting=True)
    assert (carried(host, 1), carried(host, 2)) == ("558", "0")


def test_f22_a_vf_that_was_taken_meanwhile_is_not_overwritten(bench: MakeBench) -> None:
    host = bench(devices=[{**VENDOR, "vgpu_types": {"558": "A", "559": "B"}}], settings=settings("nvidia-558"))
    server, _ = claim(host, Wanted("pci_0000_65_00_0", "VGPU", 1))
    host.host.files.write_text("/sys/bus/pci/devices/0000:65:00.1/nvidia/current_vgpu_type", "559")
    with pytest.raises(HypervisorError, match="it carries nvidia-559, which somebody else gave it"):
        vgpus.make(host.host, CONTEXT, server.uuid)
    vgpus.unmake(host.host, CONTEXT, server.uuid)
    assert carried(host, 1) == "559"


def test_several_of_one_card_and_a_virtual_parent(bench: MakeBench) -> None:
    host = bench(nodedevs=str(LAB), settings=settings("labvgpu-1", "mtty-2", mtty_2=TypeOptions(("mtty_mtty",))))
    # The documents have an mdev of each parent already, which aren't ours.
    assert totals(host) == {"pci_0000_42_00_0": {"VGPU": 23}, "mtty_mtty": {"VGPU": 11}}
    server, mine = boot(host, Wanted("pci_0000_42_00_0", "VGPU", 2), Wanted("mtty_mtty", "VGPU", 1))
    assert [vgpu.parent for vgpu in mine] == ["pci_0000_42_00_0", "pci_0000_42_00_0", "mtty_mtty"]
    assert [vgpu.uuid for vgpu in vgpus.guest_vgpus(host.host, server.uuid)] == [vgpu.uuid for vgpu in mine]


def test_a_claim_that_fails_leaves_nothing_reserved(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    server = host.server()
    with pytest.raises(ComputeResourcesUnavailable, match="5 wanted"):
        claim(host, ONE, Wanted(CARD, "VGPU", 5), server=server)
    assert ours(host) == ()
    assert host.get(server).compute_node_id is None


def test_a_failed_probe_ends_the_claim(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    host.change({"devices": [WHOLE], "simulate": {"discovery": "half"}})
    with pytest.raises(ProbeFailed):
        claim(host, ONE)
    take_inventory(host.host)
    assert totals(host) == {CARD: {"VGPU": 4}}


def test_after_a_restart_of_the_host_everything_comes_back(bench: MakeBench) -> None:
    host = bench(
        devices=[WHOLE, VENDOR],
        settings=settings("nvidia-222", "nvidia-558", nvidia_558=TypeOptions(("0000:65:00.0",))),
    )
    server, [mdev, vendor] = boot(host, ONE, Wanted("pci_0000_65_00_0", "VGPU", 1))
    simulated(host).reboot_host()
    assert (list(existing(host)), carried(host, 1)) == ([mdev.uuid], "0")
    vgpus.make(host.host, CONTEXT, server.uuid)
    assert carried(host, 1) == "558"
    assert vendor.address == "0000:65:00.1"


@pytest.mark.parametrize("lost", ["stopped", "gone"])
def test_a_servers_mdev_that_got_lost_is_made_again(bench: MakeBench, lost: str) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    _, [mine] = boot(host, ONE)
    name = f"mdev_{mine.uuid.replace('-', '_')}_0000_3b_00_0"
    (simulated(host).stop_mdev if lost == "stopped" else simulated(host).destroy_mdev)(name)
    assert existing(host) == {}
    reconcile(host.host)
    assert existing(host) == {mine.uuid: CARD}


def test_what_a_killed_process_made_is_found_by_its_record(bench: MakeBench) -> None:
    """Killed between making and writing that it was made; then the build is undone."""
    host = bench(
        devices=[WHOLE, VENDOR],
        settings=settings("nvidia-222", "nvidia-558", nvidia_558=TypeOptions(("0000:65:00.0",))),
    )
    server, [mdev, vendor] = claim(host, ONE, Wanted("pci_0000_65_00_0", "VGPU", 1))
    make_foreign(host, uuid=mdev.uuid)  # under our UUID: it was us
    host.host.files.write_text("/sys/bus/pci/devices/0000:65:00.1/nvidia/current_vgpu_type", "558")
    tracker.release(host.host, None, server.uuid, host.node_id)
    assert {vgpu.state for vgpu in ours(host)} == {State.RESERVED}
    reconcile(host.host, starting=True)
    [kept] = ours(host)
    assert (kept.uuid, kept.state, kept.server) == (mdev.uuid, State.READY, None)
    assert list(existing(host)) == [mdev.uuid]
    assert carried(host, 1) == "0"
    assert vendor.uuid not in {vgpu.uuid for vgpu in ours(host)}


def test_what_a_killed_process_had_not_made_is_forgotten(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    server, _ = claim(host, ONE)
    tracker.release(host.host, None, server.uuid, host.node_id)
    reconcile(host.host, starting=True)
    assert ours(host) == ()
    assert existing(host) == {}


def test_vgpus_of_a_server_that_is_gone_can_be_used_again(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    server, [mine] = boot(host, ONE)
    host.host.database.write(lambda conn: servers.soft_delete(conn, server.uuid, now=host.host.now()))
    reconcile(host.host)
    [kept] = ours(host)
    assert (kept.uuid, kept.server) == (mine.uuid, None)


def test_a_vgpu_in_a_running_guest_is_not_freed(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    server, [mine] = boot(host, ONE)
    hostdev = f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{mine.uuid}'/></source></hostdev>"
    simulated(host).define_domain(domain(extra=hostdev))
    simulated(host).start_domain("instance-00000001")
    host.host.database.write(lambda conn: servers.soft_delete(conn, server.uuid, now=host.host.now()))
    with caplog.at_level(logging.ERROR):
        reconcile(host.host)
    assert "run in domain instance-00000001: they are not freed" in caplog.text
    assert [vgpu.server for vgpu in ours(host)] == [server.uuid]


def test_a_uuid_that_is_there_twice_is_told(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    seen = vgpus.look(host.host)
    [mine] = claim(host, ONE)[1]
    make_foreign(host, uuid=mine.uuid)
    twice = vgpus.look(host.host).instances * 2
    with pytest.raises(InvalidLibvirtMdevConfig, match="several times"):
        vgpus.instance_of(host.host, replace(seen, instances=twice), mine)


def test_options_that_the_host_contradicts_stop_a_start_and_not_a_pass(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = settings("mtty-2", mtty_2=TypeOptions(("mtty_mtty",)))
    with pytest.raises(InvalidLibvirtMdevConfig, match="incorrect address 'mtty_mtty'"):
        bench(devices=[WHOLE], settings=wanted)
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    changed: AgentHost = replace(
        host.host, settings=replace(host.host.settings, enabled_mdev_types=("mtty-2",), mdev_types=wanted.mdev_types)
    )
    take_inventory(changed)
    assert "The vGPUs of host h1 stay as they are" in caplog.text
    assert totals(host) == {CARD: {"VGPU": 4}}


def test_a_type_that_no_card_has_is_told_at_start(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    bench(devices=[WHOLE], settings=settings("nvidia-22"))
    assert (
        "no card that may carry type nvidia-22 of [devices]enabled_mdev_types has it: its cards have nvidia-222, nvidia-223"
        in caplog.text
    )


def test_one_device_has_one_owner(bench: MakeBench) -> None:
    both = settings("nvidia-222", nvidia_222=TypeOptions(("0000:3b:00.0",)))
    with pytest.raises(
        InvalidConfiguration, match=r"0000:3b:00.0 of host h1 would be given to guests twice.*\[mdev_nvidia-222\]"
    ):
        bench(devices=[WHOLE], device_spec=[{"address": "0000:3b:00.0"}], settings=both)
    host = bench(devices=[WHOLE], device_spec=[{"address": "0000:3b:00.0"}], settings=settings("nvidia-222"))
    assert totals(host) == {}


def test_providers_are_the_cards(bench: MakeBench) -> None:
    host = bench(
        devices=[WHOLE, SLICED],
        settings=settings(
            "nvidia-222", "nvidia-712", nvidia_712=TypeOptions(("0000:65:00.0",), mdev_class="CUSTOM_A40")
        ),
    )
    server, _ = boot(host, Wanted(CARD, "VGPU", 2))
    with host.host.database.read() as conn:
        node = compute_nodes.of_host(conn, "h1")
    told = VgpuProviders().contribute(host.host, node, {})
    assert {child.name: {name: one.total for name, one in child.inventories.items()} for child in told.children} == {
        "h1_pci_0000_3b_00_0": {"VGPU": 4},
        "h1_pci_0000_65_00_0": {"CUSTOM_A40": 4},
    }
    assert {trait for child in told.children for trait in child.traits} == {"OWNER_NOVA"}
    [inventory] = told.children[0].inventories.values()
    assert (inventory.max_unit, inventory.min_unit, inventory.step_size) == (4, 1, 1)
    assert (inventory.reserved, inventory.allocation_ratio) == (0, 1.0)
    assert told.heal == ((server.uuid, "h1_pci_0000_3b_00_0", "VGPU", 2),)


def test_a_hundred_servers_leak_nothing(bench: MakeBench) -> None:
    host = bench(
        devices=[WHOLE, VENDOR],
        settings=settings("nvidia-222", "nvidia-558", nvidia_558=TypeOptions(("0000:65:00.0",))),
    )
    make_foreign(host)
    made: Sequence[str] = ()
    for _ in range(100):
        server, mine = boot(host, ONE, Wanted("pci_0000_65_00_0", "VGPU", 1))
        made = [vgpu.uuid for vgpu in mine if vgpu.parent == CARD]
        delete(host, server)
    assert set(existing(host)) == {FOREIGN, *made}
    assert [carried(host, number) for number in range(1, 5)] == ["0"] * 4
    assert [vgpu.uuid for vgpu in ours(host)] == list(made)


def test_a_failed_call_is_an_error_of_ours(bench: MakeBench) -> None:
    host = bench(
        devices=[WHOLE],
        settings=settings("nvidia-222"),
        simulate={"fail": {"create_mdev": {"times": "1", "error": "no"}}},
    )
    server, _ = claim(host, ONE)
    with pytest.raises(JetbridgeError, match="create_mdev failed on h1: no"):
        vgpus.make(host.host, CONTEXT, server.uuid)
    assert len(vgpus.make(host.host, CONTEXT, server.uuid)) == 1

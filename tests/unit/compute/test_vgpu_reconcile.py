"""Records, hosts and guests agree again after restarts, crashes and other options."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from jetbridge.compute import tracker, vgpus
from jetbridge.compute.inventory import take_inventory
from jetbridge.compute.reconcile import reconcile
from jetbridge.compute.vgpu_reconcile import reconcile_vgpus
from jetbridge.db import builds, servers, vgpu_cards
from jetbridge.errors import ComputeResourcesUnavailable, InvalidLibvirtMdevConfig
from jetbridge.mdev.choice import Wanted
from jetbridge.mdev.config import TypeOptions
from jetbridge.mdev.values import State, Vgpu
from jetbridge.model.server import Server
from jetbridge.virt.connection import DomainInfo, HypervisorEvent
from tests.unit.compute.conftest import CONTEXT, Bench, MakeBench
from tests.unit.compute.vgpu_hosts import (
    CARD,
    FOREIGN,
    ONE,
    VENDOR,
    WHOLE,
    boot,
    carried,
    claim,
    delete,
    existing,
    make_foreign,
    ours,
    settings,
    simulated,
    totals,
    with_settings,
)
from tests.unit.virt.fleets import domain


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


def test_an_mdev_that_is_made_and_let_go_under_a_pass_is_not_left_behind(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    listed = simulated(host).domains

    waiting = [claim(host, ONE)[0]]

    def domains() -> list[DomainInfo]:
        if waiting:  # the pass has looked at what exists, and not yet at what is written down
            vgpus.make(host.host, CONTEXT, waiting[0].uuid)
            delete(host, waiting.pop())
        return listed()

    monkeypatch.setattr(simulated(host), "domains", domains)
    reconcile_vgpus(host.host, host.node_id)
    assert not waiting
    assert set(existing(host)) == {vgpu.uuid for vgpu in ours(host)}


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
    take_by_hand(host, mine)
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


def start_build(bench: Bench, server: Server) -> None:
    host = bench.host
    host.database.write(
        lambda conn: builds.start(conn, server.uuid, host.owner, kind="build", host="h1", step="claim", now=host.now())
    )


def test_a_free_one_that_is_stopped_is_started_and_one_that_fails_holds_up_no_other(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    host = bench(
        devices=[WHOLE],
        settings=settings("nvidia-222"),
        simulate={"fail": {"start_mdev": {"times": "1", "error": "not now"}}},
    )
    for server, _ in [boot(host, ONE), boot(host, ONE)]:
        delete(host, server)
    for uuid in existing(host):
        simulated(host).stop_mdev(f"mdev_{uuid.replace('-', '_')}_0000_3b_00_0")
    with caplog.at_level(logging.ERROR):
        reconcile_vgpus(host.host, host.node_id)
    assert "not now; tried again in the next pass" in caplog.text
    assert len(existing(host)) == 1
    reconcile_vgpus(host.host, host.node_id)
    assert len(existing(host)) == 2


def taken_by_hand(bench: MakeBench) -> tuple[Bench, Vgpu]:
    """A host, and its free vGPU that the guest of somebody else runs with."""
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    server, [mine] = boot(host, ONE)
    delete(host, server)
    take_by_hand(host, mine)
    return host, mine


def take_by_hand(host: Bench, mine: Vgpu) -> None:
    hostdev = f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{mine.uuid}'/></source></hostdev>"
    simulated(host).define_domain(domain(extra=hostdev))
    simulated(host).start_domain("instance-00000001")


def test_one_that_nobody_has_is_left_alone_while_a_guest_runs_with_it(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    host, mine = taken_by_hand(bench)
    with caplog.at_level(logging.ERROR):
        without = with_settings(host, settings("nvidia-223"))
    assert "is nobody's, but domain instance-00000001 runs with it: it is left alone" in caplog.text
    assert [vgpu.state for vgpu in ours(without)] == [State.HELD]
    assert list(existing(without)) == [mine.uuid]
    simulated(host).destroy_domain("instance-00000001")
    reconcile_vgpus(without.host, host.node_id)
    assert (ours(without), existing(without)) == ((), {})


def test_f21_one_that_a_guest_of_somebody_elses_runs_with_is_given_to_nobody(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    host, mine = taken_by_hand(bench)
    for _ in range(2):
        reconcile_vgpus(host.host, host.node_id)
    assert caplog.text.count("is nobody's, but domain instance-00000001 runs with it") == 1
    take_inventory(host.host)
    assert totals(host) == {CARD: {"VGPU": 3}}
    _, others = boot(host, Wanted(CARD, "VGPU", 3))
    assert mine.uuid not in {vgpu.uuid for vgpu in others}
    with pytest.raises(ComputeResourcesUnavailable, match="has 0 of 3"):
        claim(host, ONE)
    simulated(host).destroy_domain("instance-00000001")
    reconcile_vgpus(host.host, host.node_id)
    take_inventory(host.host)
    assert totals(host) == {CARD: {"VGPU": 4}}
    assert [vgpu.uuid for vgpu in boot(host, ONE)[1]] == [mine.uuid]


def test_what_a_build_is_working_on_is_left_to_it(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    server, _ = claim(host, ONE)
    start_build(host, server)
    reconcile_vgpus(host.host, host.node_id)
    assert existing(host) == {}
    host.host.database.write(lambda conn: servers.soft_delete(conn, server.uuid, now=host.host.now()))
    reconcile_vgpus(host.host, host.node_id)
    assert [vgpu.server for vgpu in ours(host)] == [server.uuid]


def test_one_that_a_server_gets_while_it_is_looked_at_is_not_given_up(bench: MakeBench) -> None:
    """The pass has read that nobody has it and that it was never made; while it starts another one, a claim takes it."""
    host = bench(devices=[WHOLE, {**WHOLE, "address": "0000:5e:00.0"}], settings=settings("nvidia-222"))
    wanted = Wanted("pci_0000_5e_00_0", "VGPU", 1)
    killed, [reserved] = claim(host, wanted)
    tracker.release(host.host, None, killed.uuid, host.node_id)
    first, [stopped] = boot(host, ONE)
    delete(host, first)
    simulated(host).stop_mdev(f"mdev_{stopped.uuid.replace('-', '_')}_0000_3b_00_0")
    claimed: list[Server] = []

    def faster(event: HypervisorEvent) -> None:
        if event.kind == "device-added" and not claimed:
            claimed.append(claim(host, wanted)[0])

    simulated(host).subscribe(faster)
    reconcile_vgpus(host.host, host.node_id)
    [server] = claimed
    assert [(vgpu.uuid, vgpu.server) for vgpu in ours(host) if vgpu.card != CARD] == [(reserved.uuid, server.uuid)]
    assert [vgpu.uuid for vgpu in vgpus.make(host.host, CONTEXT, server.uuid)] == [reserved.uuid]
    assert existing(host)[reserved.uuid] == "pci_0000_5e_00_0"

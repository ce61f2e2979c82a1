"""vGPUs of servers on a simulated host: reserved, made, used again, taken down; never what somebody else made."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from jetbridge.compute import vgpus
from jetbridge.compute.inventory import take_inventory
from jetbridge.compute.reconcile import reconcile
from jetbridge.errors import ComputeResourcesUnavailable, HypervisorError, JetbridgeError, ProbeFailed
from jetbridge.mdev.choice import Wanted
from jetbridge.mdev.config import TypeOptions
from jetbridge.mdev.values import State
from jetbridge.model.server import Server
from tests.unit.compute.conftest import CONTEXT, MakeBench
from tests.unit.compute.vgpu_hosts import (
    CARD,
    FOREIGN,
    ONE,
    SLICED,
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
    totals,
)
from tests.unit.virt.fleets import LAB


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


def test_f22_a_vf_that_has_its_type_keeps_it_when_its_server_is_started_again(bench: MakeBench) -> None:
    host = bench(devices=[VENDOR], settings=settings("nvidia-558"))
    server, mine = boot(host, Wanted("pci_0000_65_00_0", "VGPU", 1))
    assert [vgpu.uuid for vgpu in vgpus.make(host.host, CONTEXT, server.uuid)] == [vgpu.uuid for vgpu in mine]
    assert carried(host, 1) == "558"


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

"""Inventory: what the host says goes into its rows; a probe that fails changes nothing but that it failed."""

from __future__ import annotations

import json
import logging

import pytest

from jetbridge.compute import tracker
from jetbridge.compute.inventory import check_live_migratable, take_inventory
from jetbridge.config.settings import Settings
from jetbridge.db import compute_nodes, networks
from jetbridge.errors import InvalidConfiguration, PciConfigInvalidSpec
from jetbridge.pci.device import Condition
from jetbridge.virt.connection import HypervisorVersion
from tests.unit.compute.conftest import CONTEXT, T4, Bench, MakeBench, reopened, request
from tests.unit.pci.build import specs

GPUS = [{"address": f"0000:{bus:02x}:00.0", **T4} for bus in range(1, 5)]
NUMA = {"cells": 2, "cpus_per_cell": 4, "memory_mb_per_cell": 4096, "sockets": 2}


def node(bench: Bench) -> compute_nodes.ComputeNode:
    with bench.host.database.read() as conn:
        return compute_nodes.get(conn, bench.node_id)


def test_the_row_says_what_the_host_has_and_under_which_options(bench: MakeBench) -> None:
    settings = Settings(cpu_allocation_ratio=2.0, reserved_host_memory_mb=256, reserved_host_disk_mb=1025)
    host = bench(devices=GPUS, disk_gb=77, vcpus=None, memory_mb=None, numa=NUMA, settings=settings)
    row = node(host)
    assert (row.vcpus, row.memory_mb, row.local_gb) == (8, 8192, 77)
    assert (row.cpu_allocation_ratio, row.reserved_memory_mb, row.reserved_disk_gb) == (2.0, 256, 2)
    assert row.numa is not None
    assert [cell.id for cell in row.numa.cells] == [0, 1]
    assert row.probe_error is None


def test_a_pass_that_finds_nothing_new_moves_no_generation(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    before = node(host)
    take_inventory(host.host)
    take_inventory(host.host, starting=True)
    assert node(host) == before


def test_devices_come_change_and_go_with_the_hardware_f2(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    host.change({"devices": [{"address": "0000:09:00.0", **T4}]})
    take_inventory(host.host)
    assert list(host.devices()) == ["0000:09:00.0"]


@pytest.mark.parametrize(
    "accelerators", [(), (json.dumps({"product_id": "2235", "type": "GPU"}),)], ids=["pci", "both"]
)
def test_bug_1897528_a_host_with_a_device_in_a_32_bit_domain_starts_with_its_others(
    bench: MakeBench, accelerators: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """As Intel's VMD makes them of NVMe disks. Whoever looks at a host's lines has to leave it out."""
    odd = {"address": "10000:e1:00.0", "vendor_id": "144d", "product_id": "a80a"}
    nineteen = [{"address": f"0000:{bus:02x}:00.0", **T4} for bus in range(1, 20)]
    with caplog.at_level(logging.INFO):
        host = bench(devices=[*nineteen, odd], settings=Settings(accelerator_device_spec=accelerators))
    assert list(host.devices()) == [each["address"] for each in nineteen]
    assert "devices in 32-bit PCI domains are left out: 10000:e1:00.0" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO and "10000" in record.getMessage()]
    take_inventory(host.host)
    assert len(host.devices()) == 19


def test_networks_of_the_host_are_known(bench: MakeBench) -> None:
    host = bench(devices=[], networks=["default", "lab"])
    host_networks = lambda: {network.name for network in _networks(host)}  # noqa: E731
    assert host_networks() == {"default", "lab"}
    host.change({"devices": [], "networks": ["lab"]})
    take_inventory(host.host)
    assert host_networks() == {"lab"}


def _networks(bench: Bench) -> tuple[networks.HostNetwork, ...]:
    with bench.host.database.read() as conn:
        return networks.of_node(conn, bench.node_id)


@pytest.mark.parametrize("mode", ["raise", "empty", "half"])
def test_f24_a_failed_probe_makes_devices_unknown_until_a_good_one(
    bench: MakeBench, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = bench(devices=GPUS)
    before = host.devices()
    host.change({"devices": GPUS, "simulate": {"discovery": mode}})
    with caplog.at_level(logging.ERROR):
        take_inventory(host.host)
    assert "Discovery on host h1 failed" in caplog.text
    assert node(host).probe_error
    assert set(host.devices()) == set(before)
    assert {device.condition for device in host.devices().values()} == {Condition.UNKNOWN}
    moved = node(host).generation
    take_inventory(host.host)
    assert node(host).generation == moved
    host.change({"devices": GPUS})
    take_inventory(host.host)
    assert node(host).probe_error is None
    assert host.devices() == before


def test_a_host_that_does_not_answer_at_all_keeps_what_was_known_of_it(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    host.change({"devices": GPUS, "simulate": {"fail": {"capabilities": {"error": "internal error: hung"}}}})
    take_inventory(host.host)
    row = node(host)
    assert (row.vcpus, row.memory_mb) == (8, 8192)
    assert "hung" in (row.probe_error or "")
    assert {device.condition for device in host.devices().values()} == {Condition.UNKNOWN}


def test_a_host_that_never_answered_offers_nothing(bench: MakeBench) -> None:
    host = bench(devices=GPUS, simulate={"fail": {"version": {"error": "internal error: hung"}}})
    assert (node(host).vcpus, node(host).memory_mb) == (0, 0)
    assert host.devices() == {}


def test_f14_shadowed_and_misspelt_lines_are_told_at_start_only(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [{"vendor_id": "10de"}, {"address": "0000:01:00.0", "physical_networks": "x"}]
    with caplog.at_level(logging.WARNING):
        host = bench(devices=GPUS, device_spec=lines)
    told = [record.getMessage() for record in caplog.records if "device_spec of host h1" in record.getMessage()]
    assert any("0000:01:00.0" in text for text in told)
    assert any("physical_networks" in text and "physical_network" in text for text in told)
    caplog.clear()
    take_inventory(host.host)
    assert caplog.text == ""


def test_case_66_a_device_that_vanishes_in_use_is_told_once_and_again_at_each_start(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    host = bench(devices=GPUS[:1])
    server = host.server(request())
    tracker.claim(host.host, CONTEXT, server.uuid, host.selection())
    host.change({"devices": []})
    told = []
    for starting in (False, False, True, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            take_inventory(host.host, starting=starting)
        told.append(
            caplog.text.count(f"0000:01:00.0 [10de:1eb8] is claimed by server {server.uuid}, and the host doesn't")
        )
    assert told == [1, 0, 1, 0]
    assert [device.instance_uuid for device in host.devices().values()] == [server.uuid]
    tracker.release(host.host, CONTEXT, server.uuid, host.node_id)
    assert host.devices() == {}


def test_a_line_that_cannot_be_read_raises_and_changes_nothing(bench: MakeBench) -> None:
    host = bench(devices=GPUS)
    before = host.devices()
    with pytest.raises(PciConfigInvalidSpec, match="vendor_id"):
        take_inventory(reopened(host, [{"vendor_id": "xyz"}]).host)
    assert host.devices() == before


@pytest.mark.parametrize("word", ["true", "false"])
@pytest.mark.parametrize(("libvirt", "qemu"), [(9_999_999, 8_002_002), (10_000_000, 8_002_001)])
def test_live_migratable_needs_a_hypervisor_that_can(word: str, libvirt: int, qemu: int) -> None:
    lines = specs('{"vendor_id":"8086"}', json.dumps({"vendor_id": "10de", "live_migratable": word}))
    with pytest.raises(InvalidConfiguration, match=r"line 2 .*libvirt 10\.0\.0 and QEMU 8\.2\.2") as refused:
        check_live_migratable(lines, lambda: HypervisorVersion(libvirt, qemu, "QEMU"))
    assert f"libvirt {libvirt // 1_000_000}." in str(refused.value)
    check_live_migratable(lines, lambda: HypervisorVersion(10_000_000, 8_002_002, "QEMU"))
    check_live_migratable(specs('{"live_migratable":null}', "{}"), lambda: pytest.fail("nobody needs to know"))

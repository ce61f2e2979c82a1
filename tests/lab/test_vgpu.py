"""Mediated devices of a card and of the kernel's mtty, from the flavor to a guest that hears itself on them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from jetbridge.virt.guest import mdevs_of
from lab.hardware import VGPUS
from lab.machine import Machine
from tests.lab.cloud import Cloud, Guest, wait_for
from tests.lab.conftest import Scenario

CARD = VGPUS[0].address
FOREIGN = "4b20d080-1b54-4048-85b3-a6a62d165c09"
Boot = Callable[[str], Guest]


def vgpus(cloud: Cloud) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cloud.jetbridge("vgpu", "list", "--json"))
    return found


def there(machine: Machine) -> set[str]:
    """UUIDs of the mediated devices that the kernel has."""
    return set(machine.run("ls /sys/bus/mdev/devices").split())


def defined(machine: Machine) -> set[str]:
    return set(re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", machine.run("mdevctl list -d")))


@pytest.mark.short
def test_a_vgpu_is_made_and_given(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """a vGPU of a card: made, defined, given; the guest hears itself"""
    scenario.device = VGPUS[0].name
    guest = boot("vgpu")
    report = guest.report()
    (proof,) = report.of("serial")
    assert proof.facts["echo"] == "56"
    scenario.seen += map(str, report.proofs)
    (uuid,) = mdevs_of(guest.xml())
    assert uuid in there(cloud.machine) & defined(cloud.machine)
    name = f"mdev_{uuid.replace('-', '_')}_0000_42_00_0"
    assert "Autostart:      yes" in cloud.machine.run(f"virsh nodedev-info {name}")
    assert name in cloud.machine.run("virsh nodedev-list --cap mdev").split()
    assert f"{uuid} {CARD} labvgpu-1" in " ".join(cloud.machine.run("mdevctl list").split())
    [mine] = [one for one in vgpus(cloud) if one["uuid"] == uuid]
    assert (mine["parent"], mine["type"], mine["instance_uuid"]) == ("pci_0000_42_00_0", "labvgpu-1", guest.id)


def test_a_vgpu_is_kept_and_used_again(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """a vGPU of a card: kept when its server is deleted; the next server has the same"""
    scenario.device = VGPUS[0].name
    guest = boot("vgpu")
    (uuid,) = mdevs_of(guest.xml())
    cloud.delete(guest.id)
    assert uuid in there(cloud.machine)
    again = boot("vgpu")
    assert mdevs_of(again.xml()) == (uuid,)
    (proof,) = again.report().of("serial")
    assert proof.facts["echo"] == "56"
    scenario.seen.append("the next server has the same")


def test_two_vgpus_of_two_parents_in_one_guest(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """two vGPUs in one guest, of a card and of a virtual parent"""
    scenario.device = f"{VGPUS[0].name}, mtty"
    guest = boot("two-vgpus")
    report = guest.report()
    assert sorted(int(proof.facts["ports"]) for proof in report.of("serial")) == [1, 2]
    assert {proof.facts["echo"] for proof in report.of("serial")} == {"56"}
    scenario.seen += map(str, report.proofs)
    mine = {one["parent"]: one["type"] for one in vgpus(cloud) if one["instance_uuid"] == guest.id}
    assert mine == {"pci_0000_42_00_0": "labvgpu-1", "mtty_mtty": "mtty-2"}
    assert set(mdevs_of(guest.xml())) <= there(cloud.machine)


def test_a_foreign_mdev_stays_and_what_is_too_much_is_refused(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """a foreign mediated device on the card: shown, never touched, and its place is nobody's"""
    scenario.device = VGPUS[0].name
    machine = cloud.machine
    machine.run(f"mdevctl start -u {FOREIGN} -p {CARD} --type labvgpu-1; udevadm settle")
    try:
        wait_for(
            "the foreign device is listed",
            lambda: [one for one in vgpus(cloud) if (one["uuid"], one["owner"]) == (FOREIGN, "foreign")],
        )
        scenario.seen.append("four of four are refused: " + cloud.refused("all-of-a-card"))
        guest = boot("vgpu")
        assert FOREIGN not in mdevs_of(guest.xml())
        cloud.delete(guest.id)
        assert FOREIGN in there(machine)
    finally:
        machine.run(f"mdevctl stop -u {FOREIGN}; udevadm settle")


def test_what_got_lost_is_made_again_and_libvirt_may_restart(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """libvirtd is restarted, and a stopped server's mediated device is taken away, as a restart of the host does"""
    scenario.device = "mtty"
    machine = cloud.machine
    guest = boot("serial")
    (uuid,) = mdevs_of(guest.xml())
    cloud.openstack("server", "stop", guest.id)
    cloud.state_is(guest.id, "SHUTOFF")
    machine.run(f"mdevctl stop -u {uuid}; udevadm settle")
    machine.run("pkill -x libvirtd; while pgrep -x libvirtd; do sleep 0.2; done; libvirtd -d")
    wait_for("the device is there again", lambda: uuid in there(machine) or None)
    assert uuid in defined(machine)
    scenario.seen.append("started again under its UUID")
    machine.run(f"mdevctl stop -u {uuid}; mdevctl undefine -u {uuid}; udevadm settle")
    cloud.openstack("server", "start", guest.id)
    cloud.state_is(guest.id, "ACTIVE")
    assert mdevs_of(guest.xml()) == (uuid,)
    guest.wait_ready()
    (proof,) = guest.report().of("serial")
    assert proof.facts["echo"] == "56"
    scenario.seen.append(f"made again, and the guest hears itself: {proof}")

"""What the lab has for devices that are given away in parts, and that the service leaves other people's guests alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lab.guest import guest_kernel
from lab.hardware import EDU, VGPUS
from lab.machine import Machine
from tests.lab.cloud import Cloud, wait_for
from tests.lab.conftest import Scenario
from tests.lab.console import READY, read_report

PARTS = {
    "4b20d080-1b54-4048-85b3-a6a62d165c01": (VGPUS[1].address, "labvgpu-2", 2),
    "4b20d080-1b54-4048-85b3-a6a62d165c02": ("mtty", "mtty-1", 1),
}
"""By UUID: parent, type, ports."""


def test_mdev_types(machine: Machine, scenario: Scenario) -> None:
    """mediated types: mdevctl, sysfs and libvirt list those of labvgpu and mtty"""
    scenario.device = f"{len(VGPUS)} x {VGPUS[0].name}, mtty"
    found = types_by_mdevctl(machine)
    cards = {card.address: {"labvgpu-1", "labvgpu-2"} for card in VGPUS}
    assert {parent: set(types) for parent, types in found.items()} == {**cards, "mtty": {"mtty-1", "mtty-2"}}
    assert found[VGPUS[1].address] == {"labvgpu-1": 4, "labvgpu-2": 2}  # of the others the service may have made some
    types = f"/sys/class/mdev_bus/{VGPUS[1].address}/mdev_supported_types"
    assert machine.read(f"{types}/labvgpu-1/available_instances") == "4"
    names = {f"pci_{re.sub('[:.]', '_', card.address)}" for card in VGPUS}
    assert set(machine.run("virsh -q nodedev-list --cap mdev_types").split()) == {"mtty_mtty", *names}
    scenario.seen.append("no guest: every type has its places")


def test_foreign_guest(cloud: Cloud, scenario: Scenario) -> None:
    """a guest that isn't ours, with mediated devices and a device of ours: left alone, and that device given to nobody"""
    machine = cloud.machine
    scenario.device = f"{EDU.name}, " + ", ".join(kind for _, kind, _ in PARTS.values())
    with mediated_devices(machine), foreign_guest(machine):
        console = wait_for("the foreign guest reports", lambda: _console(machine))
        report = read_report(console)
        parts = {int(proof.facts["ports"]): (proof.ids, proof.facts["echo"]) for proof in report.of("serial")}
        assert parts == dict.fromkeys((1, 2), ("4348:3253", "56"))  # a V that came back
        scenario.seen += map(str, report.proofs)
        cloud.device_is(EDU.address, "available", condition="held")
        scenario.seen.append("meanwhile: " + cloud.refused("edu"))
        assert "running" in machine.run("virsh domstate foreign")
        left = machine.run("mdevctl list")
        assert all(uuid in left for uuid in PARTS)
    cloud.device_is(EDU.address, "available")


def types_by_mdevctl(machine: Machine) -> Mapping[str, Mapping[str, int]]:
    """Free places by parent and type."""
    found: dict[str, dict[str, int]] = {}
    parent = kind = ""
    for line in machine.run("mdevctl types").splitlines():
        depth, text = len(line) - len(line.lstrip()), line.strip()
        if depth == 0:
            parent = text
        elif depth == 2:
            kind = text
        elif text.startswith("Available instances:"):
            found.setdefault(parent, {})[kind] = int(text.split(": ")[1])
    return found


@contextmanager
def mediated_devices(machine: Machine) -> Iterator[None]:
    for uuid, (parent, kind, _) in PARTS.items():
        machine.run(f"mdevctl start -u {uuid} -p {parent} --type {kind}")
    machine.run("udevadm settle")
    try:
        yield
    finally:
        machine.run("; ".join(f"mdevctl stop -u {uuid}" for uuid in PARTS) + "; udevadm settle")


@contextmanager
def foreign_guest(machine: Machine) -> Iterator[None]:
    """A guest that somebody made with libvirt, without Jetbridge."""
    parts = "".join(
        f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{uuid}'/></source></hostdev>"
        for uuid in PARTS
    )
    bus, slot = EDU.address.split(":")[1:]
    edu = f"<address domain='0' bus='0x{bus}' slot='0x{slot.split('.')[0]}' function='0x{slot[-1]}'/>"
    machine.put(
        "/tmp/foreign.xml",
        f"""<domain type='qemu'>
          <name>foreign</name> <memory unit='MiB'>64</memory> <vcpu>1</vcpu>
          <os><type machine='q35'>hvm</type><kernel>{guest_kernel()}</kernel></os> <features><acpi/></features>
          <devices>
            <serial type='file'><source path='/tmp/foreign.console'/></serial> <memballoon model='none'/> {parts}
            <hostdev mode='subsystem' type='pci' managed='yes'><source>{edu}</source></hostdev>
          </devices>
        </domain>""",
    )
    machine.run("rm -f /tmp/foreign.console; virsh create /tmp/foreign.xml")
    try:
        yield
    finally:
        machine.run("virsh destroy foreign")


def _console(machine: Machine) -> str | None:
    text = machine.run("cat /tmp/foreign.console", check=False)
    return text if READY in text else None

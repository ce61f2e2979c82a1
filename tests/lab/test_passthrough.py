"""Devices from flavors to guests: what libvirt binds, what the guest gets, what is given back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from jetbridge.virt.guest import hostdevs_of
from lab.hardware import EDU, KEPT, NIC0, NIC1, UNMANAGED
from lab.machine import Machine
from tests.lab.cloud import Cloud, Guest
from tests.lab.conftest import Scenario

Boot = Callable[[str], Guest]


@pytest.mark.short
def test_alias_to_edu(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """alias -> a device without a driver: MMIO and DMA."""
    scenario.device = EDU.name
    guest = boot("edu")
    (proof,) = guest.report().of("edu")
    assert proof.ids == EDU.ids
    assert (proof.facts["ident"], proof.facts["live"]) == ("010000ed", "edcba987")  # liveness: the value inverted
    assert proof.facts["factorial"] == "00375f00"  # 10!
    assert proof.dma
    scenario.seen.append(str(proof))
    assert hostdevs_of(guest.xml()) == (EDU.address,)
    assert cloud.machine.driver(EDU.address) == "vfio-pci"
    assert cloud.devices()[EDU.address]["status"] == "allocated"
    cloud.delete(guest.id)
    assert cloud.machine.driver(EDU.address) is None
    assert cloud.devices()[EDU.address]["status"] == "available"


def test_numa_policy_required(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """NUMA policy required: each guest lies on the node of its NIC, and a third is refused."""
    scenario.device = f"2 x {NIC0.name}"
    placed = {}
    for name in ("first", "second"):
        guest = cloud.boot("near-nic", name)
        xml = guest.xml()
        (address,) = hostdevs_of(xml)
        (proof,) = guest.report().of("nic")
        nic = {NIC0.address: NIC0, NIC1.address: NIC1}[address]
        assert (proof.ids, proof.facts["mac"], proof.dma) == (nic.ids, nic.mac, True)
        nodes = re.search(r"<memory mode='strict' nodeset='(\d)'/>", xml)
        assert nodes is not None, xml
        assert int(nodes[1]) == nic.node
        placed[address] = int(nodes[1])
        scenario.seen.append(f"node {nodes[1]}: {proof}")
    assert placed == {NIC0.address: 0, NIC1.address: 1}
    assert "PciPassthroughFilter" in cloud.refused("near-nic")


def test_two_devices_of_one_alias(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """count 2: both NICs in one guest."""
    scenario.device = f"2 x {NIC0.name}"
    guest = boot("two-nics")
    proofs = guest.report().of("nic")
    assert {proof.facts["mac"] for proof in proofs} == {NIC0.mac, NIC1.mac}
    assert all(proof.dma for proof in proofs)
    scenario.seen += map(str, proofs)
    assert set(hostdevs_of(guest.xml())) == {NIC0.address, NIC1.address}
    cloud.delete(guest.id)
    assert {cloud.machine.driver(nic.address) for nic in (NIC0, NIC1)} == {"e1000e"}


def test_unmanaged_device(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """managed=false: refused while on the host's driver; given and left on vfio-pci once the operator bound it."""
    scenario.device = UNMANAGED.name
    reason = cloud.refused("unmanaged")
    assert UNMANAGED.address in reason
    assert "detached" in reason, reason
    assert cloud.machine.driver(UNMANAGED.address) == UNMANAGED.driver
    node_device = "pci_" + re.sub(r"[:.]", "_", UNMANAGED.address)
    cloud.machine.run(f"virsh nodedev-detach {node_device}")
    try:
        guest = boot("unmanaged")
        (proof,) = guest.report().of("nic")
        assert (proof.ids, proof.facts["mac"], proof.dma) == (UNMANAGED.ids, UNMANAGED.mac, True)
        scenario.seen.append(str(proof))
        assert "managed='no'" in guest.xml()
        cloud.delete(guest.id)
        assert cloud.machine.driver(UNMANAGED.address) == "vfio-pci"
    finally:
        cloud.machine.run(f"virsh nodedev-reattach {node_device}")


def test_f23_device_already_on_vfio_pci_keeps_that_driver(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """on vfio-pci before the claim: stays there after the release (F23)."""
    scenario.device = KEPT.name
    with bound_to_vfio(cloud.machine, KEPT.address):
        guest = boot("kept")
        (proof,) = guest.report().of("nic")
        assert (proof.ids, proof.facts["mac"], proof.dma) == (KEPT.ids, KEPT.mac, True)
        scenario.seen.append(str(proof))
        assert "managed='yes'" in guest.xml()
        cloud.delete(guest.id)
        assert cloud.machine.driver(KEPT.address) == "vfio-pci"


@contextmanager
def bound_to_vfio(machine: Machine, address: str) -> Iterator[None]:
    """As driverctl does at boot (kernel documentation, sysfs-bus-pci: driver_override)."""
    folder = f"/sys/bus/pci/devices/{address}"

    def rebind(driver: str) -> None:
        machine.run(
            f"echo {driver} >{folder}/driver_override; echo {address} >{folder}/driver/unbind;"
            f" echo {address} >/sys/bus/pci/drivers_probe"
        )

    rebind("vfio-pci")
    assert machine.driver(address) == "vfio-pci"
    try:
        yield
    finally:
        rebind("")

"""Guests that die, daemons that restart, processes that are killed: the devices' ledger stays right."""

from __future__ import annotations

from collections.abc import Callable

from lab.hardware import EDU, NIC0, NICS
from tests.lab.cloud import Cloud, Guest, wait_for
from tests.lab.conftest import Scenario

Boot = Callable[[str], Guest]


def test_guest_that_dies_keeps_its_device(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """QEMU killed: the server stops, its device stays its own, and it starts again on it"""
    scenario.device = EDU.name
    guest = boot("edu")
    cloud.machine.run(f"kill -9 $(cat /run/libvirt/qemu/{guest.domain}.pid)")
    cloud.state_is(guest.id, "SHUTOFF")
    assert cloud.devices()[EDU.address]["instance_uuid"] == guest.id
    cloud.sdk.compute.start_server(guest.id)
    cloud.state_is(guest.id, "ACTIVE")
    guest.wait_ready()
    (proof,) = guest.report().of("edu")
    assert proof.dma
    scenario.seen.append(f"after the second start: {proof}")


def test_stop_is_heard_by_the_guest(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """openstack server stop: the guest gets the power button; the device is back on no driver, and still the server's"""
    scenario.device = EDU.name
    guest = boot("edu")
    cloud.openstack("server", "stop", guest.id)
    cloud.state_is(guest.id, "SHUTOFF")
    assert "guest: power button" in guest.console()
    assert cloud.machine.driver(EDU.address) is None
    assert cloud.devices()[EDU.address]["status"] == "allocated"
    scenario.seen.append("power button")


def test_libvirtd_restarts_under_a_guest(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """libvirtd restarted under a running guest: it runs on, and its device is given back as ever"""
    scenario.device = NIC0.name
    guest = boot("near-nic")
    process = cloud.machine.run(f"cat /run/libvirt/qemu/{guest.domain}.pid")
    cloud.machine.run(
        "kill $(pidof libvirtd); while pidof libvirtd; do sleep 0.2; done; libvirtd -d; until virsh -q uri; do sleep 0.5; done",
        timeout=120,
    )
    assert cloud.machine.run(f"cat /run/libvirt/qemu/{guest.domain}.pid") == process
    cloud.state_is(guest.id, "ACTIVE")
    (given,) = [address for address, device in cloud.devices().items() if device["instance_uuid"] == guest.id]
    cloud.delete(guest.id)
    assert cloud.machine.driver(given) == NIC0.driver
    scenario.seen.append("nothing")


def test_service_killed_between_claim_and_start(cloud: Cloud, scenario: Scenario) -> None:
    """kill -9 between claim and start: after the restart nothing is half done, and the device can be had"""
    scenario.device = EDU.name
    server_id = cloud.create("edu")
    wait_for("the device is claimed", lambda: cloud.log_has(f"Claimed {EDU.address}", server_id), pause=0.1)
    cloud.kill()
    cloud.start()
    server = cloud.settled(server_id)
    device = cloud.devices()[EDU.address]
    if server.status == "ACTIVE":
        assert (device["status"], device["instance_uuid"]) == ("allocated", server_id)
    else:
        assert server.status == "ERROR"
        assert (device["status"], device["instance_uuid"]) == ("available", None)
        assert cloud.machine.run("virsh -q list --all --name").strip() == ""
    scenario.seen.append(f"the server became {server.status}, the device {device['status']}")
    cloud.delete(server_id)
    guest = cloud.boot("edu", "after")
    (proof,) = guest.report().of("edu")
    assert proof.dma
    scenario.seen.append(str(proof))


def test_device_pulled_out_while_free(cloud: Cloud, scenario: Scenario) -> None:
    """a free NIC pulled out of the machine and put back: gone from the list, and back in it"""
    scenario.device = NIC0.name
    cloud.machine.monitor("device_del", id=NIC0.qemu_id)
    wait_for("the NIC is gone", lambda: True if NIC0.address not in cloud.devices() else None)
    scenario.seen.append("gone")
    cloud.machine.monitor("device_add", **NICS[NIC0])
    cloud.device_is(NIC0.address, "available")
    wait_for("L1 drives it", lambda: True if cloud.machine.driver(NIC0.address) == NIC0.driver else None)
    scenario.seen.append("back")

"""Guests that die, daemons that restart, processes that are killed: the devices' ledger stays right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from jetbridge.steps.runtime import Moment
from jetbridge.virt.guest import hostdevs_of
from lab.hardware import EDU, NIC0, NIC1, NICS
from tests.lab.cloud import Cloud, Guest, wait_for
from tests.lab.conftest import Scenario

Boot = Callable[[str], Guest]
Doom = Callable[[str], None]
UNANSWERED = (SDKException, ClientException)
"""The service may die before it has answered the request that kills it."""


@pytest.fixture
def doom(cloud: Cloud) -> Iterator[Doom]:
    """Has the service kill itself right after a step of a build or delete, the next time that one comes to it."""

    def start(step: str) -> None:
        cloud.kill()
        cloud.start(death=(step, Moment.CHANGED))

    yield start
    if cloud.death is not None:  # the scenario ended before its time: the others need a service that lives
        cloud.kill()
        cloud.start()


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


def test_guest_that_powers_off_by_itself(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """a guest that powers off by itself: SHUTOFF, its device on the host's side again and still the server's"""
    scenario.device = NIC0.name
    server_id = cloud.create("near-nic", image="brief-guest")
    cloud.state_is(server_id, "SHUTOFF")
    (proof,) = Guest(cloud, server_id).report().proofs
    assert proof.dma
    scenario.seen.append(str(proof))
    (given,) = [address for address, device in cloud.devices().items() if device["instance_uuid"] == server_id]
    assert cloud.devices()[given]["status"] == "allocated"
    assert cloud.machine.driver(given) == NIC0.driver


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
    )
    assert cloud.machine.run(f"cat /run/libvirt/qemu/{guest.domain}.pid") == process
    cloud.state_is(guest.id, "ACTIVE")
    (given,) = [address for address, device in cloud.devices().items() if device["instance_uuid"] == guest.id]
    cloud.delete(guest.id)
    assert cloud.machine.driver(given) == NIC0.driver
    scenario.seen.append("nothing")


@pytest.mark.parametrize(
    ("step", "flavor", "domains"),
    [
        pytest.param("claim", "edu", 0, id="between claim and start"),
        pytest.param("start", "near-nic", 1, id="between start and allocate"),
    ],
)
def test_service_killed_during_a_build(
    cloud: Cloud, boot: Boot, doom: Doom, scenario: Scenario, step: str, flavor: str, domains: int
) -> None:
    """kill -9 during a build: after the restart nothing is left of it, and the device can be had"""
    doom(step)
    with suppress(*UNANSWERED):
        cloud.create(flavor, "killed")
    cloud.await_death()
    assert len(cloud.machine.run("virsh -q list --name").split()) == domains
    cloud.start()
    server_id = cloud.sdk.compute.find_server("killed", ignore_missing=False).id
    server = cloud.settled(server_id)
    assert server.status == "ERROR"
    assert f"The build stopped in step {step} on host l1" in server.fault["message"]
    assert cloud.machine.run("virsh -q list --all --name").strip() == ""
    assert {device["status"] for device in cloud.devices().values()} == {"available"}
    scenario.seen.append(f"{domains} guests ran after the kill, none after the restart; {server.fault['message']}")
    cloud.delete(server_id)
    (proof,) = boot(flavor).report().proofs
    assert proof.dma
    scenario.device = proof.kind
    scenario.seen.append(str(proof))


def test_service_killed_during_a_delete(cloud: Cloud, boot: Boot, doom: Doom, scenario: Scenario) -> None:
    """kill -9 during a delete, the guest stopped and still defined: after the restart the delete is finished"""
    scenario.device = NIC0.name
    doom("stop")
    guest = boot("near-nic")
    domain = guest.domain
    (given,) = hostdevs_of(guest.xml())
    with suppress(*UNANSWERED):
        cloud.sdk.compute.delete_server(guest.id)
    cloud.await_death()
    assert cloud.machine.run(f"virsh domstate {domain}").strip() == "shut off"
    cloud.start(cold=True)
    wait_for("the delete is finished", lambda: None if guest.id in set(cloud.servers()) else True)
    assert cloud.machine.run("virsh -q list --all --name").strip() == ""
    assert cloud.machine.driver(given) == NIC0.driver
    assert cloud.devices()[given]["status"] == "available"
    scenario.seen.append("the server gone, its NIC on the host's driver")


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


def test_device_pulled_out_while_in_use(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """a NIC pulled out of the machine while a guest has it, and put back: lost and then the server's again, for good after its delete"""
    guest = boot("near-nic")
    (given,) = hostdevs_of(guest.xml())
    nic = {NIC0.address: NIC0, NIC1.address: NIC1}[given]
    scenario.device = nic.name
    cloud.machine.monitor("device_del", id=nic.qemu_id)
    device = cloud.device_is(given, "allocated", condition="lost")
    assert device["instance_uuid"] == guest.id
    assert cloud.log_has(
        f"device {given} [{nic.ids}] is allocated by server {guest.id}",
        "the host doesn't report it any more: put it back",
    )
    assert "guest: let go of slots" in guest.console()
    scenario.seen.append("the guest was asked and let go: lost")

    cloud.machine.monitor("device_add", **NICS[nic])
    cloud.device_is(given, "allocated")
    missing = ("is owned by server", guest.id, "runs without it", "reboot the server hard")
    wait_for("the log says that the guest runs without its device", lambda: cloud.log_has(*missing))
    cloud.sdk.compute.reboot_server(guest.id, "HARD")
    cloud.state_is(guest.id, "ACTIVE")
    guest.wait_ready()
    assert hostdevs_of(guest.xml()) == (given,)
    (proof,) = guest.report().of("nic")
    assert (proof.facts["mac"], proof.dma) == (nic.mac, True)
    scenario.seen.append(f"back after a hard reboot: {proof}")

    cloud.machine.monitor("device_del", id=nic.qemu_id)
    cloud.device_is(given, "allocated", condition="lost")
    cloud.delete(guest.id)
    wait_for("the NIC is forgotten", lambda: True if given not in cloud.devices() else None)
    cloud.machine.monitor("device_add", **NICS[nic])
    cloud.device_is(given, "available")
    wait_for("L1 drives it", lambda: True if cloud.machine.driver(given) == nic.driver else None)
    scenario.seen.append("pulled out again and the server deleted: forgotten, and new when put back")

"""Model 2 on real VFIO: the same passthrough, chosen by providers in Placement, and devices that are cleaned before they are given again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from jetbridge.virt.guest import hostdevs_of
from lab.hardware import EDU, NIC0, NIC1
from lab.machine import Machine
from tests.lab.cloud import Cloud, Guest, wait_for
from tests.lab.conftest import Scenario
from tests.lab.setups import Setup, alias, device_spec

Boot = Callable[[str], Guest]

CLEANER = "/etc/jetbridge/reset-function"
RESET = """#!/bin/sh -e
device=/sys/bus/pci/devices/$1
methods=$(cat $device/reset_method)
echo 1 >$device/reset
echo "reset $1 by $methods"
"""
"""Ends with an error when the function has no way to be reset, or the kernel can't."""

SETUP = Setup(
    name="placement",
    sections={
        "pci": (
            "report_in_placement = true",
            f"cleaner = {CLEANER}",
            device_spec(address=NIC0.address, one_time_use="true", traits="once"),
            device_spec(vendor_id="8086", product_id="10d3", traits="often"),
            device_spec(vendor_id="1234", product_id="11e8", resource_class="edu"),
            alias("EDU", "1234:11e8", resource_class="edu"),
            alias("ONCE", NIC0.ids, traits="once"),
            alias("OFTEN", NIC1.ids, traits="often"),
        ),
        "filter_scheduler": ("pci_in_placement = true",),
    },
    flavors={
        "edu": {"pci_passthrough:alias": "EDU:1"},
        "once": {"pci_passthrough:alias": "ONCE:1"},
        "often": {"pci_passthrough:alias": "OFTEN:1"},
    },
)


@pytest.fixture(autouse=True)
def cleaner(machine: Machine) -> None:
    machine.put(CLEANER, RESET)
    machine.run(f"chmod 755 {CLEANER}")


@pytest.mark.short
def test_passthrough_by_providers(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """alias -> a NIC by its provider in Placement: the guest has the one that the trait names"""
    scenario.device = NIC1.name
    provider = provider_of(cloud, NIC1.address)
    assert provider["inventories"]["CUSTOM_PCI_8086_10D3"]["total"] == 1
    assert {"COMPUTE_MANAGED_PCI_DEVICE", "CUSTOM_OFTEN"} <= set(provider["traits"])
    assert provider["allocations"] == {}
    guest = boot("often")
    (proof,) = guest.report().of("nic")
    assert (proof.facts["mac"], proof.dma) == (NIC1.mac, True)
    assert hostdevs_of(guest.xml()) == (NIC1.address,)
    held = provider_of(cloud, NIC1.address)["allocations"]
    assert {server: each["resources"] for server, each in held.items()} == {guest.id: {"CUSTOM_PCI_8086_10D3": 1}}
    scenario.seen.append(f"{provider['name']}: {proof}")
    cloud.delete(guest.id)
    assert provider_of(cloud, NIC1.address)["allocations"] == {}
    cloud.device_is(NIC1.address, "available")
    assert cloud.machine.driver(NIC1.address) == NIC1.driver


def test_one_time_use_with_a_cleaner(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """one-time-use: reserved from its first use on, until its cleaner has reset the function"""
    scenario.device = NIC0.name
    guest = boot("once")
    (proof,) = guest.report().of("nic")
    assert (proof.facts["mac"], proof.dma) == (NIC0.mac, True)
    wait_for("the device is reserved in Placement", lambda: True if reserved(cloud, NIC0.address) == 1 else None)
    cloud.delete(guest.id)
    device = cloud.device_is(NIC0.address, "available")
    cleaning = device["cleaning"]
    assert (cleaning["state"], cleaning["exit_code"]) == ("done", 0)
    assert f"reset {NIC0.address} by" in cleaning["output"]
    wait_for("it is lowered in Placement", lambda: True if reserved(cloud, NIC0.address) == 0 else None)
    scenario.seen.append(f"{cleaning['output']} in {cleaning['seconds']:.1f} s")
    again = boot("once")
    (proof,) = again.report().of("nic")
    assert (proof.facts["mac"], proof.dma) == (NIC0.mac, True)
    cloud.delete(again.id)
    cloud.device_is(NIC0.address, "available")


def test_a_function_that_can_not_be_reset_stays_out(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """a cleaner that fails: the device stays out, and says why, until somebody says that it is clean"""
    scenario.device = EDU.name
    guest = boot("edu")
    assert guest.report().of("edu")[0].dma
    cloud.delete(guest.id)

    def failed() -> Mapping[str, Any] | None:
        device = cloud.devices()[EDU.address]
        return device if (device["cleaning"] or {}).get("state") == "failed" else None

    device = wait_for("the cleaner has failed", failed)
    assert device["condition"] == "cleaning"
    scenario.seen.append(f"{device['cleaning']['reason']}: {device['cleaning']['output']}")
    cloud.refused("edu")
    (host,) = {each["host"] for each in cloud.devices().values()}
    cloud.jetbridge("devices", "clean", "--by-hand", host, EDU.address)
    cloud.device_is(EDU.address, "available")


def provider_of(cloud: Cloud, address: str) -> dict[str, Any]:
    """The device's provider as Placement has it."""
    uuid = cloud.devices()[address]["rp_uuid"]
    path = f"/resource_providers/{uuid}"
    return {
        "name": asked(cloud, path)["name"],
        "inventories": asked(cloud, f"{path}/inventories")["inventories"],
        "traits": asked(cloud, f"{path}/traits")["traits"],
        "allocations": asked(cloud, f"{path}/allocations")["allocations"],
    }


def reserved(cloud: Cloud, address: str) -> int:
    uuid = cloud.devices()[address]["rp_uuid"]
    (inventory,) = asked(cloud, f"/resource_providers/{uuid}/inventories")["inventories"].values()
    amount: int = inventory["reserved"]
    return amount


def asked(cloud: Cloud, path: str) -> Any:
    """Placement's answer."""
    answer = cloud.sdk.placement.get(path, microversion="1.29")
    assert answer.status_code == 200, answer.text
    return answer.json()

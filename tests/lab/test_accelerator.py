"""Model 4: a device profile becomes an accelerator request, and that a real device in a real guest."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from jetbridge.virt.guest import hostdevs_of
from lab.hardware import ACCELERATOR
from tests.lab.cloud import Cloud, Guest, wait_for
from tests.lab.conftest import Scenario

PROFILE = [{"resources:CUSTOM_NIC": "1", "trait:CUSTOM_TEACHING": "required"}]


def deployables(cloud: Cloud) -> list[dict[str, Any]]:
    """With what openstacksdk's own view of them lacks."""
    found: list[dict[str, Any]] = cloud.sdk.accelerator.get("/deployables").json()["deployables"]
    return found


@pytest.mark.short
def test_profile_to_nic(cloud: Cloud, boot: Callable[[str], Guest], scenario: Scenario) -> None:
    """device profile -> ARQ -> a device in the guest: DMA; deleted, it has its driver again."""
    scenario.device = ACCELERATOR.name
    profile = ("accelerator", "device", "profile")
    cloud.openstack(*profile, "create", "teaching", json.dumps(PROFILE))
    wait_for(
        "Placement knows the accelerator",
        lambda: True if all(each["rp_uuid"] for each in deployables(cloud)) else None,
    )
    guest = boot("accelerated")
    (arq,) = json.loads(cloud.openstack("accelerator", "arq", "list", "--long", "-f", "json"))
    assert (arq["state"], arq["instance_uuid"], arq["attach_handle_type"]) == ("Bound", guest.id, "PCI")
    (proof,) = guest.report().of("nic")
    assert (proof.ids, proof.facts["mac"], proof.dma) == (ACCELERATOR.ids, ACCELERATOR.mac, True)
    scenario.seen.append(f"{arq['state']} {arq['hostname']}: {proof}")
    assert hostdevs_of(guest.xml()) == (ACCELERATOR.address,)
    assert cloud.machine.driver(ACCELERATOR.address) == "vfio-pci"
    assert "No valid host" in cloud.refused("accelerated")  # there is one such device
    cloud.delete(guest.id)
    assert json.loads(cloud.openstack("accelerator", "arq", "list", "-f", "json")) == []
    assert cloud.machine.driver(ACCELERATOR.address) == ACCELERATOR.driver
    cloud.openstack(*profile, "delete", "teaching")

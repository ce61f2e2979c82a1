"""A controller with VFs: given whole, by VF, and never both."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from jetbridge.virt.guest import hostdevs_of
from lab.hardware import NVME, NVME_SERIAL, NVME_VFS
from tests.lab.cloud import Cloud, Guest, wait_for
from tests.lab.conftest import Scenario
from tests.lab.sriov import make_vfs, remove_vfs

Boot = Callable[[str], Guest]


@pytest.fixture
def vfs(cloud: Cloud) -> Iterator[tuple[str, ...]]:
    make_vfs(cloud.machine)
    try:
        for address in NVME_VFS:
            cloud.device_is(address, "available")
        yield NVME_VFS
    finally:
        for server_id in tuple(cloud.servers()):
            cloud.delete(server_id)
        remove_vfs(cloud.machine)
        wait_for("no VF is known", lambda: None if set(NVME_VFS) & set(cloud.devices()) else True)


def test_type_pf(cloud: Cloud, boot: Boot, scenario: Scenario) -> None:
    """type-PF: the whole controller; while it is out no VF can be had."""
    scenario.device = "NVMe PF"
    guest = boot("nvme-pf")
    (proof,) = guest.report().of("nvme")
    assert (proof.ids, proof.facts["serial"], proof.dma) == (NVME.ids, NVME_SERIAL, True)
    scenario.seen.append(str(proof))
    assert hostdevs_of(guest.xml()) == (NVME.address,)
    assert "PciPassthroughFilter" in cloud.refused("nvme-vf")
    scenario.seen.append("a VF was refused meanwhile")
    cloud.delete(guest.id)
    assert cloud.machine.driver(NVME.address) == NVME.driver


def test_vf(cloud: Cloud, boot: Boot, scenario: Scenario, vfs: tuple[str, ...]) -> None:
    """type-VF: one VF in a guest; while it is out the PF can't be had."""
    scenario.device = "NVMe VF"
    guest = boot("nvme-vf")
    (proof,) = guest.report().of("nvme")
    assert (proof.ids, proof.facts["serial"], proof.dma) == (NVME.ids, NVME_SERIAL, True)
    scenario.seen.append(str(proof))
    (given,) = hostdevs_of(guest.xml())
    assert given in vfs
    statuses = {address: cloud.devices()[address]["status"] for address in (NVME.address, *vfs)}
    assert statuses == {**dict.fromkeys(vfs, "available"), given: "allocated", NVME.address: "unavailable"}
    assert "PciPassthroughFilter" in cloud.refused("nvme-pf")
    scenario.seen.append("the PF was refused meanwhile")
    assert cloud.machine.driver(NVME.address) == NVME.driver
    cloud.delete(guest.id)
    assert cloud.machine.driver(given) is None
    cloud.device_is(NVME.address, "available")


def test_physical_function_with_vfs(cloud: Cloud, scenario: Scenario, vfs: tuple[str, ...]) -> None:
    """type-PF while unused VFs exist: the kernel refuses, and the fault says what to do."""
    scenario.device = "NVMe PF"
    reason = cloud.refused("nvme-pf")
    assert f"{NVME.address} has {len(vfs)} VFs" in reason
    assert "sriov_numvfs" in reason
    assert cloud.machine.driver(NVME.address) == NVME.driver
    scenario.seen.append("no guest: the VFs were named")

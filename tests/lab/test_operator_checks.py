"""What operators type on a host with a device in a guest, word for word."""

from __future__ import annotations

import json
from collections.abc import Callable

from lab.hardware import EDU
from tests.lab.cloud import CONFIG, Cloud, Guest
from tests.lab.conftest import Scenario


def test_operator_checks(cloud: Cloud, boot: Callable[[str], Guest], scenario: Scenario) -> None:
    """operator's checks: lspci -k, virsh dumpxml | grep hostdev, virsh nodedev-list, the tables"""
    scenario.device = EDU.name
    guest = boot("edu")
    run = cloud.machine.run
    domain, slot = guest.domain, EDU.address.removeprefix("0000:")

    assert "Kernel driver in use: vfio-pci" in run(f"lspci -k -s {slot}")
    bus, device = slot.split(":")
    place = f"<address domain='0x0000' bus='0x{bus}' slot='0x{device.split('.')[0]}' function='0x{device[-1]}'/>"
    assert place in run(f"virsh dumpxml {domain} | grep -A4 hostdev")
    assert place in "\n".join(line.strip() for line in cloud.jetbridge("xml", guest.id).replace('"', "'").splitlines())
    assert f"pci_0000_{bus}_{device.replace('.', '_')}" in run("virsh nodedev-list --cap pci").split()
    assert "device_spec" in run(rf"grep -A5 '^\[pci\]' {CONFIG}")

    flavor = json.loads(cloud.openstack("flavor", "show", "edu", "-c", "properties", "-f", "json"))
    assert flavor["properties"] == {"pci_passthrough:alias": "EDU:1"}
    queries = {
        f"SELECT spec FROM nova_api.request_specs WHERE instance_uuid='{guest.id}'": "EDU",
        f"SELECT address, status FROM nova.pci_devices WHERE instance_uuid='{guest.id}' AND deleted=0": "allocated",
    }
    sql = f"cd {cloud.program.parent} && ./jetbridge sql --state-dir {cloud.state}"
    for query, expected in queries.items():
        assert expected in run(f'{sql} "{query}"', timeout=180)
    (proof,) = guest.report().of("edu")
    scenario.seen.append(f"lspci of the guest: {', '.join(guest.report().functions.values())}")
    assert proof.dma

"""What libvirt and QEMU refuse, in the words that the simulated hypervisor has of them: tests/cases/libvirt_refusals.yaml."""

from __future__ import annotations

import shlex

from lab.guest import guest_kernel
from tests.lab.cloud import Cloud
from tests.lab.conftest import Scenario
from tests.refusals import CASES, guest, says


def test_refusals_in_libvirts_words(cloud: Cloud, scenario: Scenario) -> None:
    """libvirt and QEMU refuse what the simulated hypervisor refuses, in the same words"""
    machine, kernel = cloud.machine, str(guest_kernel())
    scenario.device = f"{len(CASES)} cases"
    different = []
    for case in CASES:
        if "held" in case:
            machine.run(_create(guest("other", {}, *case["held"], kernel=kernel)))
        code, said = machine.attempt(_create(guest("refused", case, *case.get("wanted", ()), kernel=kernel)))
        if code == 0 or not says(case, said):
            different.append(f"{case['name']}: {said}")
        machine.run("virsh destroy other; virsh destroy refused", check=False)
    assert not different, "\n".join(different)
    scenario.seen.append("no guest: every refusal has the words we know")


def _create(document: str) -> str:
    return f"printf %s {shlex.quote(document)} >/tmp/refusal.xml; virsh -q create /tmp/refusal.xml"

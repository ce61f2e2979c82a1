"""An IOMMU group of two devices, of which the configuration gives only one to guests (F20)."""

from __future__ import annotations

import json

from lab.hardware import GROUP
from tests.lab.cloud import Cloud
from tests.lab.conftest import Scenario


def test_f20_half_a_group(cloud: Cloud, scenario: Scenario) -> None:
    """half an IOMMU group: scan tells beforehand, the failed build names the other member and its driver (F20)."""
    given, other = GROUP
    scenario.device = f"1 of 2 {given.name}"
    functions = {row["address"]: row for row in json.loads(cloud.jetbridge("scan", "--host", "l1", "--json"))}
    members = {member["address"]: member["driver"] for member in functions[given.address]["group_members"]}
    assert members[other.address] == other.driver
    (warning,) = [text for text in functions[given.address]["warnings"] if other.address in text]
    assert other.driver in warning
    reason = cloud.refused("half-group")
    assert "viable" in reason
    assert f"{other.address} [{other.ids}] on driver {other.driver}" in reason
    scenario.seen.append(f"no guest: {other.address} on {other.driver} was named, by scan and by the build")
    assert cloud.machine.driver(given.address) == given.driver
    assert cloud.machine.driver(other.address) == other.driver

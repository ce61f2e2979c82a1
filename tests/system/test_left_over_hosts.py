"""Hosts of another fleet file on the same state folder: said at start, and removed by the command that operators know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from jetbridge.config.settings import Settings
from tests.system.cloud import Cloud, fleet, gpu, host, running

pytestmark = pytest.mark.all_in_one

FIRST = fleet(host("a1", [gpu(1)]), host("a2", [gpu(1), gpu(2)]))
SECOND = fleet(host("b1", [gpu(1)]))
SETTINGS = replace(Settings(), service_down_time=3, update_resources_interval=1, pci_report_in_placement=True)


def removed(cloud: Cloud, name: str) -> httpx.Response:
    (found,) = cloud.client.get(f"/os-services?host={name}&binary=nova-compute").json()["services"]
    return cloud.client.delete(f"/os-services/{found['id']}")


def restarted(cloud: Cloud, content: dict[str, Any]) -> None:
    cloud.stop()
    cloud.write_fleet(content)
    cloud.start()


def left_of(cloud: Cloud, name: str) -> list[Any]:
    """What the tables and Placement still have of a host."""
    node = f"(SELECT id FROM compute_nodes WHERE host = '{name}')"
    return [
        *cloud.sql(f"SELECT host FROM compute_nodes WHERE host = '{name}' AND deleted = 0"),
        *cloud.sql(f"SELECT host FROM services WHERE host = '{name}' AND deleted = 0"),
        *cloud.sql(f"SELECT address FROM pci_devices WHERE compute_node_id IN {node} AND deleted = 0"),
        *cloud.sql(f"SELECT name FROM placement_providers WHERE name LIKE '{name}%'"),
        *(name_ for name_ in provider_names(cloud) if name_.startswith(name)),
    ]


def provider_names(cloud: Cloud) -> list[str]:
    answer = httpx.get(f"{cloud.placement_url}/resource_providers", headers={"X-Auth-Token": "admin"})
    return [each["name"] for each in answer.json()["resource_providers"]]


def test_a_host_of_another_fleet_is_named_at_start_and_goes_when_its_service_is_deleted(tmp_path: Any) -> None:
    with running(tmp_path, FIRST, SETTINGS) as cloud:
        cloud.until(lambda: "a2_0000:02:00.0" in str(provider_names(cloud)).lower(), "a2 is reported")
        server_id = cloud.boot(cloud.flavor("two", {"pci_passthrough:alias": "GPU:2"}))
        assert cloud.wait(server_id, "ACTIVE", "ERROR")["status"] == "ACTIVE"  # on a2: no other has two
        assert "in the database of an earlier start" not in cloud.log()

        restarted(cloud, SECOND)
        assert "in the database of an earlier start: a1, a2. They count as down" in cloud.log()
        assert removed(cloud, "b1").status_code == 409  # it is up
        refused = removed(cloud, "a2")
        assert (refused.status_code, server_id in refused.text) == (409, True)
        assert left_of(cloud, "a2")
        assert removed(cloud, "a1").status_code == 204
        cloud.until(lambda: not left_of(cloud, "a1"), "nothing is left of a1", lambda: left_of(cloud, "a1"))

        cloud.delete(server_id)
        cloud.wait_gone(server_id)
        assert removed(cloud, "a2").status_code == 204
        cloud.until(lambda: not left_of(cloud, "a2"), "nothing is left of a2", lambda: left_of(cloud, "a2"))

        restarted(cloud, FIRST)  # back again, as new hosts
        cloud.until(lambda: "a2_0000:02:00.0" in str(provider_names(cloud)).lower(), "a2 is reported again")
        assert cloud.statuses("a2") == ["available", "available"]


def test_providers_of_a_removed_host_go_with_its_service(tmp_path: Any) -> None:
    """At once: no periodic pass comes here."""
    with running(tmp_path, FIRST, replace(SETTINGS, update_resources_interval=3600)) as cloud:
        cloud.until(lambda: "a1" in provider_names(cloud), "a1 is reported")
        restarted(cloud, SECOND)
        assert removed(cloud, "a1").status_code == 204
        cloud.until(lambda: not left_of(cloud, "a1"), "nothing is left of a1", lambda: left_of(cloud, "a1"))


def test_providers_of_a_removed_host_go_although_placement_did_not_answer_then(tmp_path: Any) -> None:
    with running(tmp_path, FIRST, SETTINGS) as cloud:
        cloud.until(lambda: "a1" in provider_names(cloud), "a1 is reported")
        restarted(cloud, SECOND)
        # As a process leaves it that dies between the tables and Placement.
        for table in ("compute_nodes", "services"):
            cloud.change(f"UPDATE {table} SET deleted = id WHERE host = 'a1'")
        cloud.until(lambda: "a1" not in provider_names(cloud), "the periodic pass takes its providers away")

from __future__ import annotations

from typing import Any

import pytest

from jetbridge.db import services as service_rows
from tests.unit.api.clouds import Cloud, message

USAGE = {"vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "free_ram_mb", "local_gb", "running_vms"}


def hypervisor(cloud: Cloud, version: str, name: str = "gpu001") -> dict[str, Any]:
    found = cloud.get("/os-hypervisors/detail", version=version).json()["hypervisors"]
    return next(each for each in found if each["hypervisor_hostname"] == name)


def test_usage_is_what_the_servers_hold(cloud: Cloud) -> None:
    cloud.flavor("f", ram=1024, vcpus=3, disk=7)
    for _ in range(2):
        cloud.active(cloud.booted("f"))
    host = hypervisor(cloud, "2.53")
    assert (host["vcpus"], host["vcpus_used"]) == (32, 6)
    assert (host["memory_mb"], host["memory_mb_used"], host["free_ram_mb"]) == (65536, 2560, 62976)
    assert (host["local_gb"], host["local_gb_used"], host["running_vms"]) == (1000, 14, 2)
    assert hypervisor(cloud, "2.53", "gpu002")["running_vms"] == 0
    total = cloud.get("/os-hypervisors/statistics").json()["hypervisor_statistics"]
    assert (total["count"], total["vcpus_used"], total["memory_mb_used"]) == (2, 6, 3072)


def test_views_by_version(cloud: Cloud) -> None:
    numbered, with_uuid, newest = (hypervisor(cloud, version) for version in ("2.1", "2.53", "2.88"))
    assert isinstance(numbered["id"], int)
    assert isinstance(numbered["service"]["id"], int)
    assert isinstance(numbered["cpu_info"], str)
    assert len(with_uuid["id"]) == len(with_uuid["service"]["id"]) == 36
    assert with_uuid["cpu_info"] == {"arch": "x86_64", "model": "Cascadelake"}
    assert set(with_uuid) >= USAGE
    assert not (USAGE | {"cpu_info"}) & set(newest)
    assert newest["uptime"] is None
    assert (newest["state"], newest["status"]) == ("up", "enabled")


@pytest.mark.parametrize("version", ["2.1", "2.53", "2.96"])
def test_show_by_the_id_of_the_list(cloud: Cloud, version: str) -> None:
    first = cloud.get("/os-hypervisors", version=version).json()["hypervisors"][0]
    assert set(first) == {"id", "hypervisor_hostname", "state", "status"}
    shown = cloud.get(f"/os-hypervisors/{first['id']}", version=version).json()["hypervisor"]
    assert shown["hypervisor_hostname"] == "gpu001"
    for unknown in ("gpu001", "99", "nope"):
        assert cloud.get(f"/os-hypervisors/{unknown}", version=version).status_code == 404


def test_servers_of_hosts(cloud: Cloud) -> None:
    cloud.flavor()
    server_id = cloud.booted()
    cloud.active(server_id)
    listed = cloud.get("/os-hypervisors?with_servers=true", version="2.53").json()["hypervisors"]
    assert listed[0]["servers"] == [{"name": "instance-00000001", "uuid": server_id}]
    assert listed[1]["servers"] == []
    old = cloud.get("/os-hypervisors/gpu001/servers").json()["hypervisors"]
    assert old[0]["servers"][0]["uuid"] == server_id
    assert cloud.get("/os-hypervisors/gpu001/servers", version="2.53").status_code == 404


def test_patterns_and_pages(cloud: Cloud) -> None:
    path = "/os-hypervisors"
    matching = cloud.get(f"{path}?hypervisor_hostname_pattern=002", version="2.53").json()["hypervisors"]
    assert [each["hypervisor_hostname"] for each in matching] == ["gpu002"]
    assert cloud.get(f"{path}?hypervisor_hostname_pattern=x", version="2.53").status_code == 404
    assert cloud.get(f"{path}/gpu/search").json()["hypervisors"][1]["hypervisor_hostname"] == "gpu002"
    page = cloud.get(f"{path}?limit=1", version="2.53").json()
    marker = page["hypervisors"][0]["id"]
    assert f"marker={marker}" in page["hypervisors_links"][0]["href"]
    rest = cloud.get(f"{path}?limit=1&marker={marker}", version="2.53").json()
    assert [each["hypervisor_hostname"] for each in rest["hypervisors"]] == ["gpu002"]
    assert "hypervisors_links" not in rest
    assert cloud.get(f"{path}?marker=nope", version="2.53").status_code == 400


@pytest.mark.parametrize("route", ["statistics", "1/uptime"])
def test_what_2_88_took_away(cloud: Cloud, route: str) -> None:
    assert cloud.get(f"/os-hypervisors/{route}").status_code == 200
    assert cloud.get(f"/os-hypervisors/{route}", version="2.88").status_code == 404


# --- services --------------------------------------------------------------------------------------


def service(cloud: Cloud, version: str = "2.53", host: str = "gpu001") -> dict[str, Any]:
    (found,) = cloud.get(f"/os-services?host={host}&binary=nova-compute", version=version).json()["services"]
    return dict(found)


def test_services_by_version(cloud: Cloud) -> None:
    everything = cloud.get("/os-services").json()["services"]
    assert [(each["host"], each["binary"], each["zone"]) for each in everything] == [
        ("gpu001", "nova-compute", "nova"),
        ("gpu002", "nova-compute", "nova"),
        ("controller", "nova-conductor", "internal"),
    ]
    assert isinstance(service(cloud, "2.1")["id"], int)
    assert "forced_down" not in service(cloud, "2.10")
    assert service(cloud, "2.11")["forced_down"] is False
    assert len(service(cloud, "2.53")["id"]) == 36


def test_switching_a_host_by_uuid(cloud: Cloud) -> None:
    path = f"/os-services/{service(cloud)['id']}"
    off = {"status": "disabled", "disabled_reason": "broken fan"}
    changed = cloud.ask("PUT", path, off, version="2.53").json()["service"]
    assert (changed["status"], changed["disabled_reason"]) == ("disabled", "broken fan")
    assert hypervisor(cloud, "2.88")["service"]["disabled_reason"] == "broken fan"
    changed = cloud.ask("PUT", path, {"status": "enabled"}, version="2.53").json()["service"]
    assert (changed["status"], changed["disabled_reason"]) == ("enabled", None)
    down = cloud.ask("PUT", path, {"forced_down": True}, version="2.53").json()["service"]
    assert (down["forced_down"], down["state"]) == (True, "down")
    for bad in ({}, {"status": "enabled", "disabled_reason": "x"}, {"status": "broken"}, {"colour": "red"}):
        assert cloud.ask("PUT", path, bad, version="2.53").status_code == 400, bad
    assert cloud.ask("PUT", path, off, version="2.52").status_code == 404
    assert cloud.ask("PUT", "/os-services/nope", off, version="2.53").status_code == 404
    conductor = cloud.get("/os-services?binary=nova-conductor", version="2.53").json()["services"][0]["id"]
    refused = cloud.ask("PUT", f"/os-services/{conductor}", off, version="2.53")
    assert refused.status_code == 400
    assert "nova-conductor" in message(refused)


def test_switching_a_host_the_old_way(cloud: Cloud) -> None:
    gpu = {"host": "gpu001", "binary": "nova-compute"}
    answer = cloud.ask("PUT", "/os-services/disable", gpu).json()["service"]
    assert answer == {**gpu, "status": "disabled"}
    reason = {**gpu, "disabled_reason": "why"}
    assert cloud.ask("PUT", "/os-services/disable-log-reason", reason).json()["service"]["disabled_reason"] == "why"
    assert cloud.ask("PUT", "/os-services/disable-log-reason", gpu).status_code == 400
    assert cloud.ask("PUT", "/os-services/enable", gpu).json()["service"]["status"] == "enabled"
    forced = {**gpu, "forced_down": True}
    assert cloud.ask("PUT", "/os-services/force-down", forced, version="2.10").status_code == 404
    assert cloud.ask("PUT", "/os-services/force-down", forced, version="2.11").json()["service"]["forced_down"]
    assert cloud.ask("PUT", "/os-services/disable", {**gpu, "host": "nope"}).status_code == 404
    for name in ("disable", "enable", "force-down"):
        assert cloud.ask("PUT", f"/os-services/{name}", forced, version="2.53").status_code in (400, 404)


def test_only_dead_services_can_be_deleted(cloud: Cloud) -> None:
    path = f"/os-services/{service(cloud)['id']}"
    assert cloud.ask("DELETE", path, version="2.53").status_code == 409
    cloud.database.write(lambda conn: service_rows.withdraw(conn, "test"))
    assert cloud.ask("DELETE", path, version="2.53").status_code == 204
    assert cloud.ask("DELETE", path, version="2.53").status_code == 404
    assert cloud.ask("DELETE", "/os-services/nope").status_code == 404


# --- lists -----------------------------------------------------------------------------------------


def test_lists_that_clients_ask_for(cloud: Cloud) -> None:
    (zone,) = cloud.get("/os-availability-zone").json()["availabilityZoneInfo"]
    assert (zone["zoneName"], zone["zoneState"]["available"]) == ("nova", True)
    detail = cloud.get("/os-availability-zone/detail").json()["availabilityZoneInfo"]
    hosts = {zone["zoneName"]: sorted(zone["hosts"]) for zone in detail}
    assert hosts == {"internal": ["controller"], "nova": ["gpu001", "gpu002"]}
    assert cloud.get("/os-aggregates").json() == {"aggregates": []}
    assert cloud.get("/os-server-groups").json() == {"server_groups": []}
    assert cloud.get("/extensions").json() == {"extensions": []}
    for missing in ("/os-aggregates/1", "/os-server-groups/x", "/extensions/x"):
        assert cloud.get(missing).status_code == 404


def test_there_are_no_limits(cloud: Cloud) -> None:
    cloud.flavor("f", ram=1024, vcpus=3)
    cloud.booted("f")
    absolute = cloud.get("/limits", version="2.96").json()["limits"]["absolute"]
    assert absolute["maxTotalInstances"] == absolute["maxTotalCores"] == -1
    assert (absolute["totalInstancesUsed"], absolute["totalCoresUsed"], absolute["totalRAMUsed"]) == (1, 3, 1024)
    assert "maxPersonality" not in absolute
    assert "maxPersonality" in cloud.get("/limits", version="2.56").json()["limits"]["absolute"]
    quota = cloud.get("/os-quota-sets/p", version="2.96").json()["quota_set"]
    assert (quota["id"], quota["instances"]) == ("p", -1)
    assert "floating_ips" not in quota
    assert cloud.ask("PUT", "/os-quota-sets/p", {"quota_set": {"cores": 1}}).status_code == 403

"""A guest that is started again right after it ran: the kernel may not have let go of its devices yet."""

from __future__ import annotations

import json
from typing import Any

from tests.system.cloud import Cloud, fleet, gpu, host
from tests.system.conftest import Launch, on_both_deployments

CARD = {
    "address": "0000:3b:00.0",
    "vendor_id": "10de",
    "product_id": "2235",
    "driver": "nvidia",
    "mdev_types": {"nvidia-222": {"available": "4"}},
}
VGPU = {"devices": {"enabled_mdev_types": ["nvidia-222"]}}
HELD = "internal error: qemu unexpectedly closed the monitor: vfio 4b20d080: error getting device from group 12: Device or resource busy"
HARD = {"type": "HARD"}


def failing(error: str, times: int) -> dict[str, Any]:
    return {"simulate": {"fail": {"start_domain": {"times": times, "error": error}}}}


def content(**more: Any) -> dict[str, Any]:
    return fleet(host("h1", [gpu(1), CARD], config=VGPU, **more))


def boot(cloud: Cloud) -> str:
    """A server with a whole GPU and a vGPU."""
    cloud.until(lambda: cloud.sql("SELECT uuid FROM placement_providers WHERE kind = 'mdev'"), "the card is reported")
    specs = {"pci_passthrough:alias": "GPU:1", "resources:VGPU": "1"}
    server_id = cloud.boot(cloud.flavor("both", specs))
    server = cloud.wait(server_id, "ACTIVE", "ERROR")
    assert server["status"] == "ACTIVE", server
    return server_id


def starts(cloud: Cloud) -> list[bool]:
    """Of each start of a guest, whether it worked."""
    lines = (cloud.state / "sim" / "h1" / "journal.jsonl").read_text().splitlines()
    return [entry["ok"] for entry in map(json.loads, lines) if entry["call"] == "start_domain"]


def last_action(cloud: Cloud, server_id: str) -> dict[str, Any]:
    path = f"/servers/{server_id}/os-instance-actions"
    request_id = cloud.client.get(path).json()["instanceActions"][0]["request_id"]
    action: dict[str, Any] = cloud.client.get(f"{path}/{request_id}").json()["instanceAction"]
    return action


def after(cloud: Cloud, server_id: str, action: str, argument: Any = None) -> dict[str, Any]:
    """The server once its last action has ended."""
    cloud.act(server_id, action, argument)
    cloud.until(lambda: last_action(cloud, server_id)["events"][0]["finish_time"], f"{action} has ended")
    return cloud.wait(server_id, "ACTIVE", "SHUTOFF", "ERROR")


@on_both_deployments
def test_a_group_that_is_still_held_at_a_hard_reboot_is_asked_for_once_more(launch: Launch) -> None:
    cloud = launch(content())
    server_id = boot(cloud)
    held = cloud.sql("SELECT uuid, instance_uuid FROM vgpus")
    cloud.reload(content(**failing(HELD, 1)))
    assert after(cloud, server_id, "reboot", HARD)["status"] == "ACTIVE"
    assert starts(cloud) == [True, False, True]
    assert last_action(cloud, server_id)["events"][0]["result"] == "Success"
    assert cloud.sql("SELECT uuid, instance_uuid FROM vgpus") == held
    assert cloud.owned(server_id) == ["0000:01:00.0"]


def test_the_end_of_a_stop_start_and_reboot_is_in_the_log(launch: Launch) -> None:
    cloud = launch(content())
    server_id = boot(cloud)
    for action, argument, event in (
        ("os-stop", None, "compute_stop_instance"),
        ("os-start", None, "compute_start_instance"),
        ("reboot", HARD, "compute_reboot_instance"),
    ):
        after(cloud, server_id, action, argument)
        path = f"/servers/{server_id}/os-instance-actions"
        request_id = cloud.client.get(path).json()["instanceActions"][0]["request_id"]
        line = f"[{request_id}] [instance: {server_id}] {event} of server {server_id} on host h1 is done"
        cloud.until(lambda line=line: line in cloud.log(), line)  # type: ignore[misc]


def test_a_start_is_tried_twice_where_a_group_is_held_and_else_once(launch: Launch) -> None:
    cloud = launch(content())
    server_id = boot(cloud)
    held = cloud.sql("SELECT uuid, instance_uuid FROM vgpus")
    assert after(cloud, server_id, "os-stop")["status"] == "SHUTOFF"
    cloud.reload(content(**failing(HELD, 2)))
    assert after(cloud, server_id, "os-start")["status"] == "SHUTOFF"
    assert starts(cloud) == [True, False, False]
    [event] = last_action(cloud, server_id)["events"]
    assert (event["result"], "error getting device from group 12" in event["details"]) == ("Error", True)
    cloud.reload(content(**failing("internal error: qemu unexpectedly closed the monitor", 1)))
    assert after(cloud, server_id, "os-start")["status"] == "SHUTOFF"
    assert starts(cloud) == [True, False, False, False]
    cloud.reload(content(**failing(HELD, 1)))
    assert after(cloud, server_id, "os-start")["status"] == "ACTIVE"
    assert starts(cloud) == [True, False, False, False, False, True]
    assert cloud.sql("SELECT uuid, instance_uuid FROM vgpus") == held


def test_what_a_person_has_to_do_something_about_is_not_tried_again(launch: Launch) -> None:
    """The audio function of the GPU gets a host driver while the server runs."""
    audio = {"address": "0000:01:00.1", "vendor_id": "10de", "product_id": "10f0", "iommu_group": 7}

    def driven_by(driver: str) -> dict[str, Any]:
        return fleet(host("h1", [gpu(1, iommu_group=7), {**audio, "driver": driver}, CARD], config=VGPU))

    cloud = launch(driven_by("vfio-pci"))
    server_id = boot(cloud)
    cloud.reload(driven_by("snd_hda_intel"))
    assert after(cloud, server_id, "reboot", HARD)["status"] == "SHUTOFF"
    assert starts(cloud) == [True, False]
    [event] = last_action(cloud, server_id)["events"]
    assert "also holds 0000:01:00.1 [10de:10f0] on driver snd_hda_intel" in event["details"]


def test_a_build_goes_to_the_next_host_instead(launch: Launch) -> None:
    cloud = launch(content(**failing(HELD, 1)))
    server = cloud.wait(cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"})), "ACTIVE", "ERROR")
    assert (server["status"], starts(cloud)) == ("ERROR", [False])

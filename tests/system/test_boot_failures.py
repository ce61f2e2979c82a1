"""What goes wrong on the way to a running guest: the next host, an answer that says why, and nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetbridge.errors import InvalidLibvirtMdevConfig, JetbridgeError, PciConfigInvalidSpec, PciInvalidAlias
from jetbridge.steps.runtime import Moment
from tests.system.cloud import T4, Cloud, fleet, gpu, host
from tests.system.conftest import Launch, on_both_deployments

FAILS = {"simulate": {"fail": {"start_domain": {"error": "internal error: qemu unexpectedly closed the monitor"}}}}
FAILS_ONCE = {"simulate": {"fail": {"start_domain": {"times": 1, "error": "internal error: out of luck"}}}}


def why(server: dict[str, Any]) -> str:
    """The fault whole: a long message is cut and stands in the details."""
    fault: dict[str, str] = server["fault"]
    return fault.get("details") or fault["message"]


def gpu_flavor(cloud: Cloud, count: int = 1) -> str:
    return cloud.flavor(f"gpu{count}", {"pci_passthrough:alias": f"GPU:{count}"})


@on_both_deployments
def test_a_spawn_that_fails_goes_to_the_next_host_and_leaves_nothing_on_the_first(launch: Launch) -> None:
    cloud = launch(fleet(host("bad", [gpu(1)], **FAILS), host("good", [gpu(1), gpu(2)])))
    server = cloud.wait(cloud.boot(gpu_flavor(cloud)), "ACTIVE", "ERROR")
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "good")
    assert cloud.statuses("bad") == ["available"]
    assert cloud.domains("bad") == {}
    assert list((cloud.state / "sim" / "bad").glob("guests/*/*")) == []
    assert "failed on host bad" in cloud.log()


def test_a_spawn_that_fails_everywhere_says_so_and_leaves_nothing(launch: Launch) -> None:
    cloud = launch(fleet(*(host(f"bad{number}", [gpu(1)], **FAILS) for number in range(4))))
    server = cloud.wait(cloud.boot(gpu_flavor(cloud)), "ACTIVE", "ERROR")
    assert server["status"] == "ERROR"
    assert "Exceeded max scheduling attempts 3" in server["fault"]["message"]
    assert "closed the monitor" in why(server)
    assert cloud.statuses() == ["available"] * 4
    assert cloud.sql("SELECT host, compute_node_id FROM instances") == [(None, None)]
    assert len(cloud.sql("SELECT id FROM builds WHERE state = 'failed' AND attempts = 2")) == 1


def test_a_claim_that_fails_always_fails_the_build_f3(launch: Launch) -> None:
    """Two aliases that match one device, without the filter that would see it: the claim refuses, jointly."""
    aliases = [{"name": "a", **T4}, {"name": "b", **T4}]
    cloud = launch(
        fleet(host("h1", [gpu(1)]), pci={"alias": aliases}, filter_scheduler={"enabled_filters": ["ComputeFilter"]})
    )
    server = cloud.wait(cloud.boot(cloud.flavor("both", {"pci_passthrough:alias": "a:1,b:1"})), "ACTIVE", "ERROR")
    assert server["status"] == "ERROR"
    assert cloud.statuses() == ["available"]
    assert cloud.owned(server["id"]) == []
    assert cloud.domains("h1") == {}


def test_two_aliases_for_the_only_device_are_refused_by_the_scheduler_f3(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)]), pci={"alias": [{"name": "a", **T4}, {"name": "b", **T4}]}))
    server = cloud.wait(cloud.boot(cloud.flavor("both", {"pci_passthrough:alias": "a:1,b:1"})), "ERROR")
    assert "No valid host" in server["fault"]["message"]
    assert cloud.sql("SELECT attempts, host FROM builds") == [(0, None)]
    assert "Filter PciPassthroughFilter returned 0 hosts" in cloud.log()


def test_no_device_says_by_rule_how_many_hosts_fell_and_why(launch: Launch) -> None:
    cloud = launch(fleet(host("h[1-3]", [gpu(1)]), host("h4", [])))
    server = cloud.wait(cloud.boot(gpu_flavor(cloud, 2)), "ERROR")
    assert "4 hosts considered: 4 refused by PciPassthroughFilter" in server["fault"]["message"]
    assert server["fault"]["code"] == 500


@on_both_deployments
def test_a_server_deleted_while_it_is_built_is_gone_and_its_device_is_free(launch: Launch) -> None:
    slow = {"simulate": {"delay": {"create_root_disk": 1.0}}}
    cloud = launch(fleet(host("h1", [gpu(1)], **slow)))
    server_id = cloud.boot(gpu_flavor(cloud))
    cloud.until(lambda: cloud.statuses() == ["claimed"], "the device is claimed")
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert cloud.statuses() == ["available"]
    assert cloud.domains("h1") == {}
    cloud.until(lambda: cloud.sql("SELECT state FROM builds WHERE kind = 'build'") == [("failed",)], "the build ended")


def test_a_guest_that_can_not_be_stopped_keeps_what_it_has_and_starts_nowhere_else(launch: Launch) -> None:
    """Its build fails once it runs, and the hypervisor can't get rid of it: its devices are in use."""
    stuck = {"error": "Failed to terminate process 77 with SIGKILL: Device or resource busy", "times": 2}
    slow = {"simulate": {"delay": {"start_domain": 1.0}, "fail": {"destroy_domain": stuck}}}
    cloud = launch(fleet(host("h1", [gpu(1)], **slow), host("h2", [gpu(1)], **slow)))
    server_id = cloud.boot(gpu_flavor(cloud))
    cloud.until(lambda: cloud.sql("SELECT id FROM builds WHERE step = 'start'"), "the guest starts")
    cloud.delete(server_id)
    cloud.wait(server_id, "ERROR")
    name = str(cloud.show(server_id)["OS-EXT-SRV-ATTR:host"])
    (domain,) = cloud.domains(name).values()
    assert domain["held"] == cloud.owned(server_id) == ["0000:01:00.0"]
    cloud.update_resources(name)
    assert cloud.show(server_id)["status"] == "ERROR"
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert (cloud.statuses(), cloud.domains(name)) == (["available"] * 2, {})


@pytest.mark.all_in_one
def test_a_build_whose_guest_can_not_be_stopped_is_sent_to_no_other_host_and_says_why(tmp_path: Path) -> None:
    """Nobody deletes it here: any other failure of a host sends a build to the next one."""
    stuck = {"simulate": {"fail": {"destroy_domain": {"error": "Device or resource busy"}}}}

    def observe(step: str, moment: Moment) -> None:
        if (step, moment) == ("start", Moment.CHANGED):
            raise JetbridgeError("the host is out of luck")

    cloud = Cloud(tmp_path)
    cloud.write_fleet(fleet(host("h1", [gpu(1)], **stuck), host("h2", [gpu(1)], **stuck)))
    cloud.start(observe)
    try:
        server = cloud.wait(cloud.boot(gpu_flavor(cloud)), "ACTIVE", "ERROR")
        assert "out of luck (step start). Its guest can't be stopped" in why(server)
        assert "Device or resource busy" in why(server)
        assert cloud.sql("SELECT attempts FROM builds") == [(0,)]
        (domain,) = cloud.domains(server["OS-EXT-SRV-ATTR:host"]).values()
        assert (domain["state"], domain["held"]) == ("running", cloud.owned(server["id"]))
    finally:
        cloud.stop()


def test_a_device_is_free_as_soon_as_its_guest_is_gone_f27(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    flavor = gpu_flavor(cloud)
    for _ in range(5):
        server_id = cloud.boot(flavor)
        assert cloud.wait(server_id, "ACTIVE", "ERROR")["status"] == "ACTIVE"
        cloud.delete(server_id)
        cloud.wait_gone(server_id)


def test_devices_are_claimed_while_the_build_runs_and_allocated_once_the_guest_does(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)], simulate={"delay": {"start_domain": 0.5}})))
    server_id = cloud.boot(gpu_flavor(cloud))
    cloud.until(lambda: cloud.statuses() == ["claimed"], "the device is claimed")
    assert not any(domain["state"] == "running" for domain in cloud.domains("h1").values())
    cloud.wait(server_id, "ACTIVE")
    assert cloud.statuses() == ["allocated"]
    request = cloud.sql("SELECT spec FROM request_specs WHERE instance_uuid = :id", id=server_id)[0][0]
    assert cloud.sql("SELECT request_id FROM pci_devices")[0][0] in request


def test_a_failed_spawn_is_tried_again_on_an_alternate_only_once_per_host(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)], **FAILS_ONCE)))
    server = cloud.wait(cloud.boot(gpu_flavor(cloud)), "ACTIVE", "ERROR")
    assert server["status"] == "ERROR"
    assert "out of luck" in why(server)


def test_a_device_without_numa_node_is_warned_about_under_legacy(launch: Launch) -> None:
    numa = {"numa": {"cells": 2, "cpus_per_cell": 4, "memory_mb_per_cell": 8192, "sockets": 2}}
    cloud = launch(fleet({"name": "h1", **numa, "devices": [gpu(1)]}))
    flavor = cloud.flavor("numa", {"pci_passthrough:alias": "GPU:1", "hw:numa_nodes": "1"})
    server_id = cloud.boot(flavor)
    assert cloud.wait(server_id, "ACTIVE", "ERROR")["status"] == "ACTIVE"
    warning = next(line for line in cloud.log().splitlines() if "has no NUMA node" in line)
    assert "0000:01:00.0" in warning
    assert server_id in warning
    assert " WARNING " in warning


def test_a_device_without_numa_node_is_refused_under_required(launch: Launch) -> None:
    numa = {"numa": {"cells": 2, "cpus_per_cell": 4, "memory_mb_per_cell": 8192, "sockets": 2}}
    cloud = launch(fleet({"name": "h1", **numa, "devices": [gpu(1)]}))
    specs = {"pci_passthrough:alias": "GPU:1", "hw:numa_nodes": "1", "hw:pci_numa_affinity_policy": "required"}
    server = cloud.wait(cloud.boot(cloud.flavor("numa", specs)), "ERROR")
    assert "policy required refuses devices without a NUMA node: 0000:01:00.0" in server["fault"]["message"]


def test_a_spawn_error_about_the_iommu_group_names_its_other_members_f20(launch: Launch) -> None:
    audio = {
        "address": "0000:01:00.1",
        "vendor_id": "10de",
        "product_id": "10f0",
        "iommu_group": 7,
        "driver": "snd_hda_intel",
    }
    cloud = launch(fleet(host("h1", [gpu(1, iommu_group=7), audio])))
    server = cloud.wait(cloud.boot(gpu_flavor(cloud)), "ERROR")
    message = server["fault"]["message"]  # what a user sees: 255 characters
    assert "IOMMU group 7 of 0000:01:00.0 also holds 0000:01:00.1 [10de:10f0] on driver snd_hda_intel" in message
    text = why(server)
    assert "group 7 is not viable" in text
    assert "Then: 1 host considered" in text
    assert cloud.statuses() == ["available"]


def test_a_pf_whose_vfs_stay_is_refused_with_the_reason_and_the_next_host_is_tried(launch: Launch) -> None:
    """Whether VFs go when a PF is unbound depends on its driver: the first start tells."""
    nvme = {"address": "0000:82:00.0", "vendor_id": "1b36", "product_id": "0010", "driver": "nvme", "iommu_group": 13}
    with_vfs, without = ({**nvme, "pf": {"vfs": vfs, "max_vfs": 4, "vf_product_id": "0010"}} for vfs in (2, 0))
    ids = {"vendor_id": "1b36", "product_id": "0010"}
    alias = {"name": "NVME", **ids, "device_type": "type-PF"}
    cloud = launch(
        fleet(host("h1", [with_vfs], vcpus=128), host("h2", [without]), pci={"device_spec": [ids], "alias": [alias]})
    )
    flavor = cloud.flavor("nvme", {"pci_passthrough:alias": "NVME:1"})
    first = cloud.wait(cloud.boot(flavor), "ACTIVE", "ERROR")
    assert (first["status"], first["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "h2")
    second = cloud.wait(cloud.boot(flavor), "ERROR")
    assert (
        "0000:82:00.0 has 2 VFs, and vfio-pci takes a physical function only without any" in second["fault"]["message"]
    )
    assert "echo 0 >/sys/bus/pci/devices/0000:82:00.0/sriov_numvfs" in second["fault"]["message"]
    assert "Path '/dev/vfio/13' is not accessible" in why(second)
    assert set(cloud.statuses("h1")) == {"available"}


@pytest.mark.all_in_one
def test_a_wrong_device_spec_stops_the_start_and_names_the_host(launch: Launch) -> None:
    with pytest.raises(PciConfigInvalidSpec, match=r"Host h1: .*vendor_id"):
        launch(fleet(host("h1", []), pci={"device_spec": [{"vendor_id": "GPU!"}]}))


@pytest.mark.all_in_one
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"mdev_a": {"device_addresses": ["foo:bar"]}},
            r"\[mdev_a\]device_addresses has the incorrect address 'foo:bar'",
        ),
        (
            {name: {"device_addresses": ["0000:3b:00.0"]} for name in ("mdev_a", "mdev_b")},
            "0000:3b:00.0 is listed twice",
        ),
    ],
    ids=["no address", "one address for two types"],
)
def test_wrong_vgpu_options_stop_the_start(launch: Launch, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidLibvirtMdevConfig, match=words):
        launch(fleet(host("h1", [gpu(0x3B)], config={"devices": {"enabled_mdev_types": ["a", "b"]}, **options})))


@pytest.mark.all_in_one
def test_same_named_aliases_that_disagree_stop_the_start_and_free_the_state_folder(launch: Launch) -> None:
    wrong = [{"name": "GPU", **T4, "device_type": "type-PCI"}, {"name": "GPU", **T4, "device_type": "type-PF"}]
    with pytest.raises(PciInvalidAlias, match="GPU"):
        launch(fleet(host("h1", []), pci={"alias": wrong}))
    launch(fleet(host("h1", [])))


@pytest.mark.all_in_one
def test_two_services_cannot_share_a_state_folder(launch: Launch) -> None:
    first = launch(fleet(host("h1", [])))
    second = Cloud(first.folder)
    with pytest.raises(JetbridgeError, match="is used by another jetbridge"):
        second.start()
    assert first.client.get("/flavors").status_code == 200


def test_a_shadowed_device_spec_line_is_named_at_start_f14(launch: Launch) -> None:
    lines = [{"vendor_id": "10de"}, {"address": "0000:3b:00.0", "traits": "CUSTOM_FAST"}]
    cloud = launch(fleet(host("h1", [gpu(0x3B)]), pci={"device_spec": lines}))
    warning = next(
        line for line in cloud.log().splitlines() if " WARNING " in line and "device_spec of host h1" in line
    )
    assert "0000:3b:00.0" in warning

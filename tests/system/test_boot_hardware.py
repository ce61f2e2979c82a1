"""Hardware and options that change under running servers."""

from __future__ import annotations

import uuid

import pytest

from jetbridge.config.settings import Settings
from jetbridge.errors import PciInvalidAlias
from tests.system.cloud import T4, Cloud, fleet, gpu, host
from tests.system.conftest import Launch

pytestmark = pytest.mark.all_in_one


def boot(cloud: Cloud, alias: str = "GPU:1") -> str:
    server_id = cloud.boot(cloud.flavor(f"f-{uuid.uuid4()}", {"pci_passthrough:alias": alias}))
    server = cloud.wait(server_id, "ACTIVE", "ERROR")
    assert server["status"] == "ACTIVE", server
    return server_id


def restart(cloud: Cloud, content: dict[str, object] | None = None) -> None:
    cloud.stop()
    if content is not None:
        cloud.write_fleet(content)
    cloud.start()


def test_f2_four_devices_removed_in_one_pass(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(bus) for bus in range(6)])))
    answer = cloud.reload(fleet(host("h1", [gpu(0), gpu(5)])))
    assert answer == {"added": [], "removed": [], "changed": ["h1"], "unserved": [], "kept": []}
    assert set(cloud.devices()) == {("h1", "0000:00:00.0"), ("h1", "0000:05:00.0")}


def test_f5_a_typo_in_device_spec_keeps_the_rows_of_devices_in_use(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1), gpu(2)])))
    server_id = boot(cloud)
    typo = {"vendor_id": "10de", "product_id": "1eb9"}
    restart(cloud, fleet(host("h1", [gpu(1), gpu(2)]), pci={"device_spec": [typo]}))
    [(address, (status, owner))] = cloud.devices().items()
    assert (status, owner) == ("allocated", server_id)
    warning = next(line for line in cloud.log().splitlines() if " WARNING " in line and "device_spec line" in line)
    assert address[1] in warning
    assert server_id in warning
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert cloud.devices() == {}


def test_f6_pools_follow_a_card_that_becomes_a_pf_at_once(launch: Launch) -> None:
    aliases = [{"name": "VF", "vendor_id": "10de", "product_id": "1eb9", "device_type": "type-VF"}]
    spec = [{"vendor_id": "10de"}]
    cloud = launch(fleet(host("h1", [gpu(1)]), pci={"alias": aliases, "device_spec": spec}))
    carved = gpu(1, pf={"vfs": 2, "vf_product_id": "1eb9"})
    cloud.reload(fleet(host("h1", [carved]), pci={"alias": aliases, "device_spec": spec}))
    types = cloud.sql("SELECT dev_type, status FROM pci_devices WHERE deleted = 0 ORDER BY address")
    assert types == [("type-PF", "available"), ("type-VF", "available"), ("type-VF", "available")]
    server_id = boot(cloud, "VF:1")
    [taken] = cloud.owned(server_id)
    assert taken != "0000:01:00.0"


@pytest.mark.parametrize("mode", ["raise", "empty", "half"])
def test_f24_a_failed_probe_frees_nothing_and_offers_nothing(launch: Launch, mode: str) -> None:
    devices = [gpu(bus) for bus in range(4)]
    cloud = launch(fleet(host("h1", devices)))
    server_id = boot(cloud)
    before = cloud.devices()
    cloud.reload(fleet(host("h1", devices, simulate={"discovery": mode})))
    cloud.update_resources("h1")
    assert cloud.devices() == before
    assert {row[0] for row in cloud.sql("SELECT pci_devices.condition FROM pci_devices")} == {"unknown"}
    assert cloud.sql("SELECT probe_error IS NOT NULL FROM compute_nodes") == [(1,)]
    assert any(" ERROR " in line and "Discovery on host h1 failed" in line for line in cloud.log().splitlines())
    refused = cloud.wait(cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"})), "ACTIVE", "ERROR")
    assert refused["status"] == "ERROR"
    assert "the host's devices are unknown: its last discovery failed" in refused["fault"]["message"]
    assert cloud.devices() == before
    cloud.delete(server_id)  # the guest is gone for sure, whatever the probe says
    cloud.wait_gone(server_id)
    cloud.reload(fleet(host("h1", devices)))
    assert cloud.statuses() == ["available"] * 4
    assert {row[0] for row in cloud.sql("SELECT pci_devices.condition FROM pci_devices")} == {"ok"}
    boot(cloud)


@pytest.mark.parametrize("mode", ["raise", "empty", "half"])
def test_f24_a_restart_on_a_failed_probe_forgets_nothing(launch: Launch, mode: str) -> None:
    devices = [gpu(bus) for bus in range(4)]
    cloud = launch(fleet(host("h1", devices)))
    server_id = boot(cloud)
    before = cloud.devices()
    restart(cloud, fleet(host("h1", devices, simulate={"discovery": mode})))
    assert cloud.devices() == before
    assert cloud.show(server_id)["status"] == "ACTIVE"


def test_f28_another_card_at_the_address_stops_the_start_and_names_both(launch: Launch) -> None:
    first = gpu(1, vpd={"card_serial_number": "SN-A"})
    second = gpu(1, vpd={"card_serial_number": "SN-B"})
    cloud = launch(fleet(host("h1", [first])))
    server_id = boot(cloud)
    cloud.act(server_id, "os-stop")
    cloud.wait(server_id, "SHUTOFF")
    cloud.reload(fleet(host("h1", [second])))
    cloud.act(server_id, "os-start")
    server = cloud.wait(server_id, "ERROR", "ACTIVE")
    assert server["status"] == "ERROR"
    assert "SN-A" in server["fault"]["message"]
    assert "SN-B" in server["fault"]["message"]
    assert cloud.domains("h1")[server["OS-EXT-SRV-ATTR:instance_name"]]["state"] == "shutoff"
    assert cloud.owned(server_id) == ["0000:01:00.0"]
    cloud.reload(fleet(host("h1", [first])))
    cloud.act(server_id, "reboot", {"type": "HARD"})
    cloud.wait(server_id, "ACTIVE")


def test_a_device_that_vanishes_in_use_is_held_until_its_server_goes(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1), gpu(2)])))
    server_id = boot(cloud)
    assert cloud.owned(server_id) == ["0000:01:00.0"]
    cloud.reload(fleet(host("h1", [gpu(2)])))
    assert cloud.owned(server_id) == ["0000:01:00.0"]
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert set(cloud.devices()) == {("h1", "0000:02:00.0")}


def test_a_restart_keeps_servers_devices_and_flavors(launch: Launch) -> None:
    cloud = launch(fleet(host("h[1-3]", [gpu(1), gpu(2)])))
    ids = [cloud.boot(cloud.flavor(f"g{number}", {"pci_passthrough:alias": "GPU:1"})) for number in range(3)]
    for server_id in ids:
        cloud.wait(server_id, "ACTIVE")
    before = cloud.devices()
    restart(cloud)
    assert cloud.devices() == before
    assert [cloud.show(server_id)["status"] for server_id in ids] == ["ACTIVE"] * 3
    cloud.act(ids[0], "os-stop")
    cloud.wait(ids[0], "SHUTOFF")
    assert cloud.devices() == before
    restart(cloud)
    cloud.act(ids[0], "os-start")
    cloud.wait(ids[0], "ACTIVE")
    for server_id in ids:
        cloud.delete(server_id)
        cloud.wait_gone(server_id)
    assert cloud.statuses() == ["available"] * 6


@pytest.mark.parametrize(
    ("pci", "names"),
    [
        ({"device_spec": [{"vendor_id": "zz"}]}, ["Host h1", "vendor_id", "zz"]),
        ({"alias": [{"name": "GPU", "vendor_id": "zz", "product_id": "1eb8"}]}, ["Host h1", "vendor_id", "zz"]),
    ],
)
def test_a_reload_with_wrong_options_of_a_host_changes_nothing(
    launch: Launch, pci: dict[str, object], names: list[str]
) -> None:
    cloud = launch(fleet(host("h0", [gpu(1)]), host("h1", [gpu(1)])))
    cloud.write_fleet(fleet(host("h0", [gpu(1), gpu(2)]), host("h1", [gpu(1), gpu(2)], config={"pci": pci})))
    answer = cloud.client.post(f"{cloud.url}/jetbridge/v1/fleet/reload")
    assert answer.status_code == 400
    for name in names:
        assert name in answer.text
    assert len(cloud.devices()) == 2
    cloud.update_resources("h1")  # its agent still serves
    put_right = cloud.reload(fleet(host("h0", [gpu(1)]), host("h1", [gpu(1), gpu(2)])))
    assert put_right == {"added": [], "removed": [], "changed": ["h1"], "unserved": [], "kept": []}
    assert len(cloud.devices("h1")) == 2


def test_wrong_aliases_of_one_host_are_refused_at_start(launch: Launch) -> None:
    twice = [{**T4, "name": "GPU", "device_type": word} for word in ("type-PF", "type-VF")]
    with pytest.raises(PciInvalidAlias, match=r"Host h1: .*alias GPU: device type mismatch: type-PF and type-VF"):
        launch(fleet(host("h1", [gpu(1)], config={"pci": {"alias": twice}})))


def test_case_25_other_aliases_count_from_the_next_start_on_and_the_log_says_so(launch: Launch) -> None:
    other = {"alias": [{"name": "OTHER", **T4, "device_type": "type-PCI"}]}
    cloud = launch(fleet(host("h1", [gpu(1)])))
    flavor = cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"})
    cloud.reload(fleet(host("h1", [gpu(1), gpu(2)]), pci=other))
    assert "aliases, filters and weights of its config count from the next start" in cloud.log()
    assert cloud.wait(cloud.boot(flavor), "ACTIVE", "ERROR")["status"] == "ACTIVE"
    restart(cloud)
    body = {"name": "s", "flavorRef": flavor, "imageRef": cloud.image(), "networks": "none"}
    answer = cloud.client.post("/servers", json={"server": body})
    assert (answer.status_code, "GPU is not defined" in answer.text) == (400, True)
    assert boot(cloud, "OTHER:1")


def test_reload_adds_and_removes_hosts(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    answer = cloud.reload(fleet(host("h2", [gpu(1), gpu(2)])))
    assert answer == {"added": ["h2"], "removed": ["h1"], "changed": [], "unserved": [], "kept": []}
    assert {name for name, _ in cloud.devices()} == {"h2"}
    cloud.reported()
    server_id = boot(cloud, "GPU:2")
    assert cloud.show(server_id)["OS-EXT-SRV-ATTR:host"] == "h2"


def test_a_host_that_leaves_with_servers_is_down_and_returns_with_them(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)]), host("h2", [])))
    server_id = boot(cloud)
    told = cloud.reload(fleet(host("h2", [])))
    assert (told["removed"], told["kept"]) == (["h1"], ["h1"])
    status = cloud.client.get(f"{cloud.url}/jetbridge/v1/status").json()
    assert (status["devices"], status["devices_of_down_hosts"]) == ({}, 1)
    refused = cloud.wait(cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"})), "ERROR")
    assert "ComputeFilter" in refused["fault"]["message"]
    cloud.reload(fleet(host("h1", [gpu(1)]), host("h2", [])))
    assert cloud.owned(server_id) == ["0000:01:00.0"]
    cloud.act(server_id, "reboot", {"type": "HARD"})
    cloud.wait(server_id, "ACTIVE")


def test_a_wrong_fleet_file_changes_nothing(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    before = cloud.ledgers()
    cloud.fleet_file.write_text(
        "hosts: [{name: h1, devices: [{address: nonsense, vendor_id: 10de, product_id: 1eb8}]}]"
    )
    answer = cloud.client.post(f"{cloud.url}/jetbridge/v1/fleet/reload")
    assert answer.status_code == 400
    assert "nonsense" in answer.text
    assert cloud.ledgers() == before


def test_reload_applies_the_options_of_a_host(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)], config={"pci": {"device_spec": []}})))
    assert cloud.devices() == {}
    cloud.reload(fleet(host("h1", [gpu(1)], config={"pci": {"device_spec": [T4]}})))
    assert cloud.statuses() == ["available"]
    boot(cloud)


def test_f7_guests_without_devices_avoid_the_cell_of_the_gpus(launch: Launch) -> None:
    numa = {"cells": 2, "cpus_per_cell": 4, "memory_mb_per_cell": 16384, "sockets": 2}
    cloud = launch(
        fleet({"name": "h1", "numa": numa, "devices": [gpu(1, numa_node=0), gpu(2, numa_node=0)]}),
        Settings(cpu_allocation_ratio=1.0),
    )
    plain = cloud.flavor("plain", {"hw:numa_nodes": "1"})
    ids = [cloud.boot(plain, f"p{number}") for number in range(3)]
    for server_id in ids:
        cloud.wait(server_id, "ACTIVE")
    cells = [row[0] for row in cloud.sql("SELECT numa_topology FROM instance_extra")]
    assert all('"host_cell":1' in text for text in cells), cells
    boot(cloud, "GPU:2")


def test_f26_looking_changes_nothing(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1), gpu(2)])))
    boot(cloud)
    before = cloud.ledgers()
    for path in ("devices", "pools", "hosts", "servers", "scan?host=h1", "status"):
        answer = cloud.client.get(f"{cloud.url}/jetbridge/v1/{path}")
        assert answer.status_code == 200, f"{path}: {answer.text}"
    assert cloud.ledgers() == before

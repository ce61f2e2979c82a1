"""What is found to disagree is put right within one pass, and only that."""

from __future__ import annotations

import uuid

import pytest

from jetbridge.virt.simulated import SimulatedConnection
from tests.system.cloud import Cloud, fleet, gpu, host
from tests.system.conftest import Launch

pytestmark = pytest.mark.all_in_one

FOREIGN = "11111111-2222-3333-4444-555555555555"


def boot(cloud: Cloud) -> str:
    server_id = cloud.boot(cloud.flavor(f"f-{uuid.uuid4()}", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server_id, "ACTIVE")
    return server_id


def hypervisor(cloud: Cloud, name: str) -> SimulatedConnection:
    assert cloud.service is not None
    connection = cloud.service.agents[name].host.connection
    assert isinstance(connection, SimulatedConnection)
    return connection


def domain_of(cloud: Cloud, server_id: str) -> str:
    name: str = cloud.show(server_id)["OS-EXT-SRV-ATTR:instance_name"]
    return name


def test_a_device_claimed_by_nobodys_build_returns_in_one_pass(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1), gpu(2)])))
    cloud.change("UPDATE pci_devices SET status = 'claimed', instance_uuid = :id WHERE address LIKE '%01%'", id=FOREIGN)
    cloud.update_resources("h1")
    assert cloud.statuses() == ["available", "available"]
    assert FOREIGN in next(line for line in cloud.log().splitlines() if "Freed" in line)


def test_an_allocated_device_without_a_server_returns_in_one_pass(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    cloud.change("UPDATE pci_devices SET status = 'allocated', instance_uuid = :id", id=FOREIGN)
    cloud.update_resources("h1")
    assert cloud.statuses() == ["available"]


def test_nothing_is_freed_on_a_failed_probe_f24(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    cloud.change("UPDATE pci_devices SET status = 'allocated', instance_uuid = :id", id=FOREIGN)
    cloud.reload(fleet(host("h1", [gpu(1)], simulate={"discovery": "raise"})))
    cloud.update_resources("h1")
    assert cloud.statuses() == ["allocated"]


def test_a_device_that_a_running_guest_holds_is_not_freed_whatever_the_tables_say_f23(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    boot(cloud)
    cloud.change("UPDATE instances SET uuid = :id", id=FOREIGN)  # now nobody knows the guest
    cloud.update_resources("h1")
    assert cloud.statuses() == ["allocated"]
    assert len(cloud.domains("h1")) == 1
    assert any(" ERROR " in line and "it is not freed" in line for line in cloud.log().splitlines())


def test_a_domain_whose_server_was_deleted_is_removed_and_its_device_freed(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    cloud.change("UPDATE instances SET deleted = id, vm_state = 'deleted' WHERE uuid = :id", id=server_id)
    cloud.update_resources("h1")
    assert cloud.domains("h1") == {}
    assert cloud.statuses() == ["available"]


def test_a_domain_of_somebody_else_is_never_touched(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    xml = (
        "<domain type='kvm'><name>instance-0000abcd</name>"
        f"<uuid>{FOREIGN}</uuid><memory unit='KiB'>65536</memory><vcpu>1</vcpu>"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    )
    hypervisor(cloud, "h1").define_domain(xml)
    cloud.update_resources("h1")
    assert set(cloud.domains("h1")) == {"instance-0000abcd"}


def test_a_server_whose_domain_is_gone_is_stopped_not_deleted(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    name = domain_of(cloud, server_id)
    hypervisor(cloud, "h1").destroy_domain(name)
    hypervisor(cloud, "h1").undefine_domain(name)
    cloud.update_resources("h1")
    assert cloud.wait(server_id, "SHUTOFF")["OS-EXT-STS:power_state"] == 0
    assert len(cloud.owned(server_id)) == 1
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert cloud.statuses() == ["available"]


def test_a_guest_that_powers_off_by_itself_is_shown_as_stopped_and_keeps_its_device(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    hypervisor(cloud, "h1").guest_poweroff(domain_of(cloud, server_id))
    cloud.wait(server_id, "SHUTOFF")
    assert len(cloud.owned(server_id)) == 1
    cloud.act(server_id, "os-start")
    cloud.wait(server_id, "ACTIVE")


def test_stop_start_and_reboots_keep_the_device(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    owned = cloud.owned(server_id)
    for action, argument, status in (
        ("os-stop", None, "SHUTOFF"),
        ("os-start", None, "ACTIVE"),
        ("reboot", {"type": "SOFT"}, "ACTIVE"),
        ("reboot", {"type": "HARD"}, "ACTIVE"),
    ):
        cloud.act(server_id, action, argument)
        cloud.wait(server_id, status)
        assert cloud.owned(server_id) == owned
        assert cloud.statuses() == ["allocated"]
    actions = cloud.client.get(f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    assert [action["action"] for action in actions] == ["reboot", "reboot", "start", "stop", "create"]
    assert all(action["message"] is None for action in actions)
    for action in actions:
        detail = cloud.client.get(f"/servers/{server_id}/os-instance-actions/{action['request_id']}").json()
        events = detail["instanceAction"]["events"]
        assert events
        assert {event["result"] for event in events} == {"Success"}


def test_a_delete_that_the_hypervisor_refuses_is_an_error_and_works_the_second_time(launch: Launch) -> None:
    failing = {"fail": {"undefine_domain": {"times": 1, "error": "internal error: not now"}}}
    cloud = launch(fleet(host("h1", [gpu(1)], simulate=failing)))
    server_id = boot(cloud)
    cloud.delete(server_id)
    server = cloud.wait(server_id, "ERROR")
    assert "not now" in server["fault"]["message"]
    assert len(cloud.owned(server_id)) == 1  # the guest may still be there
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert cloud.statuses() == ["available"]


def test_every_claim_allocate_and_free_is_one_line_naming_host_device_server_and_request(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    for word in ("Claimed", "Allocated", "Freed"):
        [line] = [line for line in cloud.log().splitlines() if f" {word} " in line]
        assert all(part in line for part in ("INFO", "[req-", "h1", "0000:01:00.0", server_id))

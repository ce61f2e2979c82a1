"""What is found to disagree is put right within one pass, and only that."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from jetbridge.config.settings import Settings
from jetbridge.steps.runtime import Moment
from jetbridge.virt.guest import hostdev_xml
from jetbridge.virt.simulated import SimulatedConnection
from tests.system.cloud import Cloud, fleet, gpu, host
from tests.system.conftest import Launch
from tests.system.invariants import check_at_rest

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


def test_one_pass_returns_a_stray_device_and_ends_a_lost_task(launch: Launch) -> None:
    """The pass that had ended a task left the devices to the next one."""
    cloud = launch(fleet(host("h1", [gpu(1), gpu(2)])))
    server_id = boot(cloud)
    cloud.change("UPDATE instances SET task_state = 'powering-off', updated_at = '2020-01-01 00:00:00.000000'")
    cloud.change(
        "UPDATE pci_devices SET status = 'allocated', instance_uuid = :id WHERE status = 'available'", id=FOREIGN
    )
    cloud.update_resources("h1")
    assert cloud.show(server_id)["OS-EXT-STS:task_state"] is None
    assert cloud.statuses() == ["allocated", "available"]


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


def foreign_guest(cloud: Cloud, *addresses: str) -> str:
    """Somebody else's domain runs with these functions; its name."""
    devices = "".join(
        f"<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x{address[:4]}' bus='0x{address[5:7]}'"
        f" slot='0x{address[8:10]}' function='0x{address[11]}'/></source></hostdev>"
        for address in addresses
    )
    hypervisor(cloud, "h1").define_domain(
        f"<domain type='kvm'><name>foreign</name><uuid>{FOREIGN}</uuid><memory unit='KiB'>65536</memory><vcpu>1</vcpu>"
        f"<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{devices}</devices></domain>"
    )
    hypervisor(cloud, "h1").start_domain("foreign")
    return "foreign"


def conditions(cloud: Cloud) -> list[str]:
    return [row[0] for row in cloud.sql("SELECT condition FROM pci_devices WHERE deleted = 0 ORDER BY address")]


def test_a_device_that_runs_in_somebody_elses_guest_is_told_and_given_to_nobody_until_it_is_let_go(
    launch: Launch,
) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    name = foreign_guest(cloud, "0000:01:00.0")
    for _ in range(2):  # a pass of the inventory doesn't forget it
        cloud.update_resources("h1")
        assert conditions(cloud) == ["held"]
    errors = [line for line in cloud.log().splitlines() if " ERROR " in line and "runs in domain foreign" in line]
    assert len(errors) == 1, "told once, not every minute"
    assert "0000:01:00.0" in errors[0]
    flavor = cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"})
    assert cloud.wait(cloud.boot(flavor), "ACTIVE", "ERROR")["status"] == "ERROR"
    assert cloud.statuses() == ["available"]
    hypervisor(cloud, "h1").destroy_domain(name)
    cloud.update_resources("h1")
    assert conditions(cloud) == ["ok"]
    assert cloud.wait(cloud.boot(flavor), "ACTIVE", "ERROR")["status"] == "ACTIVE"


def test_an_owned_device_that_runs_in_somebody_elses_guest_stays_its_owners_and_is_not_offered_after_it(
    launch: Launch,
) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    cloud.act(server_id, "os-stop")
    cloud.wait(server_id, "SHUTOFF")
    foreign_guest(cloud, "0000:01:00.0")
    cloud.update_resources("h1")
    assert (cloud.owned(server_id), conditions(cloud)) == (["0000:01:00.0"], ["held"])
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert (cloud.statuses(), conditions(cloud)) == (["available"], ["held"])
    assert set(cloud.domains("h1")) == {"foreign"}


def test_a_card_is_held_with_its_virtual_function_f12(launch: Launch) -> None:
    card = {**gpu(1), "product_id": "26b9", "pf": {"vfs": 2, "vf_product_id": "26ba"}}
    cloud = launch(fleet(host("h1", [card]), pci={"device_spec": [{"vendor_id": "10de"}]}))
    address = max(place for _, place in cloud.devices())
    foreign_guest(cloud, address)
    cloud.update_resources("h1")
    assert conditions(cloud) == ["held", "ok", "held"]  # the card, one function, the other


def test_a_guest_that_runs_without_its_device_is_told_and_keeps_it(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    hypervisor(cloud, "h1").detach_device(domain_of(cloud, server_id), hostdev_xml("0000:01:00.0", managed=True))
    cloud.update_resources("h1")
    assert cloud.owned(server_id) == ["0000:01:00.0"]
    assert any(" ERROR " in line and "runs without it" in line for line in cloud.log().splitlines())


class Broken(BaseException):
    """Nothing catches it: the handler dies as if its thread had."""


@pytest.mark.parametrize("step", ["claim", "define", "allocate"])
def test_a_build_whose_handler_dies_is_answered_by_a_periodic_pass(tmp_path: Path, step: str) -> None:
    cloud = dying_handler(tmp_path, step)
    try:
        server = cloud.wait(cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"})), "ACTIVE", "ERROR")
        assert f"stopped in step {step} " in server["fault"]["message"]
        check_at_rest(cloud)
        assert (cloud.statuses(), cloud.domains("h1")) == (["available"], {})
    finally:
        cloud.stop()


def test_a_delete_whose_handler_dies_is_finished_by_a_periodic_pass(tmp_path: Path) -> None:
    cloud = dying_handler(tmp_path, "undefine")
    try:
        server_id = boot(cloud)
        cloud.delete(server_id)
        cloud.wait_gone(server_id)
        cloud.until(lambda: cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)], "it is over")
        check_at_rest(cloud)
        assert cloud.statuses() == ["available"]
    finally:
        cloud.stop()


def dying_handler(folder: Path, step: str) -> Cloud:
    """The first handler that has done ``step`` dies."""
    died = []

    def observe(name: str, moment: Moment) -> None:
        if name == step and moment is Moment.CHANGED and not died:
            died.append(name)
            raise Broken

    cloud = Cloud(folder, Settings(service_down_time=6, report_interval=1, update_resources_interval=1))
    cloud.write_fleet(fleet(host("h1", [gpu(1)])))
    cloud.start(observe)
    return cloud


def test_an_undo_that_fails_is_done_by_a_later_pass(launch: Launch) -> None:
    failing = {
        "fail": {
            "start_domain": {"error": "internal error: no luck"},
            "undefine_domain": {"times": 1, "error": "internal error: not now"},
        }
    }
    cloud = launch(fleet(host("h1", [gpu(1)], simulate=failing)))
    server_id = cloud.boot(cloud.flavor("g", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server_id, "ERROR")
    assert len(cloud.domains("h1")) == 1, "its undo failed"
    assert cloud.statuses() == ["available"]
    cloud.update_resources("h1")
    check_at_rest(cloud)
    assert cloud.domains("h1") == {}


def test_a_half_built_domain_of_a_dead_build_is_removed_with_its_claim(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    name = domain_of(cloud, server_id)
    hypervisor(cloud, "h1").destroy_domain(name)
    cloud.until(lambda: cloud.show(server_id)["status"] == "SHUTOFF", "the stop is noticed")
    # As a process leaves it that died between define and start, long ago.
    cloud.change("UPDATE instances SET vm_state = 'building', task_state = 'spawning', launched_at = NULL")
    cloud.change("UPDATE pci_devices SET status = 'claimed'")
    cloud.change(
        "UPDATE builds SET state = 'running', step = 'define', owner = 'gone', heartbeat = '2020-01-01 00:00:00.000000'"
    )
    cloud.update_resources("h1")
    assert "stopped in step define" in cloud.show(server_id)["fault"]["message"]
    check_at_rest(cloud)
    assert (cloud.statuses(), cloud.domains("h1")) == (["available"], {})


@pytest.mark.parametrize("discovery", ["raise", "half", "empty"])
def test_a_dead_build_is_left_as_it_is_while_its_host_cant_be_seen_f24(launch: Launch, discovery: str) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    cloud.change("UPDATE instances SET vm_state = 'building', task_state = 'spawning', launched_at = NULL")
    cloud.change("UPDATE pci_devices SET status = 'claimed'")
    cloud.change(
        "UPDATE builds SET state = 'running', step = 'allocate', owner = 'gone', heartbeat = '2020-01-01 00:00:00.000000'"
    )
    cloud.reload(fleet(host("h1", [gpu(1)], simulate={"discovery": discovery})))
    cloud.update_resources("h1")
    assert (cloud.statuses(), cloud.owned(server_id)) == (["claimed"], ["0000:01:00.0"])
    assert len(cloud.domains("h1")) == 1
    cloud.reload(fleet(host("h1", [gpu(1)])))
    cloud.update_resources("h1")
    assert (cloud.statuses(), cloud.domains("h1")) == (["available"], {})
    check_at_rest(cloud)


def test_a_dead_build_is_answered_though_the_domains_cant_be_listed(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    cloud.change("UPDATE instances SET vm_state = 'building', task_state = 'spawning', launched_at = NULL")
    cloud.change(
        "UPDATE builds SET state = 'running', step = 'start', owner = 'gone', heartbeat = '2020-01-01 00:00:00.000000'"
    )
    cloud.reload(fleet(host("h1", [gpu(1)], simulate={"fail": {"domains": {"error": "is stuck"}}})))
    cloud.update_resources("h1")
    assert "stopped in step start" in cloud.wait(server_id, "ERROR")["fault"]["message"]


@pytest.mark.parametrize("stops", [True, False], ids=["its guest can be stopped", "its guest runs on"])
def test_a_build_without_a_record_gives_nothing_of_a_guest_that_runs_to_others(launch: Launch, stops: bool) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server_id = boot(cloud)
    if not stops:
        cloud.reload(fleet(host("h1", [gpu(1)], simulate={"fail": {"destroy_domain": {"error": "is stuck"}}})))
    cloud.change("DELETE FROM builds")
    cloud.change(
        "UPDATE instances SET vm_state = 'building', task_state = 'spawning', launched_at = NULL,"
        " updated_at = '2020-01-01 00:00:00.000000'"
    )
    cloud.update_resources("h1")
    cloud.wait(server_id, "ERROR")
    assert "was lost" in cloud.show(server_id)["fault"]["message"]
    running = [domain["state"] for domain in cloud.domains("h1").values()]
    owned = cloud.owned(server_id)
    assert (running, len(owned)) == (([], 0) if stops else (["running"], 1))
    cloud.reload(fleet(host("h1", [gpu(1)])))
    cloud.delete(server_id)
    cloud.wait_gone(server_id)
    assert (cloud.statuses(), cloud.domains("h1")) == (["available"], {})


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

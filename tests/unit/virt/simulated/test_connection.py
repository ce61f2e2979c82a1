"""The simulated hypervisor: what it keeps, gives, restores and refuses."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jetbridge.errors import DomainNotFound, HypervisorError, ProbeFailed
from jetbridge.virt.connection import DiskRequest, DomainInfo, HypervisorConnection, HypervisorEvent
from jetbridge.virt.guest import hostdevs_of, uses_nvram
from jetbridge.virt.nodedev import parse_node_device
from jetbridge.virt.simulated import SimulatedConnection, SimulatedHostFiles
from jetbridge.virt.xml import parse_xml
from tests.unit.virt.fleets import LAB, domain, host, hostdev, opened

A, B = "instance-00000001", "instance-00000002"
GPU, OTHER = "0000:2f:00.0", "0000:30:00.0"
T4S = "hardware: [t4x4]"


def driver(files: SimulatedHostFiles, address: str) -> str | None:
    link = files.read_link(f"/sys/bus/pci/devices/{address}/driver")
    return link.rpartition("/")[2] if link else None


def boot(connection: SimulatedConnection, name: str, *addresses: str, managed: str = "yes") -> None:
    connection.define_domain(domain(name, *addresses, managed=managed))
    connection.start_domain(name)


def journal(connection: SimulatedConnection) -> list[dict[str, Any]]:
    return [json.loads(line) for line in connection.journal_path.read_text().splitlines()]


def refused(connection: SimulatedConnection, name: str) -> str:
    with pytest.raises(HypervisorError) as caught:
        connection.start_domain(name)
    assert connection.domains() == [
        info for info in connection.domains() if info.name != name or info.state == "shutoff"
    ]
    return str(caught.value)


def test_it_is_a_hypervisor_connection(tmp_path: Path) -> None:
    connection: HypervisorConnection = opened(tmp_path, T4S)[0]
    assert connection.host == "node1"
    assert connection.version().type == "QEMU"
    assert [network.name for network in connection.networks()] == ["default"]
    assert "<domainCapabilities>" in (connection.domain_capabilities() or "")


def test_a_life(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    events: list[HypervisorEvent] = []
    connection.subscribe(events.append)
    connection.define_domain(domain(A, GPU))
    assert connection.domains() == [DomainInfo(A, "00000000-0000-0000-0000-000000000001", "shutoff")]
    assert connection.domain_xml(A) == domain(A, GPU)
    connection.start_domain(A)
    assert connection.domains()[0].state == "running"
    device = parse_xml(connection.domain_xml(A)).find("devices/hostdev")
    assert device is not None
    assert device.find("alias") is not None
    assert device.find("address[@type='pci']") is not None
    assert device.find("source/address[@bus='0x2f']") is not None
    connection.reboot_domain(A)
    connection.shutdown_domain(A)
    assert connection.domains()[0].state == "shutoff"
    assert connection.domain_xml(A) == domain(A, GPU)
    connection.undefine_domain(A)
    assert connection.domains() == []
    assert events == [HypervisorEvent("domain-started", A), HypervisorEvent("domain-stopped", A)]


def test_what_it_returns_can_be_read_like_libvirts(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    boot(connection, A, GPU, OTHER)
    live = connection.domain_xml(A)
    assert hostdevs_of(live) == (GPU, OTHER)
    assert not uses_nvram(live)
    lines = [line.strip() for line in live.splitlines()]
    assert [line for line in lines if "hostdev0" in line] == ['<alias name="hostdev0"/>']


def test_calls_that_must_not_fail(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    connection.destroy_domain(A)
    connection.undefine_domain(A)
    connection.delete_guest_files(A)
    assert connection.console_log(A) == b""


def test_calls_on_what_is_not_there(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    for call in (connection.start_domain, connection.shutdown_domain, connection.reboot_domain, connection.domain_xml):
        with pytest.raises(DomainNotFound, match=A):
            call(A)
    boot(connection, A)
    with pytest.raises(HypervisorError, match="domain is already running"):
        connection.start_domain(A)
    connection.destroy_domain(A)
    with pytest.raises(HypervisorError, match="domain is not running"):
        connection.shutdown_domain(A)


def test_a_running_domain_that_is_undefined_goes_when_it_stops(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, T4S)
    boot(connection, A, GPU)
    connection.undefine_domain(A)
    assert connection.domains()[0].state == "running"
    assert GPU.split(":")[1] in connection.domain_xml(A)
    connection.destroy_domain(A)
    assert connection.domains() == []
    assert driver(files, GPU) == "nvidia"


def test_it_outlives_the_process(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    boot(connection, A, GPU)
    again, files = opened(tmp_path, T4S)
    assert again.domains() == connection.domains()
    assert again.domain_xml(A) == connection.domain_xml(A)
    assert driver(files, GPU) == "vfio-pci"
    again.define_domain(domain(B, GPU))
    assert "in use by driver QEMU, domain instance-00000001" in refused(again, B)
    again.destroy_domain(A)
    assert driver(files, GPU) == "nvidia"


EMPTY_DRIVERS = '{"domains": {}, "mdevs": {}, "drivers": [], "failures": {}, "files": {}, "last_id": 0}'


@pytest.mark.parametrize("content", ["{", "", "null", "[]", '{"domains": {"x": 5}}', '{"domains": []}', EMPTY_DRIVERS])
def test_a_damaged_state_file_is_told(tmp_path: Path, content: str) -> None:
    connection, _ = opened(tmp_path, T4S)
    boot(connection, A)
    (tmp_path / "sim" / "node1" / "state.json").write_text(content)
    with pytest.raises(HypervisorError, match=r"state\.json can't be read"):
        opened(tmp_path, T4S)[0].domains()


def test_what_could_not_be_saved_does_not_pile_up(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    boot(connection, A)
    folder = tmp_path / "sim" / "node1"
    (folder / "state.json").rename(tmp_path / "away")
    (folder / "state.json").mkdir()
    for _ in range(3):
        with pytest.raises(HypervisorError):
            connection.destroy_domain(A)
        (folder / "state.json").rmdir()
        (tmp_path / "away").rename(folder / "state.json")
        assert connection.domains()[0].state == "running"
        (folder / "state.json").rename(tmp_path / "away")
        (folder / "state.json").mkdir()
    assert len(list(folder.glob(".state*"))) <= 1
    (folder / "state.json").rmdir()
    (tmp_path / "away").rename(folder / "state.json")
    connection.destroy_domain(A)
    assert list(folder.glob(".state*")) == []


# --- drivers ---


@pytest.mark.parametrize("how", ["destroy", "shutdown", "poweroff"])
def test_f23_the_driver_from_before_is_restored(tmp_path: Path, how: str) -> None:
    connection, files = opened(tmp_path, T4S)
    boot(connection, A, GPU)
    assert driver(files, GPU) == "vfio-pci"
    stop = {
        "destroy": connection.destroy_domain,
        "shutdown": connection.shutdown_domain,
        "poweroff": connection.guest_poweroff,
    }
    stop[how](A)
    assert driver(files, GPU) == "nvidia"


@pytest.mark.parametrize(("line", "before"), [(", driver: vfio-pci", "vfio-pci"), ("", None)])
def test_f23_only_what_was_changed_is_restored(tmp_path: Path, line: str, before: str | None) -> None:
    body = f"devices: [{{address: '{GPU}', vendor_id: 10de, product_id: 1eb8{line}}}]"
    connection, files = opened(tmp_path, body)
    boot(connection, A, GPU)
    assert driver(files, GPU) == "vfio-pci"
    connection.destroy_domain(A)
    assert driver(files, GPU) == before


def test_f23_a_late_release_takes_nothing_from_the_next_owner(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, T4S)
    boot(connection, A, GPU)
    connection.destroy_domain(A)
    boot(connection, B, GPU)
    connection.destroy_domain(A)
    connection.undefine_domain(A)
    assert driver(files, GPU) == "vfio-pci"
    assert [info.name for info in connection.domains() if info.state == "running"] == [B]


def test_unmanaged_devices_must_be_on_vfio_already(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, T4S)
    connection.define_domain(domain(A, GPU, managed="no"))
    assert f"Unmanaged PCI device {GPU} must be manually detached" in refused(connection, A)
    files.write_text(f"/sys/bus/pci/devices/{GPU}/driver/unbind", GPU)
    files.write_text("/sys/bus/pci/drivers/vfio-pci/bind", GPU)
    connection.start_domain(A)
    with pytest.raises(HypervisorError, match=f"in use by domain {A}"):
        files.write_text("/sys/bus/pci/drivers/vfio-pci/unbind", GPU)
    connection.destroy_domain(A)
    assert driver(files, GPU) == "vfio-pci"


def test_the_interface_goes_while_a_guest_has_the_card(tmp_path: Path) -> None:
    body = "devices: [{address: '81:00.0', vendor_id: 8086, product_id: 1572, interface: ens1, driver: i40e}]"
    connection, files = opened(tmp_path, body)
    before = list(connection.node_devices())
    boot(connection, A, "0000:81:00.0")
    assert not any(parse_node_device(document).net for document in connection.node_devices())
    assert files.list_dir("/sys/class/net") == ()
    connection.destroy_domain(A)
    assert list(connection.node_devices()) == before


# --- refusals ---


def test_a_device_of_another_running_domain(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    boot(connection, A, GPU)
    connection.define_domain(domain(B, OTHER, GPU))
    assert f"PCI device {GPU} is in use by driver QEMU, domain {A}" in refused(connection, B)
    boot(connection, "instance-00000003", OTHER)  # nothing stayed with the refused one
    connection.destroy_domain(A)
    connection.destroy_domain("instance-00000003")
    connection.start_domain(B)


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    connection.define_domain(domain(A, "0000:3b:00.0"))
    assert "Device 0000:3b:00.0 not found: could not access /sys/bus/pci" in refused(connection, A)


def test_pf_and_vf_exclude_each_other(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, "hardware: [a100x2-vf]")
    boot(connection, A, "0000:21:00.3")
    connection.define_domain(domain(B, "0000:21:00.0"))
    assert "Path '/dev/vfio/" in refused(connection, B)
    connection.destroy_domain(A)
    connection.start_domain(B)
    assert "Device 0000:21:00.3 not found" in refused(connection, A)


def test_a_pf_whose_driver_leaves_its_vfs_is_refused(tmp_path: Path) -> None:
    body = """
    devices:
      - {address: "82:00.0", vendor_id: 1b36, product_id: "0010", iommu_group: 13, driver: nvme, pf: {vfs: 2, vf_product_id: "0010"}}
    """
    connection, files = opened(tmp_path, body)
    connection.define_domain(domain(A, "0000:82:00.0"))
    assert "Path '/dev/vfio/13' is not accessible: No such file or directory" in refused(connection, A)
    assert driver(files, "0000:82:00.0") == "nvme"


def test_f20_a_group_that_is_not_viable(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, "hardware: [rtx-audio]")
    connection.define_domain(domain(A, "0000:09:00.0"))
    message = refused(connection, A)
    assert "vfio 0000:09:00.0: group 209 is not viable" in message
    assert "Please ensure all devices within the iommu_group are bound to their vfio bus driver." in message
    assert driver(files, "0000:09:00.0") == "vfio-pci"
    boot(connection, B, "0000:09:00.0", "0000:09:00.1")
    assert driver(files, "0000:09:00.1") == "vfio-pci"
    connection.destroy_domain(B)
    assert driver(files, "0000:09:00.1") == "snd_hda_intel"


def test_one_group_for_one_domain(tmp_path: Path) -> None:
    body = """
    devices:
      - {address: "01:00.0", vendor_id: 10de, product_id: 1eb8, iommu_group: 5}
      - {address: "01:00.1", vendor_id: 10de, product_id: 1eb8, iommu_group: 5}
    """
    connection, _ = opened(tmp_path, body)
    boot(connection, A, "0000:01:00.0")
    connection.define_domain(domain(B, "0000:01:00.1"))
    assert "0000:01:00.0 is in use" in refused(connection, B)


def test_bridges_are_not_given(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, "hardware: [h100x8]")
    connection.define_domain(domain(A, "0000:16:00.0"))
    assert "Non-endpoint PCI devices cannot be assigned" in refused(connection, A)


def test_a_network_or_disk_that_is_not_there(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    connection.define_domain(domain(A, GPU, extra="<interface type='network'><source network='lan'/></interface>"))
    assert "no network with matching name 'lan'" in refused(connection, A)
    disk = "<disk type='file' device='disk'><source file='/nowhere/disk'/><target dev='vda'/></disk>"
    connection.define_domain(domain(A, GPU, extra=disk))
    assert "Cannot access storage file '/nowhere/disk'" in refused(connection, A)


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ("<numatune><memory mode='strict' nodeset='0,2'/></numatune>", "NUMA node 2 is unavailable"),
        ("<cputune><vcpupin vcpu='0' cpuset='7-8'/></cputune>", "Numerical result out of range"),
        ("<cputune><emulatorpin cpuset='64'/></cputune>", "Numerical result out of range"),
    ],
)
def test_cpus_and_nodes_that_the_host_does_not_have(tmp_path: Path, element: str, words: str) -> None:
    connection, _ = opened(tmp_path, "numa: {cells: 2, cpus_per_cell: 4, memory_mb_per_cell: 4096}")
    connection.define_domain(domain(A).replace("<os>", f"{element}<os>"))
    assert words in refused(connection, A)
    good = "<cputune><vcpupin vcpu='0' cpuset='7'/></cputune><numatune><memory mode='strict' nodeset='1'/></numatune>"
    connection.define_domain(domain(A).replace("<os>", f"{good}<os>"))
    connection.start_domain(A)


@pytest.mark.parametrize(
    ("xml", "words"),
    [
        ("", "XML error"),
        ("<domain type='kvm'>", "XML error"),
        ("<network/>", "unexpected root element <network>"),
        (domain().replace("<name>instance-00000001</name>", ""), "missing domain name"),
        (domain().replace("instance-00000001<", "../up<"), "cannot contain '/'"),
        (domain(kind="vmware"), "domaintype=vmware"),
        (domain().replace(" type='kvm'", ""), "Missing required attribute 'type'"),
        (domain(uuid="1234"), "malformed uuid"),
        (domain().replace("<memory unit='KiB'>1048576</memory>", ""), "Memory size must be specified"),
        (domain().replace("<type arch='x86_64' machine='q35'>hvm</type>", ""), "an os <type> must be specified"),
        (domain(A, GPU, GPU), "Hostdev already exists"),
        (domain(A, GPU).replace("bus='0x2f'", "bus='47x'"), "Invalid value for attribute 'bus'"),
        (domain(A, GPU).replace("bus='0x2f'", "bus='0x100'"), "Invalid PCI address bus="),
        (domain(A, GPU, managed="maybe"), "Invalid value for attribute 'managed'"),
        ("<!DOCTYPE d [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>" + domain(), "document type"),
    ],
)
def test_xml_that_libvirt_would_refuse(tmp_path: Path, xml: str, words: str) -> None:
    connection, _ = opened(tmp_path, T4S)
    with pytest.raises(HypervisorError) as caught:
        connection.define_domain(xml)
    assert words in str(caught.value)
    assert str(caught.value).startswith("define_domain failed on node1: ")
    assert connection.domains() == []


def test_names_and_uuids_are_unique(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    connection.define_domain(domain(A))
    connection.define_domain(domain(A, GPU))  # the same domain again
    assert connection.domain_xml(A) == domain(A, GPU)
    with pytest.raises(HypervisorError, match="already exists with uuid 00000000-0000-0000-0000-000000000001"):
        connection.define_domain(domain(A, uuid="00000000-0000-0000-0000-00000000000f"))
    with pytest.raises(HypervisorError, match="is already defined with uuid 00000000-0000-0000-0000-000000000001"):
        connection.define_domain(domain(B, uuid="00000000-0000-0000-0000-000000000001"))


def test_one_device_for_one_of_many_at_once(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    names = [f"instance-{number:08x}" for number in range(1, 9)]
    for name in names:
        connection.define_domain(domain(name, GPU))
    barrier = threading.Barrier(len(names))
    failures: list[str] = []

    def start(name: str) -> None:
        barrier.wait()
        try:
            connection.start_domain(name)
        except HypervisorError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=start, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) == 7
    assert all("is in use by driver QEMU" in failure for failure in failures)
    assert [info.state for info in connection.domains()].count("running") == 1


# --- attach and detach ---


def test_attach_and_detach(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, T4S)
    boot(connection, A, GPU)
    connection.attach_device(A, hostdev(OTHER))
    assert driver(files, OTHER) == "vfio-pci"
    assert 'bus="0x30"' in connection.domain_xml(A)
    with pytest.raises(HypervisorError, match="already exists"):
        connection.attach_device(A, hostdev(OTHER))
    connection.define_domain(domain(B, OTHER))
    assert f"in use by driver QEMU, domain {A}" in refused(connection, B)
    connection.detach_device(A, hostdev(OTHER))
    assert driver(files, OTHER) == "nvidia"
    assert 'bus="0x30"' not in connection.domain_xml(A)
    with pytest.raises(HypervisorError, match=f"host pci device {OTHER} not found"):
        connection.detach_device(A, hostdev(OTHER))
    connection.start_domain(B)


def test_a_device_is_taken_out_of_the_guest_and_out_of_its_definition(tmp_path: Path) -> None:
    """Each by itself, as a guest may keep what it has."""
    connection, _ = opened(tmp_path, T4S)
    boot(connection, A, GPU)
    connection.attach_device(A, hostdev(OTHER))
    connection.detach_device(A, hostdev(OTHER))
    assert 'bus="0x30"' not in connection.domain_xml(A)
    assert 'bus="0x30"' in connection.domain_xml(A, defined=True)
    connection.detach_device(A, hostdev(OTHER), defined=True)
    assert 'bus="0x30"' not in connection.domain_xml(A, defined=True)
    with pytest.raises(HypervisorError, match=f"host pci device {OTHER} not found"):
        connection.detach_device(A, hostdev(OTHER), defined=True)


def test_a_deaf_guest_keeps_what_is_taken_out_of_it(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, f"{T4S}\nsimulate: {{deaf: true}}")
    boot(connection, A, GPU)
    connection.attach_device(A, hostdev(OTHER))
    for _ in range(2):
        connection.detach_device(A, hostdev(OTHER))
        assert 'bus="0x30"' in connection.domain_xml(A)
    assert driver(files, OTHER) == "vfio-pci"


# --- mediated devices ---

MDEV = """<device><parent>{parent}</parent><capability type='mdev'><type id='{kind}'/>
<uuid>{uuid}</uuid></capability></device>"""
UUID = "c0ffee00-0000-4000-8000-000000000001"


def test_an_mdev_lives_until_it_is_destroyed(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, f"nodedevs: {LAB}")
    name = connection.create_mdev(MDEV.format(parent="pci_0000_42_00_0", kind="labvgpu-1", uuid=UUID))
    assert name == "mdev_c0ffee00_0000_4000_8000_000000000001_0000_42_00_0"
    found = {node.name: node for node in map(parse_node_device, opened(tmp_path, f"nodedevs: {LAB}")[0].node_devices())}
    mdev = found[name].mdev
    assert mdev is not None
    assert (mdev.type, mdev.parent_addr) == ("labvgpu-1", "0000:42:00.0")
    assert {kind.id: kind.available for kind in found["pci_0000_42_00_0"].mdev_types} == {
        "labvgpu-1": 22,
        "labvgpu-2": 11,
    }
    taken = (
        f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{UUID}'/></source></hostdev>"
    )
    connection.define_domain(domain(A, extra=taken))
    connection.define_domain(domain(B, extra=taken))
    connection.start_domain(A)
    assert f"mediated device /sys/bus/mdev/devices/{UUID} is in use by driver QEMU, domain {A}" in refused(
        connection, B
    )
    with pytest.raises(HypervisorError, match=f"Unable to destroy '{name}': device in use"):
        connection.destroy_mdev(name)
    connection.destroy_domain(A)
    connection.destroy_mdev(name)
    assert "mediated device" in refused(connection, A)
    connection.destroy_mdev(name)
    with pytest.raises(HypervisorError, match="Node device not found"):
        connection.start_mdev(name)


def test_f25_types_are_compared_whole(tmp_path: Path) -> None:
    body = """
    devices:
      - address: "3b:00.0"
        vendor_id: 10de
        product_id: 1eb8
        mdev_types: {nvidia-558: {available: 1}}
    """
    connection, _ = opened(tmp_path, body)
    with pytest.raises(HypervisorError, match=r"Parent 0000:3b:00\.0 does not support mdev type nvidia-55"):
        connection.create_mdev(MDEV.format(parent="pci_0000_3b_00_0", kind="nvidia-55", uuid=UUID))
    connection.create_mdev(MDEV.format(parent="pci_0000_3b_00_0", kind="nvidia-558", uuid=UUID))
    with pytest.raises(HypervisorError, match=r"No available instances of nvidia-558 on 0000:3b:00\.0"):
        connection.create_mdev(MDEV.format(parent="pci_0000_3b_00_0", kind="nvidia-558", uuid=UUID[:-1] + "2"))


# --- files and console ---


def test_guest_files(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    base = tmp_path / "image"
    base.write_bytes(b"x")
    disk = connection.create_root_disk(DiskRequest(A, base, "qcow2", 20))
    drive = connection.create_config_drive(A, {"openstack/latest/meta_data.json": b"{}"})
    extra = f"<disk type='file' device='disk'><source file='{disk}'/><target dev='vda'/></disk>"
    connection.define_domain(domain(A, extra=extra))
    connection.start_domain(A)
    assert disk.stat().st_size + drive.stat().st_size < 4096
    with pytest.raises(HypervisorError, match="Could not open"):
        connection.create_root_disk(DiskRequest(B, tmp_path / "gone", "qcow2", 20))
    connection.destroy_domain(A)
    connection.delete_guest_files(A)
    assert not disk.parent.exists()


def test_the_guest_prints_its_devices(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    boot(connection, A, GPU, OTHER)
    console = connection.console_log(A).decode()
    assert console.count("[10de:1eb8] type 00 class 0x030200") == 2
    assert "login:" in console
    connection.reboot_domain(A)
    assert connection.console_log(A).decode().count("login:") == 2
    connection.guest_poweroff(A)
    assert connection.console_log(A).endswith(b"reboot: Power down\n")
    assert connection.console_log_path(A).read_bytes() == connection.console_log(A)


# --- misbehaviour ---


def test_a_call_fails_as_often_as_the_fleet_says_across_restarts(tmp_path: Path) -> None:
    body = "hardware: [t4x4]\nsimulate: {fail: {start_domain: {times: 2, error: 'internal error: no luck'}}}"
    connection, files = opened(tmp_path, body)
    connection.define_domain(domain(A, GPU))
    assert "start_domain failed on node1: internal error: no luck" in refused(connection, A)
    assert driver(files, GPU) == "nvidia"
    again, _ = opened(tmp_path, body)
    assert "no luck" in refused(again, A)
    again.start_domain(A)
    assert opened(tmp_path, body)[0].domains()[0].state == "running"


def test_a_failure_that_is_changed_counts_anew(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, "simulate: {fail: {define_domain: {times: 1, error: first}}}")
    for words in ("first", "second"):
        connection.apply_hardware(
            host(tmp_path, f"simulate: {{fail: {{define_domain: {{times: 1, error: {words}}}}}}}")
        )
        with pytest.raises(HypervisorError, match=words):
            connection.define_domain(domain(A))
        connection.define_domain(domain(A))


def test_a_call_can_always_fail(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, "simulate: {fail: {networks: {}}}")
    for _ in range(3):
        with pytest.raises(HypervisorError, match="simulated failure of networks"):
            connection.networks()


def test_a_slow_call_holds_up_nobody_else(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, "hardware: [t4x4]\nsimulate: {delay: {start_domain: 2}}")
    connection.define_domain(domain(A, GPU))
    started = time.monotonic()
    thread = threading.Thread(target=connection.start_domain, args=(A,))
    thread.start()
    assert connection.domains()[0].state == "shutoff"
    assert thread.is_alive()
    thread.join()
    assert time.monotonic() - started >= 2
    assert connection.domains()[0].state == "running"


def test_discovery_can_fail(tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="node1"):
        opened(tmp_path, "hardware: [t4x4]\nsimulate: {discovery: raise}")[0].node_devices()


# --- journal ---


def test_the_journal_proves_who_had_what_when(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    boot(connection, A, GPU)
    connection.define_domain(domain(B, GPU))
    refused(connection, B)
    connection.guest_poweroff(A)
    connection.start_domain(B)
    moves = [(entry["call"], entry["domain"], entry["devices"]) for entry in journal(connection) if "devices" in entry]
    assert moves == [("give", A, [GPU]), ("take-back", A, [GPU]), ("give", B, [GPU])]
    starts = [entry["ok"] for entry in journal(connection) if entry["call"] == "start_domain"]
    assert starts == [True, False, True]
    times = [entry["at"] for entry in journal(connection)]
    assert times == sorted(times)


# --- hardware that changes ---


def test_hardware_appears_and_vanishes(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, T4S)
    events: list[HypervisorEvent] = []
    connection.subscribe(events.append)
    connection.apply_hardware(host(tmp_path, "devices: [{address: '3b:00.0', vendor_id: 10de, product_id: 1eb8}]"))
    gone = [f"pci_0000_{bus}_00_0" for bus in ("2f", "30", "af", "b0")]
    assert events == [
        *(HypervisorEvent("device-removed", name) for name in gone),
        HypervisorEvent("device-added", "pci_0000_3b_00_0"),
    ]
    assert files.list_dir("/sys/bus/pci/devices") == ("0000:3b:00.0",)
    assert [parse_node_device(document).name for document in connection.node_devices()] == [
        "computer",
        "pci_0000_3b_00_0",
    ]


def test_the_same_fleet_again_changes_nothing(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    events: list[HypervisorEvent] = []
    connection.subscribe(events.append)
    connection.apply_hardware(host(tmp_path, T4S))
    assert events == []
    assert not connection.journal_path.exists()


def test_a_running_domain_keeps_a_card_that_was_pulled(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    boot(connection, A, GPU)
    connection.apply_hardware(host(tmp_path, "vcpus: 4"))
    assert connection.domains()[0].state == "running"
    assert "0x2f" in connection.domain_xml(A)
    connection.apply_hardware(host(tmp_path, T4S))
    connection.define_domain(domain(B, GPU))
    assert f"in use by driver QEMU, domain {A}" in refused(connection, B)
    connection.destroy_domain(A)
    connection.start_domain(B)


def test_f28_another_card_at_the_address_starts_on_its_own_driver(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, T4S)
    files.write_text(f"/sys/bus/pci/devices/{GPU}/driver/unbind", GPU)
    body = f"devices: [{{address: '{GPU}', vendor_id: 10de, product_id: 20b5, driver: nvidia}}]"
    connection.apply_hardware(host(tmp_path, body))
    assert driver(files, GPU) == "nvidia"
    assert files.read_text(f"/sys/bus/pci/devices/{GPU}/device") == "0x20b5\n"


def test_a_listener_that_fails_does_no_harm(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, T4S)
    seen = []

    def broken(event: HypervisorEvent) -> None:
        seen.append(event)
        raise ValueError("listener")

    connection.subscribe(broken)
    boot(connection, A)
    assert len(seen) == 1
    assert connection.domains()[0].state == "running"


def test_a_thousand_hosts_open_at_once(tmp_path: Path) -> None:
    from jetbridge.config.fleet import load_fleet
    from jetbridge.virt.simulated import open_fleet_host

    (tmp_path / "fleet.yaml").write_text("hosts: [{name: 'g[0001-1000]', hardware: [h100x8, connectx6]}]")
    threads = threading.active_count()
    pairs = [open_fleet_host(each, tmp_path / "sim") for each in load_fleet(tmp_path / "fleet.yaml").hosts]
    assert threading.active_count() == threads
    assert not (tmp_path / "sim").exists()
    first, last = pairs[0][0].node_devices(), pairs[-1][0].node_devices()
    assert first[1] is last[1]  # documents are shared

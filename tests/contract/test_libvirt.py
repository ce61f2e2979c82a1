"""LibvirtConnection on real libvirt: its in-memory driver ``test:///default``.

That driver starts any guest, but can't attach or detach devices, make mdevs, tell domain capabilities, or lose its
daemon, and has no PCI node devices. Those calls are exercised in the lab, on libvirtd with QEMU.
"""

from __future__ import annotations

import dataclasses
import queue
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetbridge.errors import DomainNotFound, HypervisorError, HypervisorUnavailable
from jetbridge.virt.connection import DiskRequest, HypervisorConnection, HypervisorEvent
from jetbridge.virt.guest import GuestSpec, build_domain, hostdev_xml, hostdevs_of, parse_domain, uses_nvram
from jetbridge.virt.libvirt import LibvirtConnection, LocalHostFiles
from tests.unit.virt.guests import golden_cases

URI = "test:///default"
CASES = golden_cases()


def for_test_driver(guest: GuestSpec, **changes: object) -> GuestSpec:
    """The same guest as a domain of the test driver, which knows no CPU models."""
    assert guest.cpu is not None
    cpu = dataclasses.replace(guest.cpu, mode=None)
    return dataclasses.replace(guest, virt_type="test", cpu=cpu, **changes)  # type: ignore[arg-type]


GUEST = for_test_driver(CASES["one-gpu"].guest)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[LibvirtConnection]:
    connection = LibvirtConnection(URI, "gpu001", tmp_path / "state", files=LocalHostFiles(tmp_path))
    yield connection
    connection.close()


@pytest.fixture
def defined(connection: LibvirtConnection) -> Iterator[str]:
    connection.define_domain(build_domain(GUEST))
    yield GUEST.name
    connection.destroy_domain(GUEST.name)
    connection.undefine_domain(GUEST.name)


def test_it_is_a_hypervisor_connection(connection: LibvirtConnection) -> None:
    seam: HypervisorConnection = connection
    assert seam.host == "gpu001"
    assert seam.version().type == "TEST"
    assert seam.version().libvirt >= 9_000_000
    assert seam.capabilities().startswith("<capabilities>")
    assert seam.domain_capabilities() is None


@pytest.mark.parametrize("name", CASES)
def test_libvirt_holds_every_golden_guest_as_it_was_written(connection: LibvirtConnection, name: str) -> None:
    guest = for_test_driver(CASES[name].guest)
    connection.define_domain(build_domain(guest))
    try:
        connection.start_domain(guest.name)
        xml = connection.domain_xml(guest.name)
        held = parse_domain(xml)
        assert held.controllers[: len(guest.controllers)] == tuple(
            dataclasses.replace(controller, index=number) if controller.kind == "pci" else controller
            for number, controller in enumerate(guest.controllers)
        )
        # libvirt adds controllers that disks need, and a boot device beside a kernel.
        filled_in = {"controllers": guest.controllers}
        if guest.boot_device is None:
            filled_in["boot_device"] = None  # type: ignore[assignment]
        assert dataclasses.replace(held, **filled_in) == guest  # type: ignore[arg-type]
        of_nics = [str(nic.address) for nic in guest.interfaces if nic.address]
        assert hostdevs_of(xml) == (*of_nics, *(str(hostdev.source) for hostdev in guest.hostdevs))
        assert uses_nvram(xml) == guest.uefi
    finally:
        connection.destroy_domain(guest.name)
        connection.undefine_domain(guest.name)
    with pytest.raises(DomainNotFound, match=f"{guest.name} does not exist on gpu001"):
        connection.domain_xml(guest.name)


def _state(connection: LibvirtConnection, name: str) -> str | None:
    return next((info.state for info in connection.domains() if info.name == name), None)


def test_life_of_a_domain(connection: LibvirtConnection, defined: str) -> None:
    assert _state(connection, defined) == "shutoff"
    assert {info.uuid for info in connection.domains() if info.name == defined} == {GUEST.uuid}
    connection.start_domain(defined)
    assert _state(connection, defined) == "running"
    connection.reboot_domain(defined)
    assert _state(connection, defined) == "running"
    connection.shutdown_domain(defined)
    assert _state(connection, defined) == "shutoff"
    connection.start_domain(defined)
    connection.destroy_domain(defined)
    assert _state(connection, defined) == "shutoff"


def test_foreign_domains_are_listed(connection: LibvirtConnection) -> None:
    assert _state(connection, "test") == "running"  # the driver's own


def test_what_is_already_so_is_no_error(connection: LibvirtConnection, defined: str) -> None:
    connection.destroy_domain(defined)
    connection.destroy_domain("instance-0000dead")
    connection.undefine_domain("instance-0000dead")
    connection.undefine_domain(defined)
    connection.undefine_domain(defined)


def test_errors_carry_libvirts_own_text(connection: LibvirtConnection, defined: str) -> None:
    connection.start_domain(defined)
    with pytest.raises(HypervisorError, match=rf"start_domain {defined} failed on gpu001: .*already running"):
        connection.start_domain(defined)
    with pytest.raises(DomainNotFound):
        connection.start_domain("instance-0000dead")
    with pytest.raises(HypervisorError, match=r"attach_device .* not supported by the connection driver"):
        connection.attach_device(defined, hostdev_xml("0000:3b:00.0", managed=True))


def test_document_that_breaks_the_schema_is_refused(connection: LibvirtConnection) -> None:
    xml = build_domain(GUEST).replace("<vcpu", "<surprise/><vcpu")
    with pytest.raises(HypervisorError, match="define_domain"):
        connection.define_domain(xml)
    assert _state(connection, GUEST.name) is None


def test_node_devices_are_documents(connection: LibvirtConnection) -> None:
    documents = connection.node_devices()
    assert any("<name>computer</name>" in document for document in documents)
    assert all(document.startswith("<device>") for document in documents)


def test_networks_are_libvirts_and_the_hosts_other_bridges(connection: LibvirtConnection, tmp_path: Path) -> None:
    for name in ("br-lab", "virbr0"):
        (tmp_path / f"sys/class/net/{name}/bridge").mkdir(parents=True)
        (tmp_path / f"sys/class/net/{name}/bridge/stp_state").write_text("0\n")
        (tmp_path / f"sys/class/net/{name}/address").write_text("52:54:00:00:00:01\n")
    (tmp_path / "sys/class/net/eth0").mkdir()
    networks = {network.name: network for network in connection.networks()}
    assert set(networks) == {"default", "br-lab"}  # virbr0 is the bridge of default
    assert (networks["default"].kind, networks["default"].active) == ("network", True)
    assert (networks["br-lab"].kind, networks["br-lab"].mac) == ("bridge", "52:54:00:00:00:01")


def test_events_say_when_a_domain_starts_and_stops(connection: LibvirtConnection, defined: str) -> None:
    events: queue.Queue[HypervisorEvent] = queue.Queue()

    def broken_listener(event: HypervisorEvent) -> None:
        raise RuntimeError(event.kind)

    connection.subscribe(broken_listener)
    connection.subscribe(events.put)
    connection.start_domain(defined)
    assert events.get(timeout=10) == HypervisorEvent("domain-started", defined)
    connection.destroy_domain(defined)
    assert events.get(timeout=10) == HypervisorEvent("domain-stopped", defined)


def test_several_connections_share_the_process(tmp_path: Path) -> None:
    first = LibvirtConnection(URI, "a", tmp_path)
    second = LibvirtConnection(URI, "b", tmp_path)
    first.close()
    first.close()
    assert second.version().type == "TEST"
    second.close()
    with pytest.raises(HypervisorUnavailable, match="was closed"):
        second.version()
    assert "libvirt-events" not in {thread.name for thread in threading.enumerate()}
    again = LibvirtConnection(URI, "c", tmp_path)
    assert again.version().type == "TEST"
    again.close()


def test_nobody_answering_is_said_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(HypervisorUnavailable) as caught:
        LibvirtConnection(f"qemu:///system?socket={tmp_path}/none", "h1", tmp_path)
    for word in ("libvirt-daemon-system", "qemu-system-x86", "--fleet", "connection_uri", f"{tmp_path}/none"):
        assert word in caught.value.message


def test_missing_binding_is_said_with_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    with pytest.raises(HypervisorUnavailable, match=r"pkg-config --modversion libvirt.*--fleet"):
        LibvirtConnection(URI, "h1", tmp_path)


# --- files that belong to a guest --------------------------------------------------------------


def test_files_of_a_guest_come_and_go(connection: LibvirtConnection, tmp_path: Path) -> None:
    name = GUEST.name
    disk = connection.create_root_disk(DiskRequest(name, None, "raw", 1))
    drive = connection.create_config_drive(name, {"openstack/latest/meta_data.json": b"{}"})
    log = connection.console_log_path(name)
    assert disk.parent == drive.parent == log.parent == tmp_path / "state" / "instances" / name
    assert connection.console_log(name) == b""
    log.write_bytes(b"third\n")
    log.with_name("console.log.0").write_bytes(b"second\n")
    log.with_name("console.log.1").write_bytes(b"first\n")
    assert connection.console_log(name) == b"first\nsecond\nthird\n"
    connection.delete_guest_files(name)
    assert not disk.parent.exists()
    connection.delete_guest_files(name)
    assert connection.console_log(name) == b""


@pytest.mark.parametrize("name", ["..", "../other", "a/b", ""])
def test_files_of_nobody_else_are_touched(connection: LibvirtConnection, name: str) -> None:
    with pytest.raises(HypervisorError, match="not a domain name"):
        connection.delete_guest_files(name)


# --- a daemon that hangs or breaks -------------------------------------------------------------


def test_daemon_that_never_answers_meets_the_deadline(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen(1)  # connects, and never says a word
        with pytest.raises(HypervisorUnavailable, match=r"connect failed on h1: no answer within 0\.3 s"):
            LibvirtConnection(
                f"qemu:///system?socket={tmp_path}/s", "h1", tmp_path, deadlines={"connect": 0.3, "close": 0.1}
            )

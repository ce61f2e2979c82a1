"""From a server to its guest: what is refused, left out, or chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.errors import (
    InvalidConfiguration,
    NotSupported,
    PciDeviceUnsupportedHypervisor,
    PciDeviceWrongAddressFormat,
)
from jetbridge.virt.guest import GuestFiles, GuestOptions, build_domain, parse_domain
from jetbridge.virt.guest.placement import cpu_topology
from tests.unit.virt.guests import FILES, SERVER, device, request, translate


def _addresses(**changes: object) -> list[str]:
    return [str(hostdev.source) for hostdev in translate(**changes).guest.hostdevs]  # type: ignore[arg-type]


def test_devices_follow_the_order_of_the_requests() -> None:
    devices = (device("0000:81:00.0", "b"), device("0000:3b:00.0", "a"), device("0000:82:00.0", "b"))
    assert _addresses(requests=(request("a"), request("b", 2)), devices=devices) == [
        "0000:3b:00.0",
        "0000:81:00.0",
        "0000:82:00.0",
    ]


def test_device_without_matching_request_is_left_out_with_a_warning() -> None:
    result = translate(requests=(request("a"),), devices=(device("0000:3b:00.0", "a"), device("0000:3b:00.1", "gone")))
    assert [str(hostdev.source) for hostdev in result.guest.hostdevs] == ["0000:3b:00.0"]
    assert len(result.warnings) == 1
    assert all(word in result.warnings[0] for word in ("0000:3b:00.1", "gone", SERVER.uuid))


def test_devices_of_port_requests_are_the_interfaces_business() -> None:
    result = translate(requests=(request("p", alias=None),), devices=(device("0000:3b:00.0", "p"),))
    assert result.guest.hostdevs == ()
    assert result.warnings == ()


def test_devices_need_kvm_or_qemu() -> None:
    with pytest.raises(PciDeviceUnsupportedHypervisor, match=r"^lxc hypervisor"):
        translate(
            requests=(request("a"),), devices=(device("0000:3b:00.0", "a"),), options=GuestOptions(virt_type="lxc")
        )
    assert translate(options=GuestOptions(virt_type="lxc")).guest.hostdevs == ()


def test_short_device_address_is_refused() -> None:
    with pytest.raises(PciDeviceWrongAddressFormat):
        translate(requests=(request("a"),), devices=(device("3b:00.0", "a"),))


@pytest.mark.parametrize(
    ("arch", "machine", "ports"),
    [
        ("x86_64", None, 4),
        ("x86_64", "pc-q35-7.2", 4),
        ("x86_64", "pc", 0),
        ("aarch64", None, 4),
        ("aarch64", "virt-7.2", 4),
        ("ppc64le", "pseries", 0),
    ],
)
def test_root_ports_only_where_the_machine_has_pci_express(arch: str, machine: str | None, ports: int) -> None:
    properties = {"hw_machine_type": machine} if machine else {}
    guest = translate(image_properties=properties, options=GuestOptions(arch=arch, num_pcie_ports=4)).guest
    assert sum(controller.model == "pcie-root-port" for controller in guest.controllers) == ports
    assert sum(controller.model == "pcie-root" for controller in guest.controllers) == (1 if ports else 0)


@pytest.mark.parametrize("ports", [-1, 29])
def test_more_root_ports_than_there_are_slots_are_refused(ports: int) -> None:
    with pytest.raises(InvalidConfiguration, match=f"num_pcie_ports = {ports}"):
        translate(options=GuestOptions(num_pcie_ports=ports))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hw_firmware_type", "coreboot"),
        ("hw_disk_bus", "ide"),
        ("os_secure_boot", "maybe"),
        ("os_secure_boot", "required"),
    ],
)
def test_image_properties_that_cannot_be_met_are_named(key: str, text: str) -> None:
    with pytest.raises(NotSupported, match=f"{key}='{text}'"):
        translate(image_properties={key: text})


def test_no_two_disks_share_a_name() -> None:
    files = replace(FILES, config_drive=Path("/c.iso"))
    for bus in ("virtio", "scsi", "sata"):
        targets = [disk.target for disk in translate(image_properties={"hw_disk_bus": bus}, files=files).guest.disks]
        assert len(set(targets)) == 2, bus


def test_command_line_without_kernel_is_not_written() -> None:
    guest = translate(image_properties={"os_command_line": "quiet"}).guest
    assert guest.cmdline is None
    assert guest.boot_device == "hd"


def test_guest_without_console_log_still_has_a_console() -> None:
    (serial,) = translate(files=GuestFiles()).guest.serials
    assert (serial.kind, serial.log, serial.append) == ("pty", None, None)


@given(st.text(max_size=40))
def test_any_server_name_makes_a_document(name: str) -> None:
    guest = translate(server=replace(SERVER, display_name=name)).guest
    assert guest.identity is not None
    assert "\n" not in (guest.title or "")  # libvirt refuses titles of several lines
    parsed = parse_domain(build_domain(guest)).identity
    assert parsed is not None
    assert parsed.name.split() == guest.identity.name.split()


# --- CPU topology ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vcpus", "wishes", "cells", "expected"),
    [
        (4, {}, 1, (4, 1, 1)),
        (8, {}, 2, (2, 4, 1)),
        (7, {}, 2, (7, 1, 1)),
        (8, {"sockets": "2"}, 1, (2, 4, 1)),
        (8, {"cores": "4"}, 2, (2, 4, 1)),
        (8, {"sockets": "1", "cores": "4", "threads": "2"}, 1, (1, 4, 2)),
        (8, {"threads": "2"}, 1, (4, 1, 2)),
    ],
)
def test_cpu_topology(vcpus: int, wishes: dict[str, str], cells: int, expected: tuple[int, int, int]) -> None:
    shape, warning = cpu_topology(vcpus, wishes, cells)
    assert (shape.sockets, shape.cores, shape.threads) == expected
    assert warning is None


@pytest.mark.parametrize("wishes", [{"sockets": "3"}, {"cores": "0"}, {"threads": "x"}, {"sockets": "16"}])
def test_cpu_topology_that_does_not_add_up_is_replaced_with_a_warning(wishes: dict[str, str]) -> None:
    shape, warning = cpu_topology(8, wishes)
    assert (shape.sockets, shape.cores, shape.threads) == (8, 1, 1)
    assert warning is not None
    assert next(iter(wishes.values())) in warning


@given(
    st.integers(1, 64),
    st.dictionaries(st.sampled_from(["sockets", "cores", "threads"]), st.integers(-1, 70).map(str)),
    st.integers(1, 8),
)
def test_cpu_topology_always_multiplies_to_the_cpus(vcpus: int, wishes: dict[str, str], cells: int) -> None:
    shape, _ = cpu_topology(vcpus, wishes, cells)
    assert shape.sockets * shape.cores * shape.threads == vcpus

"""The scan of a host's functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetbridge.config.fleet import templates
from jetbridge.pci.alias import parse_aliases
from jetbridge.pci.device_spec import first_match, parse_device_specs
from jetbridge.pci.flavor import parse_alias_term
from jetbridge.virt.hostfacts import SysfsFacts
from jetbridge.virt.nodedev import host_report
from jetbridge.virt.scan import ScannedFunction, scan
from tests.unit.virt.fleets import LAB, opened

EVERYTHING = f"hardware: [{', '.join(templates())}]"


def scanned(folder: Path, body: str) -> dict[str, ScannedFunction]:
    connection, files = opened(folder, body)
    return {function.address: function for function in scan(connection.node_devices(), files)}


@pytest.mark.parametrize("body", [EVERYTHING, f"nodedevs: {LAB}"])
def test_the_lines_can_be_pasted(tmp_path: Path, body: str) -> None:
    connection, files = opened(tmp_path, body)
    documents = connection.node_devices()
    found = [function for function in scan(documents, files) if function.suggestion]
    rows = {row["address"]: row for row in host_report(documents, files)}
    lines = [function.suggestion for function in found if function.suggestion]
    # All of them together make a valid configuration.
    table = parse_aliases([line.alias.removeprefix("alias = ") for line in lines])
    for function, line in zip(found, lines, strict=True):
        specs = parse_device_specs([line.device_spec.removeprefix("device_spec = ")], SysfsFacts(files))
        assert first_match(specs, rows[function.address])
        key, _, term = line.flavor.partition("=")
        assert key == "pci_passthrough:alias"
        assert parse_alias_term(term) == ((line.alias_name, 1),)
        assert {
            "vendor_id": function.vendor_id,
            "product_id": function.product_id,
            "dev_type": str(function.dev_type),
        } in [dict(properties) for properties in table[line.alias_name].properties]


def test_every_function_is_there_and_only_what_one_passes_has_lines(tmp_path: Path) -> None:
    found = scanned(tmp_path, f"nodedevs: {LAB}")
    assert len(found) == len(list(LAB.glob("pci_*.xml")))
    with_lines = {address for address, function in found.items() if function.suggestion}
    assert with_lines == {
        *("0000:01:01.0", "0000:01:02.0", "0000:41:00.0", "0000:42:00.0", "0000:81:00.0"),
        *("0000:82:00.0", "0000:82:00.1", "0000:82:00.2"),
        *("0000:83:00.0", "0000:83:10.0", "0000:83:10.2", "0000:83:10.4"),
    }
    bridge = found["0000:40:00.0"]
    assert (bridge.class_name, bridge.driver, bridge.numa_node) == ("PCI bridge", "pcieport", 0)


def test_f20_the_other_members_of_the_group_are_named_before_a_boot_fails(tmp_path: Path) -> None:
    gpu = scanned(tmp_path, "hardware: [rtx-audio]")["0000:09:00.0"]
    assert [(member.address, member.ids, member.driver) for member in gpu.group_members] == [
        ("0000:09:00.1", "10de:22ba", "snd_hda_intel")
    ]
    (warning,) = gpu.warnings
    assert "0000:09:00.1 (Audio device, 10de:22ba)" in warning
    assert "host driver snd_hda_intel" in warning
    assert "driverctl set-override 0000:09:00.1 vfio-pci" in warning


@pytest.mark.parametrize("driver", ["vfio-pci", "pci-stub", None])
def test_f20_a_member_that_does_no_harm_is_no_warning(tmp_path: Path, driver: str | None) -> None:
    line = f", driver: {driver}" if driver else ""
    body = f"""
    devices:
      - {{address: "09:00.0", vendor_id: 10de, product_id: 2684, iommu_group: 7}}
      - {{address: "09:00.1", vendor_id: 10de, product_id: 22ba, iommu_group: 7{line}}}
    """
    assert scanned(tmp_path, body)["0000:09:00.0"].warnings == ()


def test_f20_a_bridge_in_the_group_is_no_warning(tmp_path: Path) -> None:
    warnings = scanned(tmp_path, f"nodedevs: {LAB}")["0000:01:01.0"].warnings
    assert len([warning for warning in warnings if "same IOMMU group" in warning]) == 1
    assert not any("0000:00:07.0" in warning for warning in warnings)


def test_what_can_not_be_given_has_no_lines_and_says_why(tmp_path: Path) -> None:
    body = """
    hardware: [connectx6]
    devices: [{address: "10000:e1:00.0", vendor_id: 144d, product_id: a80a}]
    """
    found = scanned(tmp_path, body)
    assert found["0000:a1:01.2"].suggestion is None
    assert "vDPA" in found["0000:a1:01.2"].warnings[0]
    assert found["10000:e1:00.0"].suggestion is None
    assert "more than four digits" in found["10000:e1:00.0"].warnings[0]
    assert any("enp161s0f0" in warning for warning in found["0000:a1:00.0"].warnings)
    assert any("4 VFs" in warning for warning in found["0000:a1:00.0"].warnings)


def test_a_scan_changes_nothing(tmp_path: Path) -> None:
    connection, files = opened(tmp_path, EVERYTHING)
    before = list(connection.node_devices())
    scan(before, files)
    assert list(connection.node_devices()) == before
    assert not (tmp_path / "sim" / "node1" / "state.json").exists()


def test_lines_that_somebody_has_to_decide_on_say_what(tmp_path: Path) -> None:
    body = """
    hardware: [connectx6, t4x4]
    devices: [{address: "0000:01:00.0", vendor_id: "8086", product_id: "1572", driver: i40e, interface: eno1}]
    """
    cautions = {
        address: function.suggestion.caution
        for address, function in scanned(tmp_path, body).items()
        if function.suggestion
    }
    assert cautions["0000:a1:00.0"] == "instead of its 4 VFs, not beside them"
    assert cautions["0000:a1:00.2"] is None
    assert cautions["0000:01:00.0"] == "only if the host can do without eno1"
    assert cautions["0000:2f:00.0"] is None

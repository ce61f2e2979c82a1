"""The fleet file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jetbridge.config.fleet import Fleet, expand_names, load_fleet, templates
from jetbridge.errors import InvalidFleet
from jetbridge.model.fleet import HYPERVISOR_CALLS, FleetHost, NumaSpec, PfSpec, vf_address
from jetbridge.virt.connection import HypervisorConnection

CASES = Path(__file__).parents[2] / "cases"

EXAMPLE = """
hosts:
  - name: gpu[001-004]
    numa: {cells: 2, cpus_per_cell: 16, threads_per_core: 2, memory_mb_per_cell: 65536, sockets: 2}
    hardware: [t4x4]
    devices:
      - {address: "0000:3b:00.0", vendor_id: "10de", product_id: "1eb8", numa_node: 0, iommu_group: 12, driver: vfio-pci}
      - {address: "0000:81:00.0", vendor_id: "8086", product_id: "1572", numa_node: 1, interface: ens1f0,
         pf: {vfs: 4, vf_product_id: "154c"}}
    nodedevs: documents
    config: {pci: {device_spec: [{vendor_id: "10de", product_id: "1eb8"}]}}
config:
  pci: {alias: [{name: GPU, vendor_id: "10de", product_id: "1eb8", device_type: type-PCI}], device_spec: []}
  filter_scheduler: {enabled_filters: [ComputeFilter, PciPassthroughFilter, NUMATopologyFilter]}
"""


def load(folder: Path, text: str) -> Fleet:
    (folder / "fleet.yaml").write_text(text)
    return load_fleet(folder / "fleet.yaml")


def one(folder: Path, text: str) -> FleetHost:
    (host,) = load(folder, text).hosts
    return host


def test_the_whole_example(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "computer.xml").write_text("<device><name>computer</name></device>")
    fleet = load(tmp_path, EXAMPLE)
    assert [host.name for host in fleet.hosts] == ["gpu001", "gpu002", "gpu003", "gpu004"]
    host = fleet.hosts[0]
    assert host.numa == NumaSpec(2, 16, 65536, 2, 2)
    assert (host.vcpus, host.memory_mb, host.disk_gb, host.networks) == (32, 131072, 1000, ("default",))
    assert host.nodedevs == str(tmp_path / "documents")
    assert [device.address for device in host.devices[-2:]] == ["0000:3b:00.0", "0000:81:00.0"]
    assert len(host.devices) == 6
    assert host.devices[-2].iommu_group == 12
    assert host.devices[-2].driver == "vfio-pci"
    assert host.devices[-1].pf == PfSpec(vfs=4, max_vfs=4, vf_product_id="154c")
    # A host's config replaces option by option.
    assert host.config["pci"]["device_spec"] == [{"vendor_id": "10de", "product_id": "1eb8"}]
    assert host.config["pci"]["alias"] == fleet.config["pci"]["alias"]
    assert fleet.config["pci"]["device_spec"] == []


def test_a_host_whose_documents_changed_is_another_value(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    document = tmp_path / "documents" / "computer.xml"
    document.write_text("<device><name>computer</name></device>")
    first, same = (one(tmp_path, "hosts: [{name: a, nodedevs: documents}]") for _ in range(2))
    assert first == same
    document.write_text("<device><name>Computer</name></device>")
    assert one(tmp_path, "hosts: [{name: a, nodedevs: documents}]") != first


def test_hosts_of_a_range_share_their_hardware(tmp_path: Path) -> None:
    first, second = load(tmp_path, "hosts: [{name: 'a[1-2]', hardware: [h100x8]}]").hosts
    assert first.devices is second.devices


@pytest.mark.parametrize("text", ["8086", "'8086'", "0x8086"])
def test_ids_stay_text_however_they_are_written(tmp_path: Path, text: str) -> None:
    host = one(
        tmp_path, f"hosts: [{{name: a, devices: [{{address: 0000:3b:00.0, vendor_id: {text}, product_id: 0010}}]}}]"
    )
    assert (host.devices[0].vendor_id, host.devices[0].product_id) == ("8086", "0010")


def test_scalars_in_config_stay_text(tmp_path: Path) -> None:
    fleet = load(
        tmp_path, "{hosts: [{name: a}], config: {pci: {device_spec: [{vendor_id: 8086, x: null, managed: no}]}}}"
    )
    assert fleet.config["pci"]["device_spec"] == [{"vendor_id": "8086", "x": None, "managed": "no"}]


def test_a_host_without_numa(tmp_path: Path) -> None:
    host = one(tmp_path, "hosts: [{name: a, vcpus: 8, memory_mb: 2048, hardware: [t4x4]}]")
    assert (host.numa, host.vcpus, host.memory_mb) == (None, 8, 2048)
    assert {device.numa_node for device in host.devices} == {None}


def test_a_machine_brings_its_numa_cells(tmp_path: Path) -> None:
    assert one(tmp_path, "hosts: [{name: a, hardware: [h100x8]}]").numa == templates()["h100x8"].numa
    assert one(tmp_path, "hosts: [{name: a, hardware: [h100x8], vcpus: 8}]").numa is None


def test_cards_for_two_nodes_fit_in_a_host_with_one(tmp_path: Path) -> None:
    host = one(tmp_path, "hosts: [{name: a, numa: {cpus_per_cell: 4, memory_mb_per_cell: 4096}, hardware: [t4x4]}]")
    assert {device.numa_node for device in host.devices} == {0}


def test_all_templates_fit_in_one_host(tmp_path: Path) -> None:
    host = one(tmp_path, f"hosts: [{{name: a, hardware: [{', '.join(templates())}]}}]")
    assert len(host.devices) == sum(len(template.devices) for template in templates().values())


def test_anchors_and_merge_keys(tmp_path: Path) -> None:
    text = "hosts: [&x {name: a, vcpus: 3}, {<<: *x, name: b}]"
    assert [(host.name, host.vcpus) for host in load(tmp_path, text).hosts] == [("a", 3), ("b", 3)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu[08-11]", ["gpu08", "gpu09", "gpu10", "gpu11"]),
        ("a[1-2]b[0-1]", ["a1b0", "a1b1", "a2b0", "a2b1"]),
        ("n[1,3-4].x", ["n1.x", "n3.x", "n4.x"]),
    ],
)
def test_names(pattern: str, names: list[str]) -> None:
    assert expand_names(pattern) == names


def test_simulate_calls_are_those_of_the_connection() -> None:
    calls = {name for name in vars(HypervisorConnection) if not name.startswith("_")}
    assert calls - set(HYPERVISOR_CALLS) == {"host", "close", "subscribe", "console_log_path", "disk_paths"}
    assert set(HYPERVISOR_CALLS) <= calls


@pytest.mark.parametrize(
    ("pf", "number", "offset", "address"),
    [
        ("0000:81:00.0", 0, 1, "0000:81:00.1"),
        ("0000:81:00.0", 6, 1, "0000:81:00.7"),
        ("0000:81:00.0", 7, 1, "0000:81:01.0"),
        ("0000:81:1f.7", 0, 1, "0000:82:00.0"),
        ("0000:81:00.0", 0, 128, "0000:81:10.0"),
        ("10000:ff:1f.6", 0, 1, "10000:ff:1f.7"),
        ("0000:ff:1f.7", 0, 1, None),
    ],
)
def test_vf_addresses_carry_into_slot_and_bus(pf: str, number: int, offset: int, address: str | None) -> None:
    assert vf_address(pf, number, offset) == address


@pytest.mark.parametrize(
    "case", yaml.safe_load((CASES / "fleet_refused.yaml").read_text()), ids=lambda c: c["file"][:60]
)
def test_refused(tmp_path: Path, case: dict[str, object]) -> None:
    with pytest.raises(InvalidFleet) as caught:
        load(tmp_path, str(case["file"]))
    message = str(caught.value)
    assert message.startswith(f"Fleet file {tmp_path / 'fleet.yaml'}: ")
    words = case["words"]
    assert isinstance(words, list)
    assert [word for word in words if str(word) not in message] == [], message


def test_files_that_are_no_text_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidFleet, match="No such file"):
        load_fleet(tmp_path / "fleet.yaml")
    (tmp_path / "fleet.yaml").write_bytes(b"hosts: \xff\xfe")
    with pytest.raises(InvalidFleet, match="not UTF-8"):
        load_fleet(tmp_path / "fleet.yaml")


KEYS = st.sampled_from(
    ["name", "numa", "devices", "address", "vendor_id", "product_id", "pf", "vfs", "config", "simulate", "fail", "delay",
     "start_domain", "hardware", "networks", "nodedevs", "vpd", "mdev_types", "vgpu_types", "hugepages", "cells", "vcpus",
     "cpus_per_cell", "memory_mb_per_cell", "disk_gb", "interface", "mac", "vdpa", "switch", "<<"]
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(),
        st.sampled_from(["0000:3b:00.0", "10de", "gpu[1-3]", "t4x4", "2", "0", "eth0", "52:54:00:00:00:01", "."]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.fixed_dictionaries({"hosts": st.lists(st.dictionaries(KEYS, VALUES), max_size=2)}), VALUES))
def test_any_yaml_is_a_fleet_or_refused(value: object) -> None:
    check(yaml.safe_dump(value, allow_unicode=True).encode())


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text(alphabet="hosts: [{}]&*a-\n'\"|>?!<,#%", max_size=60).map(str.encode)))
def test_any_bytes_are_a_fleet_or_refused(content: bytes) -> None:
    check(content)


def test_deep_nesting_is_refused() -> None:
    check(b"[" * 5000)
    check(b"a: " + b"[" * 100 + b"]" * 100)


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    check("\n".join(lines).encode())


def check(content: bytes) -> None:
    handle, name = tempfile.mkstemp(suffix=".yaml")
    try:
        os.write(handle, content)
        os.close(handle)
        try:
            said = load_fleet(Path(name)).path.name
        except InvalidFleet as error:
            said = str(error)
        assert Path(name).name in said
    finally:
        os.unlink(name)

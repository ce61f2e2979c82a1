"""Capabilities: CPUs, memory, cells; and CPU sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.errors import HypervisorError, InvalidConfiguration
from jetbridge.numa.topology import HostCell, PagePool
from jetbridge.virt.capabilities import HostResources, host_resources, parse_cpu_set
from tests.unit.virt.fleets import LAB, opened

NUMA = "numa: {cells: 2, cpus_per_cell: 4, threads_per_core: 2, memory_mb_per_cell: 4096, hugepages: {2048: 512}}"


def resources(folder: Path, body: str, dedicated: str | None = None, shared: str | None = None) -> HostResources:
    return host_resources(opened(folder, body)[0].capabilities(), dedicated, shared)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        (None, None),
        ("", None),
        ("  ", None),
        ("3", {3}),
        ("0-3,^2,8", {0, 1, 3, 8}),
        ("^2, 0 - 3", {0, 1, 3}),
        ("0-7,^4-5", {0, 1, 2, 3, 6, 7}),
    ],
)
def test_cpu_sets(text: str | None, cpus: set[int] | None) -> None:
    assert parse_cpu_set(text, "[compute]cpu_shared_set") == cpus


@pytest.mark.parametrize("text", ["a", "3-1", "1,,2", "^1", "0-1,^0-1", "1-2-3", "-1", "99999", "٣", "1;2"])
def test_wrong_cpu_sets_name_option_and_value(text: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        parse_cpu_set(text, "[compute]cpu_shared_set")
    assert f"[compute]cpu_shared_set={text}" in str(caught.value)


@given(st.text(alphabet="0123456789-^, x", max_size=12))
def test_any_text_is_a_cpu_set_or_refused(text: str) -> None:
    try:
        said = "option=" if parse_cpu_set(text, "option") else "blank"
    except InvalidConfiguration as error:
        said = str(error)
    assert "option=" in said or not text.strip()


def test_the_lab() -> None:
    found = host_resources((LAB / "capabilities.xml").read_text(), None, None)
    assert (found.vcpus, found.memory_mb) == (2, 1906 + 2014)
    assert found.topology is not None
    assert [(cell.id, cell.cpus, cell.socket) for cell in found.topology.cells] == [(0, {0}, 0), (1, {1}, 0)]
    assert found.topology.cells[0].pages[0] == PagePool(4, 487988)
    assert found.cpu_info["arch"] == "x86_64"


def test_simulated_cells(tmp_path: Path) -> None:
    found = resources(tmp_path, NUMA)
    assert (found.vcpus, found.memory_mb) == (8, 8192)
    assert found.topology is not None
    # The first threads of all cores come first, as Linux numbers them.
    assert found.topology.cells[1] == HostCell(
        id=1,
        cpus=frozenset({2, 3, 6, 7}),
        pinnable=frozenset({2, 3, 6, 7}),
        memory_mb=4096,
        siblings=(frozenset({2, 6}), frozenset({3, 7})),
        socket=1,
        pages=(PagePool(4, (4096 - 1024) * 256), PagePool(2048, 512), PagePool(1048576, 0)),
    )


def test_sockets_may_hold_several_cells_or_cells_several_sockets(tmp_path: Path) -> None:
    four = resources(tmp_path, "numa: {cells: 4, sockets: 2, cpus_per_cell: 2, memory_mb_per_cell: 1024}").topology
    assert four is not None
    assert [cell.socket for cell in four.cells] == [0, 0, 1, 1]
    one = resources(tmp_path, "numa: {cells: 1, sockets: 2, cpus_per_cell: 2, memory_mb_per_cell: 1024}").topology
    assert one is not None
    assert one.cells[0].socket is None


def test_a_host_without_numa_has_no_topology(tmp_path: Path) -> None:
    found = resources(tmp_path, "vcpus: 12\nmemory_mb: 3072")
    assert (found.vcpus, found.memory_mb, found.topology) == (12, 3072, None)


def test_the_capabilities_of_real_documents(tmp_path: Path) -> None:
    found = resources(tmp_path, f"nodedevs: {LAB}")
    assert found.topology is not None
    assert found.vcpus == 2


@pytest.mark.parametrize(
    ("dedicated", "shared", "pinnable", "cpus", "count"),
    [
        (None, None, {0, 1, 4, 5}, {0, 1, 4, 5}, 8),
        ("1,5", None, {1, 5}, set(), 2),
        (None, "0-3", set(), {0, 1}, 4),
        ("1,5", "0,4", {1, 5}, {0, 4}, 4),
    ],
)
def test_sets(
    tmp_path: Path, dedicated: str | None, shared: str | None, pinnable: set[int], cpus: set[int], count: int
) -> None:
    found = resources(tmp_path, NUMA, dedicated, shared)
    assert found.topology is not None
    cell = found.topology.cells[0]
    assert (cell.pinnable, cell.cpus, found.vcpus) == (pinnable, cpus, count)
    assert all(group <= pinnable | cpus for group in cell.siblings)


@pytest.mark.parametrize(
    ("dedicated", "shared", "words"),
    [("0-3", "3-4", "both have CPU 3"), ("8", None, "cpu_dedicated_set has CPU 8"), (None, "0-9", "CPUs are 0-7")],
)
def test_sets_that_can_not_be(tmp_path: Path, dedicated: str | None, shared: str | None, words: str) -> None:
    with pytest.raises(InvalidConfiguration, match=words):
        resources(tmp_path, NUMA, dedicated, shared)


@pytest.mark.parametrize(
    "document", ["", "<capabilities/>", "<capabilities><host><topology><cells><cell id='x'/></cells></topology></host></capabilities>"]
)  # fmt: skip
def test_documents_that_can_not_be_used(document: str) -> None:
    with pytest.raises(HypervisorError, match="capabilities document"):
        host_resources(document, None, None)

"""Guest topologies out of flavors and images."""

from __future__ import annotations

from typing import Any

import pytest

from jetbridge import errors
from jetbridge.numa.cpulist import format_cpu_list, parse_cpu_list
from jetbridge.numa.request import guest_topology
from tests.unit.numa.build import cases

CASES = cases("numa_request.yaml")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    def ask() -> Any:
        return guest_topology(case["vcpus"], case["memory_mb"], case.get("flavor", {}), case.get("image", {}))

    if "error" in case:
        with pytest.raises(errors.JetbridgeError) as caught:
            ask()
        assert [type(caught.value).__name__, str(caught.value)] == case["error"]
        return
    expected, topology = case["topology"], ask()
    if expected is None:
        assert topology is None
        return
    assert [
        [format_cpu_list(cell.cpus), format_cpu_list(cell.pinned_cpus), cell.memory_mb] for cell in topology.cells
    ] == expected["cells"]
    assert [cell.id for cell in topology.cells] == list(range(len(topology.cells)))
    assert {cell.page_request for cell in topology.cells} == {expected.get("page")}
    assert topology.cpu_policy == expected.get("cpu_policy")
    assert topology.thread_policy == expected.get("thread_policy")
    assert topology.emulator_isolate is expected.get("emulator_isolate", False)
    assert topology.emulator_share is expected.get("emulator_share", False)


def test_a_contradicting_image_is_forbidden_and_bad_values_are_bad_requests() -> None:
    assert errors.ImageNumaForbidden.http_status == 403
    assert errors.InvalidNumaRequest.http_status == 400


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("65535", {65535}),
        ("0", {0}),
        ("0-2", {0, 1, 2}),
        (" 1 , 3 ", {1, 3}),
        ("^1,0-2", {0, 2}),
        ("0-1,^0-1", set()),
        ("5-5", {5}),
    ],
)
def test_cpu_lists(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "2-1", "0,,1", "65536", "0-65536", "0-99999", "1.5", "٣"])
def test_what_is_no_cpu_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"CPU|range"):
        parse_cpu_list(text)


@pytest.mark.parametrize(("cpus", "text"), [(set(), ""), ({3}, "3"), ({0, 1, 2, 5, 7, 8}, "0-2,5,7-8")])
def test_shortest_form(cpus: set[int], text: str) -> None:
    assert format_cpu_list(frozenset(cpus)) == text

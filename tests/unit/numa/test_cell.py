"""One guest cell on one host cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jetbridge.numa.fit import ServerFit, fit_server
from jetbridge.numa.topology import CpuPolicy, GuestCell, GuestTopology, NumaLimits
from tests.unit.numa.build import cases, guest, host, host_cell

CASES = cases("numa_cells.yaml")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    limits = NumaLimits(*case["limits"]) if "limits" in case else None
    answer = fit_server(host(host_cell(0, **case["host"])), guest(**case["guest"]), (), (), limits=limits)
    right = case["right"]
    if "rule" in right:
        assert not isinstance(answer, ServerFit)
        (reason,) = answer.reasons
        assert (reason.rule, f"{reason.text} | {reason.hint}") == (right["rule"], right["says"])
        return
    assert isinstance(answer, ServerFit)
    assert answer.guest is not None
    (cell,) = answer.guest.cells
    assert cell.host_cell == 0
    assert [cell.pinning[cpu] for cpu in sorted(cell.pinned_cpus)] == right["pins"]
    assert cell.pinning.keys() == cell.pinned_cpus
    assert sorted(cell.reserved_cpus) == right.get("reserved", [])
    assert cell.page_size_kb == right.get("page")


def test_only_the_first_guest_cell_has_an_emulator_thread() -> None:
    answer = fit_server(
        host(host_cell(0, dedicated=3), host_cell(1, dedicated=2)), guest(2, dedicated=2, emulator_isolate=True), (), ()
    )
    assert isinstance(answer, ServerFit)
    assert answer.guest is not None
    assert [(cell.host_cell, len(cell.reserved_cpus)) for cell in answer.guest.cells] == [(0, 1), (1, 0)]


def test_siblings_that_are_not_for_pinning_don_t_make_a_core_of_two_threads() -> None:
    """Only one thread of each core is in cpu_dedicated_set: require has no core to use."""
    cell = host_cell(0, dedicated=4, threads=2)
    half = host(replace(cell, pinnable=frozenset({0, 2})))
    assert not isinstance(fit_server(half, guest(dedicated=2, thread_policy="require"), (), ()), ServerFit)
    assert isinstance(fit_server(half, guest(dedicated=2), (), ()), ServerFit)


def test_as_many_threads_on_each_core_before_single_cpus_in_order() -> None:
    """Three cores, of two of which one thread is pinned: three guest CPUs get a core each."""
    cell = replace(host_cell(0, dedicated=6, threads=2), pinned=frozenset({3, 5}))
    answer = fit_server(host(cell), guest(dedicated=3), (), ())
    assert isinstance(answer, ServerFit)
    assert answer.guest is not None
    assert answer.guest.cells[0].pinning == {0: 0, 1: 2, 2: 4}


def test_the_hint_is_of_the_cell_that_came_nearest_and_equal_wants_are_told_once() -> None:
    cells = host(host_cell(0, dedicated=4, pinned=3), host_cell(1, dedicated=4, pinned=1))
    answer = fit_server(cells, guest(dedicated=4), (), ())
    assert not isinstance(answer, ServerFit)
    assert [(reason.text, reason.hint) for reason in answer.reasons] == [
        ("a guest cell wants 4 free dedicated CPUs in one host cell", "the most free in one host cell is 3 of 4")
    ]


def test_of_cells_that_came_equally_near_the_first_gives_the_hint() -> None:
    cells = host(host_cell(0, dedicated=4, pinned=3), host_cell(1, dedicated=2, pinned=1))
    answer = fit_server(cells, guest(dedicated=3), (), ())
    assert not isinstance(answer, ServerFit)
    assert [reason.hint for reason in answer.reasons] == ["the most free in one host cell is 1 of 4"]


def test_where_all_cpus_are_for_both_pinned_ones_are_no_shared_ones() -> None:
    """A host without cpu_dedicated_set and cpu_shared_set."""
    undivided = replace(host_cell(0, dedicated=4, pinned=3), cpus=frozenset(range(4)))
    assert isinstance(fit_server(host(undivided), guest(shared=1), (), ()), ServerFit)
    assert not isinstance(fit_server(host(undivided), guest(shared=2), (), ()), ServerFit)
    one_left = replace(undivided, cpu_usage=2)
    for ratio, fits in ((2.0, False), (3.0, True)):
        answer = fit_server(host(one_left), guest(shared=1), (), (), limits=NumaLimits(ratio, 1.0))
        assert isinstance(answer, ServerFit) is fits


@pytest.mark.parametrize("pages", [(), [(4, 262144 + 256 * 255)]])
def test_memory_of_a_mixed_guest_is_not_overcommitted_in_a_cell_whose_cpus_are_all_shared(pages: Any) -> None:
    shared_only = GuestTopology(
        cells=(GuestCell(id=0, cpus=frozenset({0}), pinned_cpus=frozenset(), memory_mb=1024),),
        cpu_policy=CpuPolicy.MIXED,
    )
    floating = replace(shared_only, cpu_policy=CpuPolicy.SHARED)
    used = [(*pool, 256 * 256) for pool in pages]
    cell = host(host_cell(0, shared=2, dedicated=2, memory_mb=1279, memory_usage_mb=256, pages=used))
    assert not isinstance(fit_server(cell, shared_only, (), ()), ServerFit)
    assert isinstance(fit_server(cell, floating, (), ()), ServerFit)

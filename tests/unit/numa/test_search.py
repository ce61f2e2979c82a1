"""The bounded search against every permutation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetbridge.numa.cell import CellNeed, CellPlan, plan_cell
from jetbridge.numa.fit import ServerFit, fit_server
from jetbridge.numa.search import SearchBound, find_placement, matchable
from jetbridge.numa.topology import GuestCell, GuestTopology, HostCell, HostTopology
from jetbridge.numa.usage import with_usage
from jetbridge.pci.device import DeviceType
from jetbridge.pci.fit import AffinityCells, Choice, fit
from jetbridge.pci.pool import Pool, pool_order
from jetbridge.pci.request import NumaPolicy, PciRequest
from tests.unit.numa.build import gpu, guest, host_cell, wants

PRODUCTS = ("0001", "0002")
POLICIES = st.sampled_from([None, *NumaPolicy])


@st.composite
def hosts(draw: st.DrawFn) -> HostTopology:
    return HostTopology(
        tuple(
            host_cell(
                number,
                shared=draw(st.integers(0, 2)),
                memory_mb=draw(st.sampled_from([1024, 2048])),
                socket=draw(st.integers(0, 1)),
            )
            for number in range(draw(st.integers(1, 4)))
        )
    )


@st.composite
def guests(draw: st.DrawFn) -> GuestTopology:
    sizes = draw(st.lists(st.tuples(st.integers(1, 2), st.sampled_from([512, 1024, 2048])), min_size=1, max_size=3))
    cells, start = [], 0
    for number, (cpus, memory) in enumerate(sizes):
        cells.append(GuestCell(number, frozenset(range(start, start + cpus)), frozenset(), memory))
        start += cpus
    return GuestTopology(tuple(cells))


@st.composite
def pools(draw: st.DrawFn) -> tuple[Pool, ...]:
    """Plain devices, and cards of which a PF and VFs are free."""
    made: list[Pool] = []
    for bus in range(1, draw(st.integers(0, 5)) + 1):
        node = draw(st.sampled_from([None, 0, 1, 2, 3]))
        address, product = f"0000:{bus:02x}:00.0", draw(st.sampled_from(PRODUCTS))
        kind = draw(st.sampled_from(["plain", "plain", "vfs", "card"]))
        if kind == "plain":
            made.append(Pool("10de", product, node, DeviceType.PCI, address, 1))
        else:
            made.append(Pool("10de", product, node, DeviceType.VF, address, draw(st.integers(1, 3))))
        if kind == "card":
            made.append(Pool("10de", product, node, DeviceType.PF, address, 1))
    return tuple(sorted(made, key=pool_order))


@st.composite
def requests(draw: st.DrawFn) -> tuple[PciRequest, ...]:
    made = []
    for number in range(draw(st.integers(0, 3))):
        alternatives = draw(st.sets(st.sampled_from(PRODUCTS), min_size=1))
        extra = {"dev_type": "type-PF"} if draw(st.integers(0, 4)) == 0 else {}
        spec = tuple({"product_id": product, **extra} for product in sorted(alternatives))
        made.append(PciRequest(f"r{number}", draw(st.integers(1, 2)), spec, f"a{number}", numa_policy=draw(POLICIES)))
    return tuple(made)


def by_all_permutations(
    topology: HostTopology, asked: GuestTopology, free: Sequence[Pool], wanted: Sequence[PciRequest]
) -> bool:
    sockets = {cell.id: cell.socket for cell in topology.cells}

    def fits(cell: HostCell, guest_cell: GuestCell) -> bool:
        need = CellNeed(len(guest_cell.cpus), 0, 0, guest_cell.memory_mb, None, None, None)
        return isinstance(plan_cell(cell, need, None), CellPlan)

    return any(
        all(fits(cell, guest_cell) for cell, guest_cell in zip(order, asked.cells, strict=True))
        and isinstance(fit(free, wanted, AffinityCells(frozenset(cell.id for cell in order), sockets)), Choice)
        for order in itertools.permutations(topology.cells, len(asked.cells))
    )


@settings(max_examples=400, deadline=None)
@given(hosts(), guests(), pools(), requests(), st.booleans())
def test_the_answer_is_that_of_all_permutations(
    topology: HostTopology,
    asked: GuestTopology,
    free: tuple[Pool, ...],
    wanted: tuple[PciRequest, ...],
    packing: bool,
) -> None:
    answer = fit_server(topology, asked, free, wanted, packing=packing)
    assert isinstance(answer, ServerFit) == by_all_permutations(topology, asked, free, wanted)


@settings(max_examples=200, deadline=None)
@given(hosts(), guests(), pools(), requests())
def test_what_is_fitted_holds(
    topology: HostTopology, asked: GuestTopology, free: tuple[Pool, ...], wanted: tuple[PciRequest, ...]
) -> None:
    answer = fit_server(topology, asked, free, wanted)
    if not isinstance(answer, ServerFit):
        return
    assert answer.guest is not None
    chosen = [cell.host_cell for cell in answer.guest.cells]
    assert len(set(chosen)) == len(asked.cells)
    used = with_usage(topology, [answer.guest])
    assert sum(cell.cpu_usage for cell in used.cells) == sum(len(cell.cpus) for cell in asked.cells)
    for request in wanted:
        takes = answer.choice.takes[request.request_id]
        assert sum(take.count for take in takes) == request.count
        if request.policy is NumaPolicy.REQUIRED:
            assert all(take.pool.numa_node in chosen for take in takes)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(st.booleans(), min_size=width, max_size=width), max_size=4)
    )
)
def test_a_matching_is_found_when_there_is_one(rows: list[list[bool]]) -> None:
    width = len(rows[0]) if rows else 0
    expected = any(
        all(row[column] for row, column in zip(rows, order, strict=True))
        for order in itertools.permutations(range(width), len(rows))
    )
    assert matchable(rows, frozenset()) == expected


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 3), st.lists(st.integers(0, 2), min_size=3, max_size=6), st.sets(st.integers(0, 2), max_size=3))
def test_the_first_placement_in_order_is_taken(guests: int, classes: list[int], good: set[int]) -> None:
    """``accept`` looks at classes alone, as it must: the answer is then the first permutation that it takes."""

    def accept(placed: Sequence[int]) -> bool | None:
        return True if good <= {classes[host] for host in placed} else None

    fits = [[True] * len(classes)] * guests
    found = find_placement(fits, classes, accept)
    expected = next((order for order in itertools.permutations(range(len(classes)), guests) if accept(order)), None)
    assert (None if found is None else found[0]) == expected


def test_alike_hosts_are_looked_at_once() -> None:
    looked_at: list[tuple[int, ...]] = []

    def accept(placed: Sequence[int]) -> None:
        looked_at.append(tuple(placed))

    assert find_placement([[True] * 16] * 8, ["alike"] * 16, accept) is None
    assert looked_at == [(0, 1, 2, 3, 4, 5, 6, 7)]


def test_the_bound_is_raised_and_not_passed() -> None:
    with pytest.raises(SearchBound) as caught:
        find_placement([[True] * 6] * 3, list(range(6)), lambda placed: None, max_placements=5)
    assert caught.value.facts == {"placements": 5}
    assert find_placement([[True] * 6] * 3, list(range(6)), lambda placed: None, max_placements=20) is None


def test_groups_that_hold_the_same_can_change_places() -> None:
    looked_at: list[tuple[int, ...]] = []

    def accept(placed: Sequence[int]) -> None:
        looked_at.append(tuple(placed))

    sockets = [number // 2 for number in range(6)]
    assert find_placement([[True] * 6] * 2, ["alike"] * 6, accept, groups=sockets) is None
    assert looked_at == [(0, 1), (0, 2)]
    looked_at.clear()
    classes = ["gpu", "bare", "bare", "gpu", "bare", "bare"]
    assert find_placement([[True] * 6], classes, accept, groups=sockets) is None
    assert looked_at == [(0,), (1,), (4,)]


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=3, max_size=6),
    st.integers(1, 6),
)
def test_groups_leave_the_first_placement_as_it_is(guests: int, cells: list[tuple[int, int]], wanted: int) -> None:
    """``accept`` as the policy socket is: what the groups of the chosen hosts hold together has to be enough."""
    groups, devices = zip(*cells, strict=True)

    def accept(placed: Sequence[int]) -> bool | None:
        chosen = {groups[host] for host in placed}
        return True if sum(count for group, count in cells if group in chosen) >= wanted else None

    found = find_placement([[True] * len(cells)] * guests, devices, accept, groups=groups)
    expected = next((order for order in itertools.permutations(range(len(cells)), guests) if accept(order)), None)
    assert (None if found is None else found[0]) == expected


def test_f8_the_policy_socket_finds_the_one_way_over_many_sockets() -> None:
    """Sixteen devices on eight sockets of two cells: only one cell of each socket reaches them all."""
    topology = HostTopology(tuple(host_cell(number, dedicated=4, socket=number // 2) for number in range(16)))
    free = tuple(gpu(number, f"0000:{number + 1:02x}:00.0") for number in range(16))
    answer = fit_server(topology, guest(8, dedicated=1), free, [wants(16, "socket")])
    assert isinstance(answer, ServerFit)
    assert answer.guest is not None
    assert [cell.host_cell for cell in answer.guest.cells] == list(range(0, 16, 2))

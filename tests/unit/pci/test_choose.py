"""Which of the devices that fit are taken: near each other, and so that what is left stays whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetbridge.pci.choose import described
from jetbridge.pci.device import DeviceType, PciDevice, Status
from jetbridge.pci.fit import AffinityCells, Choice, Take, explained, fit, pick_devices
from jetbridge.pci.pool import Group, Level, pools_of
from jetbridge.pci.request import NumaPolicy, PciRequest
from tests.unit.pci.build import device, pool, request

TRIES = settings(derandomize=True, database=None, deadline=None, max_examples=300)


def gpu(
    bus: int, switch: str | None = None, fabric: str | None = None, *, used: bool = False, **facts: object
) -> PciDevice:
    places = {"switch": switch, "fabric": fabric}
    return device(
        f"0000:{bus:02x}:00.0",
        status=Status.ALLOCATED if used else Status.AVAILABLE,
        extra_info={name: value for name, value in places.items() if value},
        **facts,
    )


def wants(count: int, name: str = "gpu", **properties: str) -> PciRequest:
    return request({"alias": name, "count": count, "want": [properties]})


def taken(devices: Sequence[PciDevice], *requests: PciRequest, cells: AffinityCells | None = None) -> list[list[int]]:
    """By request, the buses of the devices it gets."""
    choice = fit(pools_of(devices), requests, cells)
    assert isinstance(choice, Choice), choice
    picked = pick_devices(devices, choice)
    return [[int(one.address[5:7], 16) for one in picked[each.request_id]] for each in requests]


def pairs(*used: int) -> list[PciDevice]:
    return [gpu(bus, f"switch {bus // 0x40}", used=bus in used) for bus in (0x41, 0x42, 0x81, 0x82)]


def test_f13_the_second_guest_gets_a_pair_of_one_switch() -> None:
    """Four GPUs on two switches: one goes, then two are wanted."""
    ((first,),) = taken(pairs(), wants(1))
    ((*second,),) = taken(pairs(first), wants(2))
    assert sorted(second) == ([0x81, 0x82] if first < 0x80 else [0x41, 0x42])


def test_f13_the_next_one_comes_from_the_broken_pair() -> None:
    assert taken(pairs(0x42), wants(1)) == [[0x41]]
    assert taken(pairs(0x81), wants(1)) == [[0x82]]


def test_two_requests_of_a_server_leave_the_other_pair_whole() -> None:
    assert taken(pairs(), wants(1, "a"), wants(1, "b")) == [[0x41], [0x42]]


def test_a_broken_group_before_a_whole_one_even_when_it_is_larger() -> None:
    """Of eight four are left, and a pair is whole: one more comes from the eight."""
    devices = [gpu(bus, "of two") for bus in (1, 2)] + [
        gpu(bus, "of eight", used=bus > 0x13) for bus in range(0x10, 0x18)
    ]
    assert taken(devices, wants(1)) == [[0x10]]
    assert taken(devices, wants(2)) == [[1, 2]]  # the pair is taken, not broken
    assert taken(devices, wants(3)) == [[0x10, 0x11, 0x12]]


def test_a_fabric_is_wider_than_a_switch_and_a_pair_of_one_switch_nearer_than_one_of_a_fabric() -> None:
    devices = [
        *(gpu(bus, f"s{bus // 2}", "first", used=bus in (1, 3)) for bus in range(4)),
        *(gpu(bus, f"s{bus // 2}", "second") for bus in range(4, 8)),
    ]
    assert taken(devices, wants(1)) == [[0]]  # of the fabric and the pair that are broken already
    assert taken(devices, wants(2)) == [[4, 5]]
    assert taken(devices, wants(4)) == [[4, 5, 6, 7]]
    assert taken(devices, wants(5)) == [[0, 4, 5, 6, 7]]


def test_a_fabric_holds_devices_together_where_nothing_else_does() -> None:
    assert taken([gpu(1, None, "a"), gpu(2, None, "b"), gpu(3, None, "b")], wants(2)) == [[2, 3]]


def test_the_group_in_which_more_of_them_are_near_comes_first() -> None:
    """Two nodes of which neither would be broken less: on the second the two are on one switch as well."""
    devices = [gpu(bus, f"s{bus}", numa_node=0) for bus in (1, 2, 3)] + [
        gpu(bus, "s", numa_node=1) for bus in (4, 5, 6)
    ]
    assert taken(devices, wants(2)) == [[4, 5]]
    assert taken(devices, wants(1)) == [[1]]  # one is near itself everywhere


def test_a_group_that_holds_fewer_is_not_near() -> None:
    """The pair on one switch of the first fabric is no help to a request for three."""
    devices = [
        *(gpu(bus, f"s{bus // 2}", "first") for bus in range(4)),
        *(gpu(bus, "s", "second") for bus in (8, 9, 10)),
        gpu(11, "t", "second"),
    ]
    assert taken(devices, wants(3)) == [[8, 9, 10]]


def test_near_on_two_levels_before_near_on_one() -> None:
    """Both fabrics have a node of three; on the second they share a switch, too."""
    devices = [
        *(gpu(bus, f"s{bus}", "first", numa_node=0) for bus in range(3)),
        gpu(3, "s3", "first", numa_node=1),
        *(gpu(bus, "s4", "second", numa_node=2) for bus in range(4, 7)),
        gpu(7, "s7", "second", numa_node=3),
    ]
    assert taken(devices, wants(3)) == [[4, 5, 6]]


def test_a_switch_across_nodes_is_near_although_no_node_holds_them() -> None:
    """Each node of each fabric has one device; those of the second fabric share a switch."""
    devices = [
        *(gpu(bus, f"s{bus}", "first", numa_node=bus) for bus in range(2)),
        gpu(2, "s2", "first", numa_node=2),
        *(gpu(bus, "s4", "second", numa_node=bus) for bus in range(4, 6)),
        gpu(6, "s6", "second", numa_node=6),
    ]
    assert taken(devices, wants(2)) == [[4, 5]]


def test_one_device_may_be_of_no_group_where_several_would_not_be_together() -> None:
    devices = [gpu(1), gpu(2), *(gpu(bus, "s") for bus in (3, 4))]
    assert taken(devices, wants(1)) == [[1]]
    assert taken(devices, wants(2)) == [[3, 4]]
    assert taken(devices, wants(3)) == [[1, 3, 4]]


def test_a_group_is_whole_when_none_of_any_kind_is_given_away() -> None:
    """Both switches have two free devices of two kinds; the first had a third one, which a guest has."""
    devices = [
        gpu(1, "s"),
        gpu(2, "s", product_id="1eb9"),
        gpu(3, "t"),
        gpu(4, "t", product_id="1eb9"),
        gpu(5, "t", product_id="1eb9", used=True),
    ]
    assert taken(devices, wants(1)) == [[3]]


def test_devices_of_a_kind_that_is_not_wanted_break_no_group() -> None:
    """A network card on the first switch is given away: its GPUs are whole all the same."""
    devices = [
        gpu(1, "s"),
        gpu(2, "s"),
        gpu(3, "s", product_id="101d", used=True),
        *(gpu(bus, "t", used=bus == 7) for bus in (4, 5, 6, 7)),
    ]
    assert taken(devices, wants(1, product_id="1eb8")) == [[4]]


def test_no_test_of_nearness_for_the_functions_of_a_card() -> None:
    """Two nodes of four functions: to be of one card makes them no faster, so that the first stands."""

    def vf(bus: int, number: int, node: int) -> PciDevice:
        parent = f"0000:{bus:02x}:00.0"
        return device(f"0000:{bus:02x}:00.{number}", DeviceType.VF, parent_addr=parent, numa_node=node)

    devices = [vf(bus, 1, 0) for bus in range(0x10, 0x14)] + [vf(0x20, number, 1) for number in range(1, 5)]
    assert taken(devices, wants(2)) == [[0x10, 0x11]]


def test_no_more_groups_than_needed() -> None:
    devices = [gpu(bus, f"s{bus >> 4}") for bus in (0x10, 0x11, 0x20, 0x21, 0x22, 0x30)]
    assert taken(devices, wants(4)) == [[0x20, 0x21, 0x22, 0x30]]
    assert taken(devices, wants(5)) == [[0x10, 0x11, 0x20, 0x21, 0x22]]


def test_nodes_are_kept_whole_too() -> None:
    devices = [gpu(bus, numa_node=bus // 4, used=bus == 7) for bus in range(8)]
    assert taken(devices, wants(1)) == [[4]]
    assert taken(devices, wants(2)) == [[4, 5]]


def test_vfs_come_from_the_card_that_is_broken_already() -> None:
    def vf(bus: int, number: int, *, used: bool = False) -> PciDevice:
        return device(
            f"0000:{bus:02x}:00.{number}",
            DeviceType.VF,
            parent_addr=f"0000:{bus:02x}:00.0",
            status=Status.ALLOCATED if used else Status.AVAILABLE,
        )

    devices = [vf(bus, number, used=(bus, number) == (0x20, 1)) for bus in (0x10, 0x20) for number in range(1, 5)]
    assert taken(devices, wants(1)) == [[0x20]]
    assert taken(devices, wants(4)) == [[0x10] * 4]


def test_tags_and_the_needs_of_later_requests_come_before_groups() -> None:
    devices = [gpu(1, "a", pool_tags={"x": "1"}), gpu(2, "a", pool_tags={"x": "1"}), gpu(3, "b"), gpu(4, "c")]
    assert taken(devices, wants(2)) == [[3, 4]]
    plain = [gpu(1, "a"), gpu(2, "a", product_id="1eb9"), gpu(3, "b"), gpu(4, "b")]
    assert taken(plain, wants(1, "any"), wants(1, "rare", product_id="1eb9")) == [[1], [2]]


def test_where_the_preferred_ones_fail_a_later_request_the_first_ones_are_tried() -> None:
    """The smaller card's VF is preferred, and the second request wants that card whole."""

    def card(bus: int, vfs: int) -> list[PciDevice]:
        pf = f"0000:{bus:02x}:00.0"
        functions = [device(f"0000:{bus:02x}:00.{at}", DeviceType.VF, parent_addr=pf) for at in range(1, vfs + 1)]
        return [device(pf, DeviceType.PF, product_id=f"{bus:04x}"), *functions]

    devices = [*card(0x10, 3), *card(0x20, 2)]
    vf, pf = wants(1, "vf", product_id="1eb8"), wants(1, "pf", product_id="0020", dev_type="type-PF")
    assert taken(devices, vf) == [[0x20]]
    assert taken(devices, vf, pf) == [[0x10], [0x20]]


def test_policy_first() -> None:
    """A pair of one switch is on the wrong node: preferred takes what is near the guest."""
    devices = [gpu(1, "a", numa_node=1), gpu(2, "a", numa_node=1), gpu(3, "b", numa_node=0), gpu(4, "c", numa_node=0)]
    near = AffinityCells(frozenset({0}))
    preferred = replace(wants(2), numa_policy=NumaPolicy.PREFERRED)
    assert taken(devices, preferred, cells=near) == [[3, 4]]
    assert taken(devices, replace(preferred, count=3), cells=near) == [[3, 4, 1]]


def test_policy_preferred_uses_up_what_is_near_the_guest_before_a_group_far_away() -> None:
    """Three on one far node would be together; those on the guest's node and of unknown node are taken all the same."""
    far = [gpu(bus, numa_node=1) for bus in (4, 5, 6)]
    preferred = replace(wants(3), numa_policy=NumaPolicy.PREFERRED)
    near = AffinityCells(frozenset({0}))
    assert taken([gpu(1, numa_node=0), *far], preferred, cells=near) == [[1, 4, 5]]
    assert taken([gpu(1), *far], preferred, cells=near) == [[1, 4, 5]]


@pytest.mark.parametrize(
    ("used", "count", "said"),
    [
        ((), 2, "gpu gets 0000:41:00.0, 0000:42:00.0 (2 of 2 on PCIe switch switch 1)"),
        ((0x42,), 1, "gpu gets 0000:41:00.0 (1 of 2 on PCIe switch switch 1)"),
        ((), 3, "gpu gets 0000:41:00.0, 0000:42:00.0, 0000:81:00.0 (no group holds 3)"),
    ],
)
def test_the_choice_is_told(used: tuple[int, ...], count: int, said: str) -> None:
    choice = fit(pools_of(pairs(*used)), [wants(count)])
    assert isinstance(choice, Choice)
    assert explained([wants(count)], choice) == said


@pytest.mark.parametrize(
    ("groups", "took", "said"),
    [
        ([()], 2, "2 of 0000:17:00.0 (no group holds 2)"),
        ([()], 1, "1 of 0000:17:00.0"),
        ([(Group(Level.CARD, "0000:17:00.0", 2),)], 1, "1 of 0000:17:00.0 (1 of 2 on card 0000:17:00.0)"),
        ([(Group(Level.CARD, "0000:17:00.0", 1),)], 1, "1 of 0000:17:00.0"),
        ([(Group(Level.NODE, "1", 8),)] * 2, 1, "1 of 0000:17:00.0, 1 of 0000:18:00.0 (2 of 8 on NUMA node 1)"),
        ([(Group(Level.FABRIC, "hive", 8), Group(Level.NODE, "1", 4))], 2, "2 of 0000:17:00.0 (2 of 4 on NUMA node 1)"),
        (
            [(Group(Level.FABRIC, "hive", 8), Group(Level.NODE, node, 4)) for node in "01"],
            1,
            "1 of 0000:17:00.0, 1 of 0000:18:00.0 (2 of 8 on fabric hive)",
        ),
    ],
)
def test_what_devices_have_in_common_is_told_by_the_narrowest_group(
    groups: Sequence[tuple[Group, ...]], took: int, said: str
) -> None:
    pools = [
        replace(pool(f"10de:26ba type-VF 0000:{0x17 + at:02x}:00.0 count=2"), groups=of) for at, of in enumerate(groups)
    ]
    assert described([(each, took) for each in pools]) == said


def test_pools_know_their_groups_and_count_what_is_given_away() -> None:
    first, *_ = pools_of(pairs(0x42))
    assert first.groups == (Group(Level.SWITCH, "switch 1", 2),)
    (vfs,) = pools_of(
        device(f"0000:81:00.{at}", DeviceType.VF, parent_addr="0000:81:00.0", numa_node=1, status=status)
        for at, status in enumerate((Status.AVAILABLE, Status.CLAIMED, Status.AVAILABLE), start=1)
    )
    assert vfs.groups == (Group(Level.NODE, "1", 3), Group(Level.CARD, "0000:81:00.0", 3))


def test_a_pool_whose_functions_disagree_is_of_the_switch_that_comes_first_in_any_order() -> None:
    functions = [
        device(f"0000:81:00.{at}", DeviceType.VF, parent_addr="0000:81:00.0", extra_info=told)
        for at, told in enumerate(({"switch": "b"}, {}, {"switch": "a"}), start=1)
    ]
    for order in (functions, functions[::-1]):
        (vfs,) = pools_of(order)
        assert Group(Level.SWITCH, "a", 3) in vfs.groups


# --- what holds for every host -----------------------------------------------------------------

hosts = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans()), min_size=1, max_size=10).map(
    lambda drawn: [gpu(bus, switch, used=used) for bus, (switch, used) in enumerate(drawn)]
)


def free_by_switch(devices: Sequence[PciDevice]) -> Counter[str | None]:
    return Counter(one.extra_info.get("switch") for one in devices if one.status is Status.AVAILABLE)


@TRIES
@given(hosts, st.integers(1, 6))
def test_the_smallest_group_that_holds_them_and_no_whole_one_broken_without_need(
    devices: list[PciDevice], count: int
) -> None:
    free = free_by_switch(devices)
    if sum(free.values()) < count:
        return
    (buses,) = taken(devices, wants(count))
    assert len(set(buses)) == count
    used = Counter(devices[bus].extra_info.get("switch") for bus in buses)
    sizes = Counter(one.extra_info.get("switch") for one in devices)
    holding = {switch: number for switch, number in free.items() if switch is not None and number >= count}
    if holding and count > 1:
        assert len(used) == 1
        (switch,) = used
        broken = [number for name, number in holding.items() if number < sizes[name] or number == count]
        assert free[switch] == min(broken or holding.values())
    broken_by_us = [name for name in used if name is not None and used[name] < free[name] == sizes[name]]
    assert len(broken_by_us) <= 1
    if broken_by_us and count == 1:
        assert all(number == 0 or number == sizes[name] > 1 for name, number in free.items() if name is not None)
        assert free[None] == 0


@TRIES
@given(hosts, st.integers(1, 6), st.randoms(use_true_random=False))
def test_the_choice_depends_on_the_devices_alone_not_on_their_order(
    devices: list[PciDevice], count: int, random: object
) -> None:
    if sum(free_by_switch(devices).values()) < count:
        return
    shuffled = list(devices)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fit(pools_of(devices), [wants(count)]) == fit(pools_of(shuffled), [wants(count)])


@TRIES
@given(hosts, st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_groups_never_decide_whether_it_fits(devices: list[PciDevice], counts: list[int]) -> None:
    requests = [wants(count, f"r{at}") for at, count in enumerate(counts)]
    answer = fit(pools_of(devices), requests)
    assert isinstance(answer, Choice) == (sum(counts) <= sum(free_by_switch(devices).values()))
    if isinstance(answer, Choice):
        plain: list[Take] = [take for takes in answer.takes.values() for take in takes]
        assert all(take.count <= take.pool.count for take in plain)

from __future__ import annotations

from typing import Any

import pytest

from jetbridge.errors import PciDeviceRequestFailed
from jetbridge.pci.device import Condition, DeviceType, Status
from jetbridge.pci.fit import AffinityCells, Choice, Refusal, Take, acceptable, fit, pick_devices
from jetbridge.pci.pool import pool_order, pools_of
from jetbridge.pci.request import PciRequest, ProviderChoice
from tests.unit.pci.build import cases, device, pool, request


@pytest.mark.parametrize("case", cases("pci_fit.yaml"))
def test_fit(case: dict[str, Any]) -> None:
    pools = [pool(text) for text in case["pools"]]
    cells = AffinityCells(frozenset(case["cells"]), case.get("sockets", {})) if "cells" in case else None
    answer = fit(pools, [request(one) for one in case["requests"]], cells, _providers(case))
    if "takes" in case:
        assert isinstance(answer, Choice), answer
        told = {
            key: [f"{take.pool.address} {take.pool.dev_type} x{take.count}" for take in takes]
            for key, takes in answer.takes.items()
        }
        assert told == case["takes"]
        assert all(take.pool in pools for takes in answer.takes.values() for take in takes)
    else:
        assert isinstance(answer, Refusal), answer
        first, *others = answer.reasons
        for name, value in case["refused"].items():
            found = [reason.rule for reason in others] if name == "earlier" else getattr(first, name)
            assert found == value, name


def _providers(case: dict[str, Any]) -> ProviderChoice | None:
    if not case.keys() & {"providers", "allowed"}:
        return None
    return ProviderChoice(
        by_request={key: tuple(value) for key, value in case.get("providers", {}).items()},
        allowed={key: frozenset(value) for key, value in case.get("allowed", {}).items()},
        apart=case.get("apart", False),
    )


@pytest.mark.parametrize(("count", "buses"), [(1, [17]), (2, [17, 18]), (3, [17, 18, 19]), (4, None)])
def test_far_devices_are_acceptable_to_policy_preferred_only_when_the_others_are_too_few(
    count: int, buses: list[int] | None
) -> None:
    pools = [
        pool(f"10de:1eb8 type-PCI 0000:{at}:00.0 {node}") for at, node in ((17, "node=0"), (18, ""), (19, "node=1"))
    ]
    wanted = request({"alias": "g", "count": count, "policy": "preferred", "want": [{}]})
    found = acceptable(pools, wanted, AffinityCells(frozenset({0})))
    assert (None if found is None else [int(each.address[5:7]) for each in found]) == buses


def test_reasons_of_earlier_steps_have_their_counts() -> None:
    pools = [
        pool("10de:2330 type-PF 0000:17:00.0 count=2"),
        pool("10de:2330 type-PCI 0000:18:00.0 remote_managed=true"),
    ]
    answer = fit(pools, [request({"alias": "H100", "want": [{"product_id": "2330"}]})])
    assert isinstance(answer, Refusal)
    assert answer.reasons[0].rule == "pci.remote_managed"
    assert answer.reasons[1].text == "2 devices match the ids but are type-PF"
    assert (answer.reasons[1].before, answer.reasons[1].after) == (3, 1)


def test_f15_devices_of_other_kinds_are_no_reason() -> None:
    pools = [pool("10de:2330 type-PF 0000:17:00.0"), pool("8086:1572 type-PCI 0000:18:00.0")]
    answer = fit(pools, [request({"alias": "H100", "want": [{"product_id": "2330"}]})])
    assert isinstance(answer, Refusal)
    [reason] = answer.reasons
    assert (reason.text, reason.hint) == (
        "1 device matches the ids but is type-PF",
        "set device_type to type-PF in the alias",
    )


def test_a_request_without_alias_and_port_is_called_by_its_id() -> None:
    answer = fit([], [PciRequest(request_id="r7", count=1, spec=({},))])
    assert isinstance(answer, Refusal)
    assert answer.reasons[0].request == "r7"


def test_the_most_frequent_near_miss_is_told() -> None:
    pools = [
        pool("10de:1111 type-PCI 0000:17:00.0"),
        pool("10df:1eb8 type-VF 0000:18:00.0 count=2"),
        pool("10de:2222 type-PCI 0000:19:00.0"),
    ]
    answer = fit(pools, [request({"alias": "GPU", "want": [{"vendor_id": "10de", "product_id": "1eb8"}]})])
    assert isinstance(answer, Refusal)
    assert (
        answer.reasons[0].hint
        == "2 free devices differ only in vendor_id: 10df instead of 10de; compare it with the alias"
    )


def test_equal_near_misses_are_told_in_a_fixed_order() -> None:
    pools = [pool("10de:2222 type-PCI 0000:17:00.0"), pool("10de:1111 type-PCI 0000:18:00.0")]
    wanted = [request({"alias": "GPU", "want": [{"vendor_id": "10de", "product_id": "1eb8"}]})]
    answers = [fit(pools, wanted), fit(pools[::-1], wanted)]
    hints = {answer.reasons[0].hint for answer in answers if isinstance(answer, Refusal)}
    assert hints == {"1 free device differs only in product_id: 1111 instead of 1eb8; compare it with the alias"}


def test_devices_are_taken_from_the_highest_address() -> None:
    vfs = [device(f"0000:3b:00.{n}", DeviceType.VF, parent_addr="0000:3b:00.0") for n in (2, 4, 1, 3)]
    busy = device("0000:3b:00.5", DeviceType.VF, parent_addr="0000:3b:00.0", status=Status.CLAIMED)
    unknown = device("0000:3b:00.6", DeviceType.VF, parent_addr="0000:3b:00.0", condition=Condition.UNKNOWN)
    devices = [*vfs, busy, unknown, device("0000:17:00.0", vendor_id="8086")]
    wanted = [
        request({"alias": "a", "count": 2, "want": [{"vendor_id": "10de"}]}),
        request({"alias": "n", "want": [{"vendor_id": "8086"}]}),
        request({"alias": "b", "count": 1, "want": [{"vendor_id": "10de"}]}),
    ]
    choice = fit(pools_of(devices), wanted)
    assert isinstance(choice, Choice)
    picked = pick_devices(devices, choice)
    assert {key: [one.address for one in found] for key, found in picked.items()} == {
        "r-a": ["0000:3b:00.4", "0000:3b:00.3"],
        "r-n": ["0000:17:00.0"],
        "r-b": ["0000:3b:00.2"],
    }


def test_a_choice_that_the_devices_dont_have_fails() -> None:
    vf = device("0000:3b:00.1", DeviceType.VF, parent_addr="0000:3b:00.0")
    (own,) = pools_of([vf])
    with pytest.raises(PciDeviceRequestFailed, match="r1"):
        pick_devices([vf], Choice({"r1": (Take(own, 2),)}))
    with pytest.raises(PciDeviceRequestFailed, match="r2"):
        pick_devices([], Choice({"r2": (Take(own, 1),)}))


def test_pools_make_one_of_equal_free_devices() -> None:
    vfs = [device(f"0000:3b:00.{n}", DeviceType.VF, parent_addr="0000:3b:00.0", numa_node=1) for n in range(1, 4)]
    pf = device("0000:3b:00.0", DeviceType.PF, pool_tags={"trusted": "true", "physical_network": None})
    cards = [device("0000:18:00.0"), device("0000:17:00.0", extra_info={"rp_uuid": "p1", "driver": "x"})]
    other = device("0000:3b:01.0", DeviceType.VF, parent_addr="0000:3b:00.0", extra_info={"parent_ifname": "ens1"})
    assert pools_of([*vfs, pf, *cards, other]) == (
        pool("10de:1eb8 type-PCI 0000:18:00.0"),
        pool("10de:1eb8 type-VF 0000:3b:00.0 node=1 count=3"),
        pool("10de:1eb8 type-PCI 0000:17:00.0 rp=p1"),
        pool("10de:1eb8 type-VF 0000:3b:00.0 ifname=ens1"),
        pool("10de:1eb8 type-PF 0000:3b:00.0 trusted=true physical_network=null"),
    )


@pytest.mark.parametrize(
    "different",
    [
        {"vendor_id": "1002"},
        {"product_id": "74a1"},
        {"numa_node": 0},
        {"dev_type": DeviceType.VDPA},
        {"parent_addr": "0000:5e:00.0"},
        {"pool_tags": {"a": "b"}},
        {"extra_info": {"parent_ifname": "ens1"}},
        {"extra_info": {"rp_uuid": "p1"}},
    ],
)
def test_what_splits_pools(different: dict[str, Any]) -> None:
    common = {"dev_type": DeviceType.VF, "parent_addr": "0000:3b:00.0"}
    one, other = device("0000:3b:00.1", **common), device("0000:3b:00.2", **{**common, **different})
    assert len(pools_of([one, other])) == 2


@pytest.mark.parametrize(
    "alike",
    [
        {"resource_class": "R", "traits": "T"},
        {"label": "x", "serial": "y", "managed": False},
        {"extra_info": {"driver": "vfio-pci"}},
    ],
)
def test_what_doesnt_split_pools(alike: dict[str, Any]) -> None:
    common = {"dev_type": DeviceType.VF, "parent_addr": "0000:3b:00.0"}
    one, other = device("0000:3b:00.1", **common), device("0000:3b:00.2", **common, **alike)
    assert [found.count for found in pools_of([one, other])] == [2]


def test_only_free_devices_are_offered() -> None:
    offered = [
        (status, condition)
        for status in Status
        for condition in Condition
        if pools_of([device("0000:17:00.0", status=status, condition=condition)])
    ]
    assert offered == [(Status.AVAILABLE, Condition.OK)]


def test_pools_with_fewer_tags_come_first() -> None:
    ordered = [
        pool("10de:1eb8 type-PCI 0000:18:00.0"),
        pool("10de:1111 type-VF 0000:17:00.0 a=1"),
        pool("10de:1eb8 type-PF 0000:17:00.0 a=1"),
        pool("10de:1eb8 type-VF 0000:17:00.0 a=1"),
        pool("10de:1eb8 type-VF 0000:17:00.0 a=1 node=0"),
        pool("10de:1eb8 type-VF 0000:17:00.0 a=1 node=1"),
        pool("10df:1eb8 type-VF 0000:17:00.0 a=1"),
        pool("10de:1eb8 type-VF 0000:17:00.0 a=2"),
        pool("10de:1eb8 type-PCI 0000:16:00.0 a=1 rp=p1"),
        pool("10de:1eb8 type-PCI 0000:16:00.0 a=1 rp=p2"),
        pool("10de:1eb8 type-PCI 0000:16:00.0 a=1 ifname=e1"),
        pool("10de:1eb8 type-PCI 0000:16:00.0 a=1 ifname=e2"),
        pool("10de:1eb8 type-PCI 0000:19:00.0 b=1 a=1"),
        pool("10de:1eb8 type-PCI 0000:19:00.0 a=1 b=2"),
        pool("10de:1eb8 type-PCI 0000:19:00.0 a=1 b=null"),
        pool("10de:1eb8 type-PCI 0000:15:00.0 a=1 rp=p1 ifname=e"),
    ]
    set_aside = ordered[::-1]
    assert sorted(set_aside, key=pool_order) == ordered


def test_free_devices_whose_class_is_not_known_are_not_said_to_match_an_alias_of_a_class() -> None:
    pools = [pool("10de:1eb8 type-PCI 0000:17:00.0"), pool("10de:2235 type-PCI 0000:18:00.0")]
    by_class = {"alias": "g", "count": 3, "want": [{"resource_class": "A"}]}
    refused = fit(pools, [request(by_class)])
    assert isinstance(refused, Refusal)
    assert refused.reasons[0].text == "the host has 2 free devices of any resource class, 3 of A wanted for g"

    refused = fit(pools, [request({**by_class, "count": 2})], None, ProviderChoice(allowed={"r-g": frozenset()}))
    assert isinstance(refused, Refusal)
    assert refused.reasons[0].text == "0 devices of A are free in Placement, 2 wanted for g"

    both = {"alias": "g", "count": 1, "want": [{"resource_class": "A", "vendor_id": "10de", "product_id": "1eb9"}]}
    refused = fit(pools, [request(both)])
    assert isinstance(refused, Refusal)
    assert refused.reasons[0].hint is None

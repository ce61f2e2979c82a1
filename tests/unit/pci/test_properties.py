"""What holds for every history of every host, tried on many."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from jetbridge.errors import JetbridgeError
from jetbridge.pci.device import Condition, DeviceType, PciDevice, Status, allocate, claim, free, remove
from jetbridge.pci.fit import AffinityCells, Choice, Refusal, fit, pick_devices
from jetbridge.pci.pool import pools_of
from jetbridge.pci.request import NumaPolicy, PciRequest
from jetbridge.pci.sync import after_free, synchronise
from tests.unit.pci.build import by_address, device, report, specs

TRIES = settings(derandomize=True, database=None, deadline=None, max_examples=200)
LINES = specs('{"vendor_id":"10de"}')
SERVERS = ("A", "B")
REPORTS = [
    report("0000:17:00.0", "10de:1eb8", "type-PCI"),
    report("0000:3b:00.0", "10de:26b9", "type-PF"),
    report("0000:3b:00.1", "10de:26ba", "type-VF", parent_addr="0000:3b:00.0"),
    report("0000:3b:00.2", "10de:26ba", "vdpa", parent_addr="0000:3b:00.0"),
    report("0000:5e:00.0", "10de:26b9", "type-PF"),
    report("0000:5e:00.1", "10de:26ba", "type-VF", parent_addr="0000:5e:00.0"),
]
ADDRESSES = [one["address"] for one in REPORTS]

operations = st.one_of(
    st.tuples(st.sampled_from(["claim", "allocate", "free"]), st.sampled_from(ADDRESSES), st.sampled_from(SERVERS)),
    st.tuples(st.just("remove"), st.sampled_from(ADDRESSES), st.none()),
    st.tuples(st.just("sync"), st.sets(st.integers(0, len(REPORTS) - 1)), st.none()),
)


@TRIES
@given(st.lists(operations, max_size=25))
def test_one_owner_per_device_and_never_a_pf_with_its_vfs(history: list[tuple[str, object, str | None]]) -> None:
    devices = by_address(*synchronise([], REPORTS, LINES, 7, str).created)
    owners: dict[str, str] = {}
    for action, subject, server in history:
        before = dict(devices)
        try:
            changed = _apply(devices, action, subject, server)
        except JetbridgeError:
            assert devices == before, "a refusal leaves everything as it was"
            continue
        if action in ("claim", "allocate"):
            assert owners.get(str(subject), server) == server, "a device is never taken from its owner"
            owners[str(subject)] = str(server)
        elif action == "free":
            assert owners.pop(str(subject)) == server
        devices.update(changed)
        devices = {address: one for address, one in devices.items() if one.status is not Status.REMOVED}
        _check(devices, owners)


def _apply(devices: dict[str, PciDevice], action: str, subject: object, server: str | None) -> dict[str, PciDevice]:
    if action == "sync":
        assert isinstance(subject, set)
        reports = [REPORTS[index] for index in subject]
        return by_address(*synchronise(devices.values(), reports, LINES, 7, str).changed)
    address = str(subject)
    if action == "free":
        changed = free(devices, address, server)
        return {**changed, **after_free({**devices, **changed}, [address], LINES)}
    if action == "remove":
        return remove(devices, address)
    return (claim if action == "claim" else allocate)(devices, address, str(server))


def _check(devices: dict[str, PciDevice], owners: dict[str, str]) -> None:
    assert {address: one.instance_uuid for address, one in devices.items() if one.owned} == owners
    for one in devices.values():
        free_or_not = [one.status is Status.AVAILABLE, one.owned, one.blocked]
        assert free_or_not.count(True) == 1, "free + owned + blocked = all"
        assert (one.instance_uuid is not None) == one.owned
        parent = devices.get(one.parent_addr or "")
        if parent is not None:
            assert not (one.owned and parent.owned), "a PF and its VF are never both given"
            assert not (one.owned and parent.status is Status.AVAILABLE), "nor offered"
            assert not (parent.owned and one.status is Status.AVAILABLE), "nor offered"


devices_of_a_host = st.lists(
    st.tuples(
        st.sampled_from(["10de:26b9", "10de:26ba"]),
        st.sampled_from([None, 0, 1]),
        st.sampled_from(["", "1", "2"]),
        st.booleans(),
    ),
    max_size=8,
)
requests_of_a_server = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sets(st.sampled_from(["26b9 type-PF", "26ba type-VF", "26b9 -", "26ba -"]), min_size=1, max_size=2),
        st.sampled_from(list(NumaPolicy)),
    ),
    min_size=1,
    max_size=3,
)


def _host(shape: list[tuple[str, int | None, str, bool]]) -> list[PciDevice]:
    """Cards 1 and 2 are PFs, of which any number of VFs may be there; devices without card are plain functions."""
    found: dict[str, PciDevice] = {}
    for position, (ids, node, card, is_pf) in enumerate(shape):
        common = {"vendor_id": "10de", "product_id": ids[5:], "numa_node": node}
        if not card:
            found[f"0000:1{position}:00.0"] = device(f"0000:1{position}:00.0", **common)
        elif is_pf:
            address = f"0000:a{card}:00.0"
            found[address] = device(address, DeviceType.PF, **common)
        else:
            address = f"0000:a{card}:01.{position}"
            found[address] = device(address, DeviceType.VF, parent_addr=f"0000:a{card}:00.0", **common)
    return [one for address, one in sorted(found.items())]


def _request(position: int, shape: tuple[int, set[str], NumaPolicy]) -> PciRequest:
    count, kinds, policy = shape
    spec = []
    for product, dev_type in (kind.split() for kind in sorted(kinds)):
        spec.append({"product_id": product} | ({} if dev_type == "-" else {"dev_type": dev_type}))
    return PciRequest(request_id=f"r{position}", count=count, spec=tuple(spec), alias_name="x", numa_policy=policy)


@TRIES
@given(devices_of_a_host, requests_of_a_server, st.sampled_from([None, {0}, {1}, {0, 1}]))
def test_the_fit_on_pools_agrees_with_the_same_steps_on_devices(
    shape: list[tuple[str, int | None, str, bool]],
    wanted: list[tuple[int, set[str], NumaPolicy]],
    chosen: set[int] | None,
) -> None:
    devices = _host(shape)
    requests = [_request(position, one) for position, one in enumerate(wanted)]
    cells = None if chosen is None else AffinityCells(frozenset(chosen), {0: 0, 1: 1})
    pools = pools_of(devices)
    answer = fit(pools, requests, cells)
    assert pools == pools_of(devices), "nothing passed in is changed"
    assert isinstance(answer, Choice) == _feasible(devices, requests, chosen)
    if isinstance(answer, Refusal):
        assert all(reason.text and reason.rule.startswith("pci.") for reason in answer.reasons)
        return
    picked = pick_devices(devices, answer)
    assert [len(picked[request.request_id]) for request in requests] == [request.count for request in requests]
    book = by_address(*devices)
    for request in requests:
        for one in picked[request.request_id]:
            book.update(claim(book, one.address, "A", request.request_id))
            assert _fits(one, request)
    owned = [one for one in book.values() if one.owned]
    assert len(owned) == sum(request.count for request in requests)


def _fits(one: PciDevice, request: PciRequest) -> bool:
    asks_for_pf = any(properties.get("dev_type") == "type-PF" for properties in request.spec)
    return (one.dev_type is not DeviceType.PF or asks_for_pf) and any(
        properties["product_id"] == one.product_id and properties.get("dev_type") in (None, one.dev_type)
        for properties in request.spec
    )


def _feasible(devices: list[PciDevice], requests: list[PciRequest], chosen: set[int] | None) -> bool:
    """The steps of the fit on single devices, one after the other, in the order of the pools."""
    order = [pool.address + pool.dev_type + pool.product_id + str(pool.numa_node) for pool in pools_of(devices)]
    left = sorted(devices, key=lambda one: order.index(_pool_name(one)))
    for request in requests:
        fitting = [one for one in left if _fits(one, request)]
        cards = {one.parent_addr for one in fitting if one.parent_addr}
        fitting = [one for one in fitting if one.address not in cards]
        if chosen is not None:
            fitting = _near(fitting, request, chosen)
        taken = fitting[: request.count]
        if len(taken) < request.count:
            return False
        gone = {one.address for one in taken} | {one.parent_addr for one in taken}
        left = [one for one in left if one.address not in gone and one.parent_addr not in {t.address for t in taken}]
    return True


def _pool_name(one: PciDevice) -> str:
    return (one.parent_addr or one.address) + one.dev_type + one.product_id + str(one.numa_node)


def _near(fitting: list[PciDevice], request: PciRequest, chosen: set[int]) -> list[PciDevice]:
    near = [one for one in fitting if one.numa_node in chosen]
    if request.policy is NumaPolicy.REQUIRED or len(near) >= request.count or request.policy is NumaPolicy.SOCKET:
        return near  # every node has a socket of its own here
    known = [one for one in fitting if one.numa_node in chosen or one.numa_node is None]
    if request.policy is NumaPolicy.LEGACY or len(known) >= request.count:
        return known
    return known + [one for one in fitting if one not in known]


@TRIES
@given(devices_of_a_host, st.sets(st.integers(0, 7)))
def test_pools_count_every_free_device_once(shape: list[tuple[str, int | None, str, bool]], unknown: set[int]) -> None:
    devices = [
        replace(one, condition=Condition.UNKNOWN) if position in unknown else one
        for position, one in enumerate(_host(shape))
    ]
    known = [one for one in devices if one.condition is Condition.OK]
    assert sum(pool.count for pool in pools_of(devices)) == len(known)
    assert pools_of(reversed(devices)) == pools_of(devices)

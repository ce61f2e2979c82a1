"""Whole guests on whole hosts, with devices."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from jetbridge.numa.fit import ServerFit, fit_server
from jetbridge.numa.topology import GuestTopology, HostTopology, NumaLimits
from jetbridge.numa.usage import with_usage
from jetbridge.pci.device import DeviceType
from jetbridge.pci.fit import Refusal
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import NumaPolicy, PciRequest, ProviderChoice
from jetbridge.reasons import Reason
from tests.unit.numa.build import cases, gpu, guest, host, host_cell, wants

CASES = cases("numa_fit.yaml")


def host_cells(answer: ServerFit | Refusal) -> list[int | None]:
    assert isinstance(answer, ServerFit), answer
    assert answer.guest is not None
    return [cell.host_cell for cell in answer.guest.cells]


def rules(answer: ServerFit | Refusal) -> list[str]:
    assert isinstance(answer, Refusal), answer
    return [reason.rule for reason in answer.reasons]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    cells = [host_cell(number, **facts) for number, facts in enumerate(case["cells"])]
    pools = [gpu(node, f"0000:{at + 1:02x}:00.0") for at, node in enumerate(case.get("devices", []))]
    requests = [wants(**case["want"])] if "want" in case else []
    limits = NumaLimits(*case["limits"]) if "limits" in case else None
    answer = fit_server(
        HostTopology(tuple(cells)),
        guest(**case["guest"]),
        pools,
        requests,
        limits=limits,
        packing=case.get("packing", False),
    )
    if isinstance(case["right"], str):
        assert rules(answer)[0] == case["right"]
    else:
        assert host_cells(answer) == case["right"]


def test_without_a_guest_topology_no_policy_holds() -> None:
    for topology in (None, host(host_cell(0, shared=1))):
        answer = fit_server(topology, None, [gpu(None)], [wants(policy="required")])
        assert isinstance(answer, ServerFit)
        assert answer.guest is None
        assert answer.choice.takes["id-of-GPU"][0].pool == gpu(None)


def test_a_guest_topology_needs_a_host_with_cells() -> None:
    for empty in (None, HostTopology(())):
        answer = fit_server(empty, guest(shared=1), (), ())
        assert answer == Refusal(
            (
                Reason(
                    "numa.cells",
                    "the server wants a guest topology and the host has no NUMA cells",
                    hint="use a host that reports NUMA cells, or a flavor without hw:numa_nodes, page size and pinned CPUs",
                ),
            )
        )


def test_more_cells_than_the_host_has() -> None:
    answer = fit_server(host(host_cell(0, shared=4)), guest(2, shared=1), (), ())
    reason = Reason("numa.cells", "the server wants 2 NUMA cells, the host has 1", hint="use hw:numa_nodes=1 or less")
    assert answer == Refusal((reason,))


def test_cells_that_fit_one_by_one_only() -> None:
    answer = fit_server(host(host_cell(0, shared=4), host_cell(1)), guest(2, shared=1), (), ())
    reason = Reason(
        "numa.cells",
        "the 2 guest cells fit on host cells one by one, not all at once",
        hint="use fewer or smaller NUMA nodes",
    )
    left_out = "host cell 1 left out: a guest cell wants 1 shared CPU in one host cell"
    assert answer == Refusal((reason, Reason("numa.cpu", left_out)))


def test_host_cells_that_are_left_out_for_one_reason_are_named_together() -> None:
    cells = host(host_cell(0, shared=4), host_cell(2), host_cell(1))
    answer = fit_server(cells, guest(2, shared=1), (), ())
    assert isinstance(answer, Refusal)
    assert [why.text for why in answer.reasons[1:]] == [
        "host cells 1, 2 left out: a guest cell wants 1 shared CPU in one host cell"
    ]


def test_a_device_without_node_is_named_when_required_refuses_it() -> None:
    answer = fit_server(
        host(host_cell(0, shared=1)), guest(shared=1), [gpu(None, "0000:5e:00.0")], [wants(policy="required")]
    )
    assert isinstance(answer, Refusal)
    assert answer.reasons[0] == Reason(
        "pci.numa",
        "policy required refuses devices without a NUMA node: 0000:5e:00.0",
        request="GPU",
        before=1,
        after=0,
        hint="use the policy legacy or preferred, or a firmware that reports the device's node",
    )
    assert [reason.rule for reason in answer.reasons[1:]] == ["pci.numa"]


def test_devices_without_node_come_last_where_others_are_too_far() -> None:
    cells = host(host_cell(0, shared=1), host_cell(1, shared=0))
    pools = [gpu(1, "0000:3b:00.0"), gpu(None, "0000:5e:00.0")]
    answer = fit_server(cells, guest(shared=1), pools, [wants(policy="required")])
    assert isinstance(answer, Refusal)
    assert "NUMA node 1, unknown" in answer.reasons[0].text
    assert "without a NUMA node: 0000:5e:00.0" in answer.reasons[-1].text


def test_what_an_earlier_request_takes_is_told_before_devices_without_node() -> None:
    asked = [wants(1, "required", name="A"), wants(1, "required", name="B")]
    answer = fit_server(host(host_cell(0, shared=1)), guest(shared=1), [gpu(None)], asked)
    assert isinstance(answer, Refusal)
    assert answer.reasons[0].rule == "pci.taken"


def test_only_devices_of_requests_that_require_are_named_in_order() -> None:
    pools = [
        gpu(None, "0000:02:00.0"),
        gpu(None, "0000:01:00.0"),
        gpu(0, "0000:03:00.0"),
        gpu(None, "0000:04:00.0", "1eb9"),
    ]
    asked = [wants(2, "required"), wants(2, "legacy", "1eb9", "OTHER")]
    answer = fit_server(
        host(host_cell(0, shared=1)), guest(shared=1), [*pools, gpu(None, "0000:05:00.0", "1eb9")], asked
    )
    assert isinstance(answer, Refusal)
    named = [reason.text for reason in answer.reasons if "without a NUMA node" in reason.text]
    assert named == ["policy required refuses devices without a NUMA node: 0000:01:00.0, 0000:02:00.0"]


@pytest.mark.parametrize("policy", ["legacy", "preferred"])
def test_a_device_without_node_is_taken_under(policy: str) -> None:
    answer = fit_server(host(host_cell(0, shared=1)), guest(shared=1), [gpu(None)], [wants(policy=policy)])
    assert host_cells(answer) == [0]


def test_the_requested_kind_of_device_draws_not_any_kind() -> None:
    """As F16, within one host: many VFs of a NIC on node 0, the GPU on node 1."""
    nic = Pool("8086", "154c", 0, DeviceType.VF, "0000:81:00.0", 128)
    cells = host(host_cell(0, shared=2), host_cell(1, shared=2))
    answer = fit_server(cells, guest(shared=1), [nic, gpu(1)], [wants(policy="preferred")])
    assert host_cells(answer) == [1]


def test_several_requests_are_judged_together() -> None:
    cells = host(host_cell(0, shared=2), host_cell(1, shared=2))
    pools = [gpu(0, "0000:01:00.0"), gpu(1, "0000:02:00.0", "1eb9")]
    both = [wants(policy="required"), wants(policy="required", product_id="1eb9", name="OTHER")]
    assert rules(fit_server(cells, guest(shared=1), pools, both))[0] == "pci.numa"
    assert sorted(map(str, host_cells(fit_server(cells, guest(2, shared=1), pools, both)))) == ["0", "1"]


def test_1995153_the_socket_policy_still_works_beside_the_first_guest() -> None:
    cells = host(host_cell(0, shared=2, socket=0), host_cell(1, shared=2, socket=0))
    first = fit_server(cells, guest(shared=1), [gpu(0)], [wants(policy="socket")])
    assert isinstance(first, ServerFit)
    assert first.guest is not None
    used = with_usage(cells, [first.guest])
    assert [cell.socket for cell in used.cells] == [0, 0]
    assert isinstance(fit_server(used, guest(shared=1), [gpu(1)], [wants(policy="socket")]), ServerFit)


def test_2144660_a_guest_without_requests_comes_to_the_same_cell_as_its_claim() -> None:
    cells = host(*(host_cell(number, shared=4) for number in range(3)))
    pools = [gpu(0, "0000:01:00.0"), gpu(1, "0000:02:00.0")]
    first = fit_server(cells, guest(shared=1), pools, ())
    assert host_cells(first) == host_cells(fit_server(cells, guest(shared=1), tuple(pools), [])) == [2]


def test_d17_what_is_fitted_is_a_copy() -> None:
    asked = guest(2, dedicated=1)
    answer = fit_server(host(host_cell(0, dedicated=1), host_cell(1, dedicated=1)), asked, (), ())
    assert isinstance(answer, ServerFit)
    assert answer.guest != asked
    assert [(cell.host_cell, cell.page_size_kb, dict(cell.pinning)) for cell in asked.cells] == [(None, None, {})] * 2


def test_d17_each_guest_cell_is_pinned_on_its_own_host_cell() -> None:
    """The device's node makes the search turn back: no pinning of an earlier try may stay."""
    cells = host(*(host_cell(number, dedicated=2) for number in range(3)))
    answer = fit_server(cells, guest(2, dedicated=2), [gpu(2)], [wants(policy="required")])
    assert isinstance(answer, ServerFit)
    assert answer.guest is not None
    for cell in answer.guest.cells:
        assert cell.host_cell is not None
        assert {cpu // 100 for cpu in cell.pinning.values()} == {cell.host_cell}


F8_CELLS = host(*(host_cell(number, dedicated=4, shared=4) for number in range(16)))
F8_CASES = {
    "fits": (guest(8, dedicated=4), [], []),
    "no device anywhere near": (guest(8, dedicated=4), [gpu(None)], [wants(policy="required")]),
    "device on a node that is no cell": (guest(8, dedicated=4), [gpu(99)], [wants(policy="required")]),
    "device at the last cell": (guest(8, dedicated=4), [gpu(15)], [wants(policy="required")]),
    "two on one node, nine nodes wanted": (
        guest(8, dedicated=4),
        [gpu(node, f"0000:{node + 1:02x}:00.0") for node in range(16)],
        [wants(9, policy="required")],
    ),
    "nine whole cards wanted": (
        guest(8, dedicated=4),
        [Pool("10de", "1eb8", node, DeviceType.PF, f"0000:{node + 1:02x}:00.0", 1) for node in range(16)],
        [PciRequest("r", 9, ({"dev_type": "type-PF"},), "PF", numa_policy=NumaPolicy.REQUIRED)],
    ),
    "too large": (guest(8, dedicated=5), [], []),
    "requests whose order matters": (
        guest(8, dedicated=4),
        [gpu(node, f"0000:{node + 1:02x}:00.0") for node in range(3)],
        [wants(2, policy="required"), wants(2, policy="preferred", name="B")],
    ),
}


@pytest.mark.parametrize("name", F8_CASES)
def test_f8_eight_cells_on_sixteen_within_50_ms(name: str) -> None:
    asked, pools, requests = F8_CASES[name]
    took = []
    for _ in range(3):
        start = time.process_time()
        answer = fit_server(F8_CELLS, asked, pools, requests)
        took.append(time.process_time() - start)
        assert isinstance(answer, ServerFit) or "numa.search" not in rules(answer)
    assert min(took) < 0.05


def test_f8_a_search_that_gives_up_says_so() -> None:
    """Sixteen nodes, each with a device that no other has, two requests that may want the same: no two cells are alike."""
    pools = [Pool("10de", f"{node:04x}", node, DeviceType.PCI, f"0000:{node + 1:02x}:00.0", 1) for node in range(16)]
    everything = PciRequest(
        "first", 8, tuple({"product_id": pool.product_id} for pool in pools), "ANY", numa_policy=NumaPolicy.REQUIRED
    )
    last = PciRequest("second", 1, ({"product_id": "000f"},), "ONE", numa_policy=NumaPolicy.REQUIRED)
    answer = fit_server(F8_CELLS, guest(8, dedicated=4), pools, [everything, last])
    reason = Reason(
        "numa.search",
        "no placement found among the first 512 looked at; the search stops there",
        hint="use fewer NUMA nodes, or a PCI NUMA policy that is less strict",
    )
    assert answer == Refusal((reason,))


def test_without_a_word_on_packing_guests_spread() -> None:
    cells = host(host_cell(0, shared=4, memory_usage_mb=512), host_cell(1, shared=4))
    assert host_cells(fit_server(cells, guest(shared=1), (), ())) == [1]


def kind(letter: str, node: int | None, bus: int, dev_type: DeviceType = DeviceType.PCI, count: int = 1) -> Pool:
    return Pool("10de", f"000{letter}", node, dev_type, f"0000:{bus:02x}:00.0", count)


def wants_kinds(letters: str, policy: str, name: str, dev_type: str | None = None) -> PciRequest:
    asked = {} if dev_type is None else {"dev_type": dev_type}
    spec = tuple({"product_id": f"000{letter}", **asked} for letter in letters)
    return PciRequest(f"id-of-{name}", 1, spec, name, numa_policy=NumaPolicy(policy))


# Cell 2 has the device that request FAR requires and no CPU: no placement fits. Where more host cells never fit worse, the
# refusal is that of all cells the guest could lie on; else that of the first placement looked at.
FAR = wants_kinds("f", "required", "FAR")
ORDER_CASES: dict[str, tuple[list[Pool], list[PciRequest], str]] = {
    "one request": ([], [], "0, 1"),
    "requests that share all": (
        [kind("a", 0, 1), kind("a", 0, 2)],
        [wants_kinds("a", "preferred", "A"), wants_kinds("a", "preferred", "B")],
        "0, 1",
    ),
    "requests that share none": (
        [kind("a", 0, 1), kind("b", 0, 2)],
        [wants_kinds("a", "preferred", "A"), wants_kinds("b", "legacy", "B")],
        "0, 1",
    ),
    "requests that share some": (
        [kind("a", 0, 1), kind("b", 0, 2)],
        [wants_kinds("ab", "preferred", "A"), wants_kinds("b", "preferred", "B")],
        "0",
    ),
    "requests that share all under other policies": (
        [kind("a", 0, 1), kind("a", 0, 2)],
        [wants_kinds("a", "preferred", "A"), wants_kinds("a", "legacy", "B")],
        "0",
    ),
    "VFs alone": (
        [kind("a", 0, 1, DeviceType.VF, 2)],
        [wants_kinds("a", "preferred", "A")],
        "0, 1",
    ),
    "PFs alone": (
        [kind("a", 0, 1, DeviceType.PF)],
        [wants_kinds("a", "preferred", "A", "type-PF")],
        "0, 1",
    ),
    "a card whole and in parts": (
        [kind("a", 0, 1, DeviceType.VF), kind("a", 0, 2, DeviceType.VF), kind("b", 0, 2, DeviceType.PF)],
        [wants_kinds("a", "preferred", "A"), wants_kinds("b", "preferred", "B", "type-PF")],
        "0",
    ),
    "a card whole, another in parts": (
        [kind("a", 0, 1, DeviceType.VF, 2), kind("b", 0, 2, DeviceType.PF)],
        [wants_kinds("a", "preferred", "A"), wants_kinds("b", "preferred", "B", "type-PF")],
        "0, 1",
    ),
}


@pytest.mark.parametrize("name", ORDER_CASES)
def test_the_refusal_speaks_for_all_cells_only_where_more_cells_never_fit_worse(name: str) -> None:
    pools, requests, nodes = ORDER_CASES[name]
    cells = host(host_cell(0, shared=1), host_cell(1, shared=1), host_cell(2))
    answer = fit_server(cells, guest(shared=1), [*pools, kind("f", 2, 9)], [*requests, FAR])
    assert isinstance(answer, Refusal)
    text = "1 device matches, on NUMA node 2, but policy required allows only the guest's NUMA node"
    assert answer.reasons[0].text == f"{text} {nodes}: 0 left"


def test_a_cell_that_only_one_of_the_guest_s_cells_fits_on_counts_as_a_place() -> None:
    """The second guest cell is too large for cell 0, the only one with device B; the first placement lies elsewhere."""
    cells = host(host_cell(0, shared=1), host_cell(1, shared=2), host_cell(2, shared=2))
    small, large = guest(2, shared=1).cells
    asked = GuestTopology((small, replace(large, cpus=frozenset({1, 2}))))
    pools = [kind("a", 1, 1), kind("a", 1, 2), kind("a", 2, 3), kind("a", 2, 4), kind("b", 0, 5)]
    requests = [wants_kinds("a", "required", "A"), wants_kinds("b", "required", "B")]
    assert host_cells(fit_server(cells, asked, pools, requests)) == [0, 1]


def test_a_placement_is_found_though_all_cells_together_would_be_refused() -> None:
    """With every cell in reach the first request takes the VF of the card that the second wants whole."""
    cells = host(host_cell(0, shared=1), host_cell(1, shared=1))
    pools = [kind("a", 0, 1, DeviceType.VF), kind("b", 0, 1, DeviceType.PF), kind("a", 1, 2, DeviceType.VF)]
    requests = [wants_kinds("a", "required", "PART"), wants_kinds("b", "preferred", "WHOLE", "type-PF")]
    assert host_cells(fit_server(cells, guest(shared=1), pools, requests)) == [1]


def test_cells_with_other_devices_are_not_taken_for_alike() -> None:
    """Cell 0 has more of the devices and is tried first; only cell 1 has both kinds."""
    cells = host(host_cell(0, shared=1), host_cell(1, shared=1))
    pools = [kind("a", 0, 1), kind("a", 0, 2), kind("a", 0, 3), kind("a", 1, 4), kind("b", 1, 5)]
    requests = [wants_kinds("a", "required", "A"), wants_kinds("b", "required", "B")]
    assert host_cells(fit_server(cells, guest(shared=1), pools, requests)) == [1]


def test_one_request_of_policy_socket_is_enough_to_tell_sockets_apart() -> None:
    """Cells 0 and 1 have no devices and look alike, but only cell 1 is on the devices' socket."""
    cells = host(host_cell(0, shared=1, socket=0), host_cell(1, shared=1, socket=1), host_cell(2, socket=1))
    pools = [kind("a", 2, 1), kind("b", 2, 2)]
    requests = [wants_kinds("a", "socket", "A"), wants_kinds("b", "preferred", "B")]
    assert host_cells(fit_server(cells, guest(shared=1), pools, requests)) == [1]


def test_cells_with_devices_of_other_providers_are_not_taken_for_alike() -> None:
    cells = host(host_cell(0, shared=1), host_cell(1, shared=1))
    pools = [replace(kind("a", node, node + 1), rp_uuid=f"provider-{node}") for node in (0, 1)]
    chosen = ProviderChoice(by_request={"id-of-A": ("provider-1",)})
    answer = fit_server(cells, guest(shared=1), pools, [wants_kinds("a", "required", "A")], chosen)
    assert host_cells(answer) == [1]

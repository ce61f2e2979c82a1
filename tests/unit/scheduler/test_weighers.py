"""Which host is the better one."""

from __future__ import annotations

import pytest

from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.pci.device import DeviceType
from jetbridge.pci.wanted import Wanted
from jetbridge.scheduler.weighers import Score, normalised, scores, weight
from tests.unit.scheduler.build import gpus, pool, request, spec, state


def scored(states: list[HostState], asked: RequestSpec, multiplier: float) -> list[Score]:
    wanted = Wanted(asked.pci_requests)
    weights = [weight(one, asked, wanted) for one in states]
    return scores(weights, with_devices=bool(asked.pci_requests), pci_weight_multiplier=multiplier)


def best(states: list[HostState], asked: RequestSpec, multiplier: float = 1.0) -> str:
    values = scored(states, asked, multiplier)
    return max(zip(values, states, strict=True), key=lambda pair: pair[0])[1].host


@pytest.mark.parametrize(
    ("free", "weights"),
    [
        ((0, 4, 40), (1.0, 0.9, 0.0)),
        ((99, 250), (0.0, 0.0)),
        ((7, 7), (0.0, 0.0)),
        ((5,), (0.0,)),
        ((1, 250), (1.0, 0.0)),
    ],
)
def test_the_fewer_free_devices_the_better(free: tuple[int, ...], weights: tuple[float, ...]) -> None:
    hosts = [
        state(f"h{at}", at, pools=(pool(count, dev_type=DeviceType.VF),) if count else ())
        for at, count in enumerate(free)
    ]
    asked = spec(request())
    assert [device for device, _ in scored(hosts, asked, 1.0)] == pytest.approx(weights)
    assert [device for device, _ in scored(hosts, asked, 2.0)] == pytest.approx([2 * weight for weight in weights])


def test_f16_only_devices_of_the_requested_kind_count() -> None:
    """Host a: 2 free GPUs and 128 NIC VFs; host b: 8 free GPUs. One GPU wanted: a, or b's eight are broken up."""
    nic = pool(128, vendor_id="8086", product_id="154c", dev_type=DeviceType.VF, address="0000:81:00.0")
    hosts = [state("b", 1, pools=gpus(8)), state("a", 2, pools=(*gpus(2), nic))]
    assert best(hosts, spec(request())) == "a"


def test_any_of_the_requested_kinds_counts() -> None:
    other = tuple(pool(product_id="1eb9", address=f"0000:{bus:02x}:00.0") for bus in range(100, 106))
    hosts = [state("a", 1, pools=(*gpus(2), *other)), state("b", 2, pools=(*gpus(3), pool(product_id="1eb9")))]
    assert best(hosts, spec(request())) == "a"
    assert best(hosts, spec(request(), request(name="OTHER", product_id="1eb9"))) == "b"


def test_a_server_without_devices_avoids_hosts_with_devices_of_any_kind() -> None:
    nic = pool(8, vendor_id="8086", product_id="154c", dev_type=DeviceType.VF, address="0000:81:00.0")
    assert best([state("nics", 1, pools=(nic,)), state("plain", 2)], spec()) == "plain"


def test_a_server_without_devices_goes_to_free_memory() -> None:
    assert best([state("full", 1, memory_mb_used=4096), state("free", 2)], spec()) == "free"


def test_memory_does_not_undo_the_packing_of_devices() -> None:
    hosts = [state("broken", 1, pools=gpus(2), memory_mb_used=32768), state("whole", 2, pools=gpus(8))]
    assert best(hosts, spec(request())) == "broken"
    assert best(hosts, spec(request()), multiplier=0.0) == "whole"


def test_memory_decides_between_hosts_with_equally_many_devices() -> None:
    hosts = [state("full", 1, pools=gpus(2), memory_mb_used=32768), state("free", 2, pools=gpus(2))]
    assert best(hosts, spec(request())) == "free"


def test_without_pools_only_memory_counts() -> None:
    hosts = [state("full", 1, pools=None, memory_mb_used=4096), state("free", 2, pools=None)]
    assert best(hosts, spec()) == best(hosts, spec(request())) == "free"


@pytest.mark.parametrize(
    ("values", "expected"), [([], []), ([3.0], [0.0]), ([1.0, 1.0], [0.0, 0.0]), ([10.0, 20.0, 15.0], [0.0, 1.0, 0.5])]
)
def test_normalised(values: list[float], expected: list[float]) -> None:
    assert normalised(values) == expected

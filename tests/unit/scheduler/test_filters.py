"""Each filter's yes and no, and how filters are found by name."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from jetbridge.config.settings import Settings
from jetbridge.model.host_state import HostState
from jetbridge.model.request_spec import RequestSpec
from jetbridge.pci.device import DeviceType
from jetbridge.pci.request import NumaPolicy
from jetbridge.reasons import Reason
from jetbridge.scheduler.filters.base import merged
from jetbridge.scheduler.filters.compute import ComputeFilter
from jetbridge.scheduler.filters.load import OWN, load_filters, needs_pools
from jetbridge.scheduler.filters.numa import NUMATopologyFilter
from jetbridge.scheduler.filters.pci import PciPassthroughFilter
from jetbridge.scheduler.filters.resource import ResourceFilter
from tests.unit.numa.build import guest, host, host_cell
from tests.unit.scheduler.build import gpus, pool, request, spec, state


def rule(reason: Reason | None) -> str | None:
    return None if reason is None else reason.rule


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, None),
        ({"vcpus_used": 62}, None),
        ({"vcpus_used": 63}, "cpu"),
        ({"memory_mb_used": 62976}, None),
        ({"memory_mb_used": 62977}, "ram"),
        ({"disk_gb_used": 991}, "disk"),
        ({"networks": frozenset({"other"})}, "network"),
    ],
)
def test_resources(facts: dict[str, object], expected: str | None) -> None:
    assert rule(ResourceFilter().check(state(**facts), spec(networks=("default",)))) == expected


def test_f24_a_host_whose_discovery_failed_says_so() -> None:
    unknown = state(pools=(), devices_known=False)
    reason = PciPassthroughFilter().check(unknown, spec(request()))
    assert reason is not None
    assert (reason.rule, reason.text) == ("pci.unknown", "the host's devices are unknown: its last discovery failed")
    assert PciPassthroughFilter().check(unknown, spec()) is None


def test_everything_that_is_short_is_told_at_once() -> None:
    reason = ResourceFilter().check(state(vcpus_used=64, memory_mb_used=65536), spec(networks=("lab",)))
    assert reason is not None
    assert reason.rule == "cpu"
    for word in ("VCPUs", "MiB", "no network lab"):
        assert word in reason.text


@pytest.mark.parametrize(
    ("facts", "expected", "text"),
    [
        ({}, None, ""),
        ({"enabled": False}, "service.disabled", "disabled"),
        ({"enabled": False, "disabled_reason": "maintenance"}, "service.disabled", "disabled: maintenance"),
        ({"alive": False}, "service.down", "the compute service is down"),
    ],
)
def test_compute(facts: dict[str, object], expected: str | None, text: str) -> None:
    reason = ComputeFilter().check(state(**facts), spec())
    assert rule(reason) == expected
    assert (reason.text if reason else "") == text


def test_availability_zone() -> None:
    assert ComputeFilter().check(state(), spec(availability_zone="nova")) is None
    assert rule(ComputeFilter().check(state(), spec(availability_zone="east"))) == "availability_zone"


def test_a_server_without_requests_needs_no_devices() -> None:
    for free in (None, ()):
        assert PciPassthroughFilter().check(state(pools=free), spec()) is None
        assert PciPassthroughFilter().check(state(pools=free), spec(request())) is not None


def test_f3_two_aliases_for_the_only_device_are_refused_together() -> None:
    both = spec(request(name="a"), request(name="b"))
    assert PciPassthroughFilter().check(state(pools=gpus(1)), both) is not None
    assert PciPassthroughFilter().check(state(pools=gpus(2)), both) is None
    for alone in both.pci_requests:
        assert PciPassthroughFilter().check(state(pools=gpus(1)), spec(alone)) is None


CARD = (
    pool(product_id="154c", dev_type=DeviceType.VF, count=4, address="0000:81:00.0"),
    pool(product_id="1572", dev_type=DeviceType.PF, address="0000:81:00.0"),
)


def test_f12_a_pf_and_a_vf_of_one_card_are_refused_by_the_filter() -> None:
    wanted = spec(
        request(name="pf", product_id="1572", dev_type="type-PF"),
        request(name="vf", product_id="154c", dev_type="type-VF"),
    )
    reason = PciPassthroughFilter().check(state(pools=CARD), wanted)
    assert rule(reason) == "pci.dependency"
    second = tuple(replace(part, address="0000:82:00.0") for part in CARD)
    assert PciPassthroughFilter().check(state(pools=CARD + second), wanted) is None


def test_numa() -> None:
    check = NUMATopologyFilter(packing=False).check
    plain, asked = spec(), spec(numa_topology=guest(shared=2))
    assert check(state(), plain) is None
    assert rule(check(state(), asked)) == "numa.cells"
    assert check(state(numa=host(host_cell(0, shared=2))), asked) is None
    assert rule(check(state(numa=host(host_cell(0, shared=1))), asked)) == "numa.cpu"


def test_numa_uses_the_host_s_ratios() -> None:
    check = NUMATopologyFilter(packing=False).check
    asked = spec(numa_topology=guest(shared=2))
    full = host(host_cell(0, shared=2, cpu_usage=4))
    assert rule(check(state(numa=full, cpu_allocation_ratio=2.0), asked)) == "numa.cpu"
    assert check(state(numa=full, cpu_allocation_ratio=3.0), asked) is None


def test_a_device_without_node_in_a_guest_with_topology() -> None:
    check = NUMATopologyFilter(packing=False).check
    here = state(numa=host(host_cell(0, shared=2)), pools=(pool(address="0000:5e:00.0"),))

    def asked(policy: NumaPolicy) -> RequestSpec:
        return spec(request(policy=policy), numa_topology=guest(shared=2))

    assert check(here, asked(NumaPolicy.LEGACY)) is None
    assert check(here, asked(NumaPolicy.PREFERRED)) is None
    reason = check(here, asked(NumaPolicy.REQUIRED))
    assert rule(reason) == "pci.numa"
    assert reason is not None
    assert "0000:5e:00.0" in reason.text


def test_require_without_hyper_threads() -> None:
    check = NUMATopologyFilter(packing=False).check
    asked = spec(numa_topology=guest(dedicated=2, thread_policy="require"))
    assert rule(check(state(numa=host(host_cell(0, dedicated=4))), asked)) == "numa.pinning"
    assert check(state(numa=host(host_cell(0, dedicated=4, threads=2))), asked) is None


def test_many_reasons_become_one() -> None:
    one, two = Reason("a", "first", hint="do this"), Reason("b", "second", hint="do this")
    assert merged([one]) is one
    assert merged([one, two]) == Reason("a", "first; second", hint="do this")


# --- by name ----------------------------------------------------------------------------------


def test_the_default_filters_in_order_resources_first() -> None:
    assert [one.name for one in load_filters(Settings(), {})] == [
        "ResourceFilter",
        "ComputeFilter",
        "PciPassthroughFilter",
        "NUMATopologyFilter",
    ]
    assert all(OWN[name](Settings()).name == name for name in OWN)


def test_names_of_others_are_warned_about_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    names = ("ComputeFilter", "ImagePropertiesFilter", "PciPasthroughFilter", "Zzz", "ImagePropertiesFilter")
    with caplog.at_level(logging.WARNING):
        loaded = load_filters(Settings(enabled_filters=names), {})
    assert [one.name for one in loaded] == ["ResourceFilter", "ComputeFilter"]
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 3
    assert "ImagePropertiesFilter does not exist in Jetbridge" in texts[0]
    assert "did you mean PciPassthroughFilter?" in texts[1]
    assert "known are ComputeFilter, NUMATopologyFilter, PciPassthroughFilter" in texts[2]


class OddHosts:
    name = "OddHosts"

    def __init__(self, settings: Settings) -> None:
        self.multiplier = settings.pci_weight_multiplier

    def check(self, state: HostState, spec: RequestSpec) -> Reason | None:
        return None if state.compute_node_id % 2 else Reason("even", "even")


def test_a_filter_from_another_package() -> None:
    settings = Settings(enabled_filters=("OddHosts",))
    assert [one.name for one in load_filters(settings, {"OddHosts": OddHosts})] == ["ResourceFilter", "OddHosts"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("ComputeFilter",), False),
        (("ComputeFilter", "PciPassthroughFilter"), True),
        (("NUMATopologyFilter",), True),
        ((), False),
    ],
)
def test_when_pools_are_needed(names: tuple[str, ...], expected: bool) -> None:
    assert needs_pools(Settings(enabled_filters=names)) is expected

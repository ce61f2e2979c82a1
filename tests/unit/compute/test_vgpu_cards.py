"""What the cards of a simulated host carry: by the options, and as Placement is told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jetbridge.compute import vgpus
from jetbridge.compute.host import AgentHost
from jetbridge.compute.inventory import take_inventory
from jetbridge.compute.provider_source import Contribution
from jetbridge.compute.vgpu_cards import VgpuProviders
from jetbridge.db import compute_nodes
from jetbridge.errors import ComputeResourcesUnavailable, InvalidConfiguration, InvalidLibvirtMdevConfig
from jetbridge.mdev.choice import Wanted
from jetbridge.mdev.config import TypeOptions
from tests.unit.compute.conftest import Bench, MakeBench
from tests.unit.compute.vgpu_hosts import (
    CARD,
    ONE,
    SLICED,
    VENDOR,
    WHOLE,
    boot,
    claim,
    existing,
    make_foreign,
    settings,
    totals,
    with_settings,
)


def told(bench: Bench) -> Contribution:
    with bench.host.database.read() as conn:
        node = compute_nodes.of_host(conn, bench.host.name)
    return VgpuProviders().contribute(bench.host, node, {})


def test_104_a_card_carries_as_many_after_a_guest_as_before(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    assert totals(host) == {CARD: {"VGPU": 4}}
    _, [mine] = boot(host, ONE)
    take_inventory(host.host)
    assert totals(host) == {CARD: {"VGPU": 4}}
    assert existing(host) == {mine.uuid: CARD}


def test_f22_max_instances_says_what_no_description_does(bench: MakeBench) -> None:
    host = bench(devices=[VENDOR], settings=settings("nvidia-558", nvidia_558=TypeOptions(max_instances=2)))
    assert totals(host) == {"pci_0000_65_00_0": {"VGPU": 2}}


def test_options_that_the_host_contradicts_stop_a_start_and_not_a_pass(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = settings("mtty-2", mtty_2=TypeOptions(("mtty_mtty",)))
    with pytest.raises(InvalidLibvirtMdevConfig, match="incorrect address 'mtty_mtty'"):
        bench(devices=[WHOLE], settings=wanted)
    host = bench(devices=[WHOLE], settings=settings("nvidia-222"))
    changed: AgentHost = replace(
        host.host, settings=replace(host.host.settings, enabled_mdev_types=("mtty-2",), mdev_types=wanted.mdev_types)
    )
    take_inventory(changed)
    assert "The vGPUs of host h1 stay as they are" in caplog.text
    assert totals(host) == {CARD: {"VGPU": 4}}


def test_a_type_that_no_card_has_is_told_at_start(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    bench(devices=[WHOLE], settings=settings("nvidia-22"))
    assert (
        "no card that may carry type nvidia-22 of [devices]enabled_mdev_types has it: its cards have nvidia-222, nvidia-223"
        in caplog.text
    )


def test_a_type_that_only_cards_given_away_have_is_told_so(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    bench(devices=[WHOLE], device_spec=[{"address": "0000:3b:00.0"}], settings=settings("nvidia-222"))
    assert "nvidia-222 of [devices]enabled_mdev_types has it: the cards that have it are listed in no" in caplog.text


def test_an_address_without_a_card_is_told_at_start(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    listed = ("0000:3b:00.0", "0000:99:00.0")
    bench(devices=[WHOLE], settings=settings("nvidia-222", nvidia_222=TypeOptions(listed)))
    assert "[mdev_nvidia-222]device_addresses lists 0000:99:00.0, where it has nothing" in caplog.text
    assert "lists 0000:3b:00.0" not in caplog.text


def test_one_device_has_one_owner(bench: MakeBench) -> None:
    both = settings("nvidia-222", nvidia_222=TypeOptions(("0000:3b:00.0",)))
    with pytest.raises(
        InvalidConfiguration, match=r"0000:3b:00.0 of host h1 would be given to guests twice.*\[mdev_nvidia-222\]"
    ):
        bench(devices=[WHOLE], device_spec=[{"address": "0000:3b:00.0"}], settings=both)
    host = bench(devices=[WHOLE], device_spec=[{"address": "0000:3b:00.0"}], settings=settings("nvidia-222"))
    assert totals(host) == {}


def test_providers_are_the_cards(bench: MakeBench) -> None:
    host = bench(
        devices=[WHOLE, SLICED],
        settings=settings(
            "nvidia-222", "nvidia-712", nvidia_712=TypeOptions(("0000:65:00.0",), mdev_class="CUSTOM_A40")
        ),
    )
    server, _ = boot(host, Wanted(CARD, "VGPU", 2))
    contribution = told(host)
    children = contribution.children
    assert {child.name: {name: one.total for name, one in child.inventories.items()} for child in children} == {
        "h1_pci_0000_3b_00_0": {"VGPU": 4},
        "h1_pci_0000_65_00_0": {"CUSTOM_A40": 4},
    }
    assert {trait for child in children for trait in child.traits} == {"OWNER_NOVA"}
    [inventory] = children[0].inventories.values()
    assert (inventory.max_unit, inventory.min_unit, inventory.step_size) == (4, 1, 1)
    assert (inventory.reserved, inventory.allocation_ratio) == (0, 1.0)
    assert contribution.heal == ((server.uuid, "h1_pci_0000_3b_00_0", "VGPU", 2),)


def large(bus: int) -> dict[str, Any]:
    return {**WHOLE, "address": f"0000:{bus:02x}:00.0", "mdev_types": {"nvidia-222": {"available": "16"}}}


def test_110_a_cap_fills_one_card_after_the_other_and_drops_nothing(bench: MakeBench) -> None:
    """Two cards of 16: a cap of 10 is 10 and 0, and the second has no provider."""
    capped = settings("nvidia-222", nvidia_222=TypeOptions(max_instances=10))
    host = bench(devices=[large(0x3B), large(0x5E)], settings=capped)
    assert totals(host) == {CARD: {"VGPU": 10}}
    assert [child.name for child in told(host).children] == [f"h1_{CARD}"]
    boot(host, Wanted(CARD, "VGPU", 10))
    take_inventory(host.host)
    assert totals(host) == {CARD: {"VGPU": 10}}
    for card, words in ((CARD, "has 0 of 10"), ("pci_0000_5e_00_0", "has 0 of 0")):
        with pytest.raises(ComputeResourcesUnavailable, match=words):
            claim(host, Wanted(card, "VGPU", 1))
    lower = with_settings(host, settings("nvidia-222", nvidia_222=TypeOptions(max_instances=3)))
    assert totals(lower) == {CARD: {"VGPU": 10}}
    assert len(existing(lower)) == 10
    higher = with_settings(lower, settings("nvidia-222", nvidia_222=TypeOptions(max_instances=20)))
    assert totals(higher) == {CARD: {"VGPU": 16}, "pci_0000_5e_00_0": {"VGPU": 4}}


def test_109_an_mdev_of_a_type_that_its_card_is_not_to_carry_is_neither_counted_nor_used(bench: MakeBench) -> None:
    other = {**WHOLE, "address": "0000:5e:00.0"}
    host = bench(
        devices=[WHOLE, other],
        settings=settings(
            "nvidia-222",
            "nvidia-223",
            nvidia_222=TypeOptions(("0000:3b:00.0",)),
            nvidia_223=TypeOptions(("0000:5e:00.0",)),
        ),
    )
    make_foreign(host, "pci_0000_5e_00_0", "nvidia-222")
    take_inventory(host.host)
    # The card carries another type by now, so that there is no room for its own.
    assert totals(host) == {CARD: {"VGPU": 4}}
    with pytest.raises(ComputeResourcesUnavailable, match="has 0 of 0 vGPUs of type nvidia-223"):
        claim(host, Wanted("pci_0000_5e_00_0", "VGPU", 1))


def test_f25_a_type_is_its_whole_name(bench: MakeBench) -> None:
    both = {**WHOLE, "mdev_types": {"nvidia-558": {"available": "8"}, "nvidia-55": {"available": "2"}}}
    only = {**WHOLE, "address": "0000:5e:00.0", "mdev_types": {"nvidia-558": {"available": "8"}}}
    vfs = {**VENDOR, "vgpu_types": {"558": "NVIDIA L40S-4Q"}}
    host = bench(devices=[only, both, vfs], settings=settings("nvidia-55"))
    assert totals(host) == {CARD: {"VGPU": 2}}
    _, [mine] = boot(host, ONE)
    assert mine.type == "nvidia-55"
    [made] = [instance for instance in vgpus.look(host.host).instances if instance.uuid == mine.uuid]
    assert made.type == "nvidia-55"
    for card in ("pci_0000_5e_00_0", "pci_0000_65_00_0"):
        with pytest.raises(ComputeResourcesUnavailable, match=f"card {card} offers no VGPU"):
            claim(host, Wanted(card, "VGPU", 1))


def test_d16_the_class_of_a_default_type_is_that_of_its_cards(bench: MakeBench) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222", nvidia_222=TypeOptions(mdev_class="CUSTOM_SMALL")))
    assert totals(host) == {CARD: {"CUSTOM_SMALL": 4}}
    _, [mine] = boot(host, Wanted(CARD, "CUSTOM_SMALL", 1))
    assert mine.resource_class == "CUSTOM_SMALL"


def test_a_function_of_the_accelerator_service_carries_no_vgpu(bench: MakeBench) -> None:
    spec = {"vendor_id": "10de", "product_id": "1db6", "type": "GPU"}
    wanted = replace(settings("nvidia-222"), accelerator_device_spec=(json.dumps(spec),))
    assert totals(bench(devices=[WHOLE], settings=wanted)) == {}


@pytest.mark.parametrize("options", [TypeOptions(), TypeOptions(display=True), TypeOptions(display=True, ramfb=True)])
def test_the_guests_display_is_its_vgpus_where_the_options_say_so(bench: MakeBench, options: TypeOptions) -> None:
    host = bench(devices=[WHOLE], settings=settings("nvidia-222", nvidia_222=options))
    server, [mine] = boot(host, ONE)
    [shown] = vgpus.guest_vgpus(host.host, server.uuid)
    assert (shown.uuid, shown.display, shown.ramfb) == (mine.uuid, options.display, options.ramfb)


def test_a_start_tells_which_types_the_options_leave_out(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    bench(devices=[WHOLE], settings=settings("nvidia-222", "nvidia-223"))
    assert "Host h1: type nvidia-223 of [devices]enabled_mdev_types is not offered" in caplog.text


def test_contradictory_options_stop_a_start_whose_discovery_fails(bench: MakeBench) -> None:
    twice = TypeOptions(("0000:3b:00.0", "0000:3b:00.0"))
    with pytest.raises(InvalidLibvirtMdevConfig, match="listed twice"):
        bench(
            devices=[WHOLE],
            settings=settings("nvidia-222", nvidia_222=twice),
            simulate={"discovery": "half"},
        )

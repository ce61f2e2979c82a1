"""Where we answer otherwise than Nova's released package, one by one, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jetbridge.numa.fit import ServerFit, fit_server
from jetbridge.numa.serial import guest_topology_from_json, host_topology_from_json
from jetbridge.pci.alias import parse_aliases
from jetbridge.pci.eligible import AffinityCells
from jetbridge.pci.fit import Choice, Refusal, fit, pick_devices
from jetbridge.pci.pool import pools_of
from jetbridge.pci.request import PciRequest
from tests.peer.process import Peer, PeerRaised
from tests.peer.test_agreement import devices_of, requests_of

IDS = {"vendor_id": "10de", "product_id": "1eb8"}
CELLS = [{"id": at, "cpus": [at], "pinnable": [], "memory_mb": 1, "siblings": [[at]], "socket": at} for at in range(2)]


def row(
    address: str, kind: str = "type-PCI", node: int | None = None, parent: str | None = None, **facts: Any
) -> dict[str, Any]:
    return {**IDS, "address": address, "dev_type": kind, "numa_node": node, "parent_addr": parent, **facts}


def wanted(number: int = 1, count: int = 1, policy: str | None = None, **properties: str) -> dict[str, Any]:
    return {
        "request_id": f"r{number}",
        "alias_name": f"a{number}",
        "requester_id": None,
        "count": count,
        "spec": [{**IDS, **properties}],
        "numa_policy": policy,
    }


def both(
    nova: Peer,
    rows: list[dict[str, Any]],
    requests: list[dict[str, Any]],
    cells: list[int] | None = None,
    lines: list[str] | None = None,
) -> tuple[Choice | Refusal, bool, tuple[PciRequest, ...]]:
    lines = lines or ["{}"]
    theirs = nova.ask("ask_fit", specs=lines, devices=rows, requests=requests, cells=cells, topology=CELLS)
    near = None if cells is None else AffinityCells(frozenset(cells), {0: 0, 1: 1})
    asked = requests_of(requests)
    return fit(pools_of(devices_of(rows, lines)), asked, near), theirs["fits"], asked


def test_1_the_numa_policy_is_asked_last(nova: Peer) -> None:
    """A PF on the guest's node satisfies Nova's policy step and is dropped after it; the VF of unknown node would do."""
    rows = [row("0000:10:00.0", "type-PF", 0), row("0000:20:00.1", "type-VF", None, "0000:20:00.0")]
    ours, theirs, _ = both(nova, rows, [wanted()], [0])
    assert (isinstance(ours, Choice), theirs) == (True, False)


def test_2_a_pf_and_its_vfs_are_never_counted_together(nova: Peer) -> None:
    """Nova's scheduler takes both for free; the claim finds out. Ours refuses at once (F12)."""
    rows = [row("0000:10:00.0", "type-PF"), row("0000:10:00.1", "type-VF", None, "0000:10:00.0")]
    ours, theirs, _ = both(nova, rows, [wanted(1, dev_type="type-PF"), wanted(2, dev_type="type-VF")])
    assert (isinstance(ours, Choice), theirs) == (False, False)
    assert isinstance(ours, Refusal)
    assert ours.reasons[0].rule == "pci.dependency"
    states = [
        [
            [
                {**IDS, "numa_node": None, "dev_type": kind, "count": 1, "address": "0000:10:00.0"}
                for kind in ("type-PF", "type-VF")
            ],
            [],
        ]
    ]
    requests = [wanted(1, dev_type="type-PF"), wanted(2, dev_type="type-VF")]
    assert nova.ask("time_filter_pass", states=states, requests=requests, repeat=1)["passed"] == 1


def test_3_a_request_leaves_the_devices_that_a_later_one_needs(nova: Peer) -> None:
    """Nova serves the first request with the first device, the only one that the second could have."""
    rows = [row("0000:10:00.0"), row("0000:20:00.0", product_id="1eb9")]
    either = {**wanted(1), "spec": [IDS, {**IDS, "product_id": "1eb9"}]}
    ours, theirs, _ = both(nova, rows, [either, wanted(2)])
    assert (isinstance(ours, Choice), theirs) == (True, False)
    assert isinstance(ours, Choice)
    assert [one.address for one in pick_devices(devices_of(rows, ["{}"]), ours)["r2"]] == ["0000:10:00.0"]


def guests(nova: Peer, host: list[dict[str, Any]], guest: dict[str, Any]) -> tuple[bool, bool]:
    cells = [
        {
            **cell,
            "pages": [{"size_kb": size, "total": total, "used": used} for size, total, used in cell.get("pages", ())],
        }
        for cell in host
    ]
    ours = fit_server(host_topology_from_json({"cells": cells}), guest_topology_from_json(guest), (), ())
    theirs = nova.ask("ask_numa", host=host, guest=guest, specs=["{}"], devices=[], requests=[], limits=None)
    return isinstance(ours, ServerFit), theirs


def test_4_isolate_never_fits_on_hyper_threads(nova: Peer) -> None:
    """Nova lets it where the CPUs are divided into no sets, by holding the siblings too; ours says no on every such host."""
    host = [
        {
            "id": 0,
            "cpus": [0, 1, 2, 3],
            "pinnable": [0, 1, 2, 3],
            "memory_mb": 1024,
            "siblings": [[0, 1], [2, 3]],
            "socket": 0,
        }
    ]
    cell = {"id": 0, "cpus": [], "pinned_cpus": [0], "memory_mb": 64, "page_request": None}
    assert guests(nova, host, {"cells": [cell], "cpu_policy": "dedicated", "thread_policy": "isolate"}) == (False, True)


def test_5_two_aliases_of_one_name_without_device_type_are_alternatives(nova: Peer) -> None:
    """Nova refuses them, with no other reason than the name of the key."""
    aliases = [json.dumps({"name": "GPU", "vendor_id": "10de", "product_id": product}) for product in ("1eb8", "1eb9")]
    assert len(parse_aliases(aliases)["GPU"].properties) == 2
    with pytest.raises(PeerRaised, match="PciInvalidAlias"):
        nova.ask("ask_alias", aliases=aliases, term="GPU:1")


def test_6_every_guest_cell_is_judged_for_itself(nova: Peer) -> None:
    """No host cell has pages enough for the third cell. Nova takes an answer about another cell for its."""
    pages = [[4, 524288, 0], [2048, 1024, 0]]
    host = [
        {"id": at, "cpus": [4 * at, 4 * at + 1], "pinnable": [], "memory_mb": 4096, "siblings": [[4 * at], [4 * at + 1]], "socket": 0, "pages": pages}
        for at in range(3)
    ]  # fmt: skip
    cells = [
        {"id": at, "cpus": [2 * at, 2 * at + 1], "pinned_cpus": [], "memory_mb": memory, "page_request": "large"}
        for at, memory in enumerate((2048, 1024, 3000))
    ]
    ours, theirs = guests(nova, host, {"cells": cells, "cpu_policy": None, "thread_policy": None})
    assert (ours, theirs) == (False, True)


def test_7_the_key_capability_type_is_no_property_of_a_device(nova: Peer) -> None:
    """Nova keeps it among the properties, so that no device has them."""
    alias = json.dumps({"name": "GPU", **IDS, "capability_type": "pci"})
    (_, _, properties, _), *_ = nova.ask("ask_alias", aliases=[alias], term="GPU:1")
    assert "capability_type" in properties[0]
    assert parse_aliases([alias])["GPU"].properties == (IDS,)


def test_8_devices_are_chosen_by_their_place(nova: Peer) -> None:
    """Nova takes the first pools in order, over as many cards as it needs; ours the smallest card that holds them (F13)."""
    rows = [row(f"0000:10:00.{at}", "type-VF", None, "0000:10:00.0") for at in (1, 2)]
    rows += [row(f"0000:20:00.{at}", "type-VF", None, "0000:20:00.0") for at in (1, 2, 3)]
    ours, theirs, _ = both(nova, rows, [wanted(count=3)])
    assert (isinstance(ours, Choice), theirs) == (True, True)
    assert isinstance(ours, Choice)
    assert {one.parent_addr for one in pick_devices(devices_of(rows, ["{}"]), ours)["r1"]} == {"0000:20:00.0"}


def test_9_pinned_cpus_are_not_shared_as_well(nova: Peer) -> None:
    """Where the CPUs are divided into no sets, Nova counts those of a pinned guest for shared guests too."""
    host = [
        {
            "id": 0,
            "cpus": [0, 1],
            "pinnable": [0, 1],
            "memory_mb": 1024,
            "siblings": [[0], [1]],
            "socket": 0,
            "pinned": [0],
        }
    ]
    cell = {"id": 0, "cpus": [0, 1], "pinned_cpus": [], "memory_mb": 64, "page_request": None}
    assert guests(nova, host, {"cells": [cell], "cpu_policy": None, "thread_policy": None}) == (False, True)

"""Thousands of questions, asked of Nova's released package and of us. Where the answers may differ stands in test_differences.py."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from jetbridge.errors import JetbridgeError
from jetbridge.numa.fit import ServerFit, fit_server
from jetbridge.numa.serial import guest_topology_from_json, host_topology_from_json
from jetbridge.numa.topology import NumaLimits
from jetbridge.pci.alias import parse_aliases
from jetbridge.pci.device import DeviceType, PciDevice, Status
from jetbridge.pci.device_spec import first_match, parse_device_specs
from jetbridge.pci.eligible import AffinityCells
from jetbridge.pci.fit import Choice, acceptable, fit, pick_devices
from jetbridge.pci.flavor import requests_from_flavor
from jetbridge.pci.pool import pool_key, pools_of
from jetbridge.pci.request import PciRequest, requests_from_json
from tests.peer.process import Peer, PeerRaised
from tests.peer.questions import Draw
from tests.unit.pci.build import Facts

QUESTIONS = 2000


def devices_of(rows: list[dict[str, Any]], lines: list[str]) -> list[PciDevice]:
    """As the inventory makes them: those without a line are left out."""
    specs, found = parse_device_specs(lines, Facts()), []
    for row in rows:
        spec = first_match(specs, row)
        if spec is not None:
            kind = DeviceType(row["dev_type"])
            facts = {key: row[key] for key in ("address", "vendor_id", "product_id", "numa_node", "parent_addr")}
            status = Status.AVAILABLE if row.get("free", True) else Status.ALLOCATED
            found.append(PciDevice(1, **facts, dev_type=kind, status=status, pool_tags=spec.pool_tags(kind)))
    return found


def requests_of(wanted: list[dict[str, Any]]) -> tuple[PciRequest, ...]:
    return requests_from_json({"requests": wanted})


def told(question: object) -> str:
    return json.dumps(question, indent=1)


def test_which_devices_lines_match_and_with_which_tags(nova: Peer) -> None:
    seen: Counter[str] = Counter()
    for seed in range(QUESTIONS):
        draw = Draw(seed)
        lines, devices = draw.lines(), [draw.device() for _ in range(6)]
        theirs: Any
        try:
            theirs = nova.ask("ask_match", specs=lines, devices=devices)
        except PeerRaised:
            theirs = "refused"
        ours: Any
        try:
            specs = parse_device_specs(lines, Facts())
            found = [first_match(specs, device) for device in devices]
            ours = [None if spec is None else dict(spec.tags) for spec in found]
        except JetbridgeError:
            ours = "refused"
        assert ours == theirs, told({"seed": seed, "lines": lines, "devices": devices, "ours": ours, "nova": theirs})
        seen.update(["refused"] if ours == "refused" else ["no" if tags is None else "yes" for tags in ours])
    assert min(seen["yes"], seen["no"]) > QUESTIONS // 4, seen


def repeats_without_type(aliases: list[str]) -> bool:
    """Difference 5: an alias of a name that is given twice has no device type."""
    known = [json.loads(alias) for alias in aliases]
    counts = Counter(alias["name"] for alias in known)
    return any(counts[alias["name"]] > 1 and "device_type" not in alias for alias in known)


def test_what_aliases_ask_for(nova: Peer) -> None:
    seen: Counter[str] = Counter()
    for seed in range(QUESTIONS // 2):
        draw = Draw(seed)
        aliases = []
        for _ in range(draw.one(1, 2, 3)):
            alias = {
                "name": draw.one("GPU", "NIC", "a b"),
                "vendor_id": draw.one("10de", "8086"),
                "product_id": draw.one("1eb8", "1eb9"),
            }
            for key, values in {
                "device_type": ("type-PCI", "type-PF", "type-VF", "type-X"),
                "numa_policy": ("legacy", "preferred", "required", "socket", "other"),
                "live_migratable": ("true", "false"),
            }.items():
                if draw.chance(30):
                    alias[key] = draw.one(*values)
            aliases.append(json.dumps(alias))
        if repeats_without_type(aliases):
            seen["may differ"] += 1
            continue
        term = draw.one("GPU:1", "GPU:2,NIC:1", "NIC:1, GPU:1", "a b:1", "GPU:1,GPU:1", "OTHER:1")
        theirs: Any
        try:
            theirs = nova.ask("ask_alias", aliases=aliases, term=term)
        except PeerRaised:
            theirs = "refused"
        ours: Any
        try:
            wanted = requests_from_flavor({"pci_passthrough:alias": term}, {}, parse_aliases(aliases), lambda: "id")
            ours = [[one.alias_name, one.count, [dict(each) for each in one.spec], one.policy.value] for one in wanted]
        except JetbridgeError:
            ours = "refused"
        assert ours == theirs, told({"seed": seed, "aliases": aliases, "term": term, "ours": ours, "nova": theirs})
        seen["refused" if ours == "refused" else "taken"] += 1
    assert min(seen["refused"], seen["taken"]) > QUESTIONS // 20, seen


def judges_numa_too_early(devices: list[PciDevice], request: PciRequest) -> bool:
    """Difference 1: Nova asks the NUMA policy before it leaves out kinds that the request may not have."""
    alone = acceptable(pools_of(devices), PciRequest(**{**vars(request), "count": 1}))
    kept = {pool_key(pool) for pool in alone or ()}
    plain = [one for one in devices if one.status is Status.AVAILABLE and _has_properties(one, request)]
    return any(pool_key(one) not in kept for one in plain)


def _has_properties(device: PciDevice, request: PciRequest) -> bool:
    """By ids and tags alone, whatever its kind."""
    (pool,) = pools_of([replace(device, status=Status.AVAILABLE)])
    return any(
        all(
            (getattr(pool, name, None) or pool.tags.get(name) or "").lower() == str(value).lower()
            for name, value in wanted.items()
        )
        for wanted in request.spec
    )


def mixes_a_card(devices: list[PciDevice], requests: tuple[PciRequest, ...]) -> bool:
    """Difference 2: a PF and VFs of its card are candidates of the same server."""
    cards: dict[str, set[bool]] = {}
    for one in devices:
        if any(_has_properties(one, request) for request in requests) and one.status is Status.AVAILABLE:
            cards.setdefault(one.parent_addr or one.address, set()).add(one.dev_type is DeviceType.PF)
    return any(len(kinds) == 2 for kinds in cards.values())


def test_whether_devices_fit_and_which_are_acceptable(nova: Peer) -> None:
    seen: Counter[str] = Counter()
    for seed in range(2 * QUESTIONS):
        draw = Draw(seed)
        rows, lines, wanted = draw.host(), draw.host_lines(), draw.requests()
        cells = draw.one(None, [0], [1], [0, 1], [2])
        topology = [
            {"id": at, "cpus": [at], "pinnable": [], "memory_mb": 1, "siblings": [[at]], "socket": at // 2}
            for at in range(3)
        ]
        devices, requests = devices_of(rows, lines), requests_of(wanted)
        near = (
            None
            if cells is None
            else AffinityCells(frozenset(cells), {cell["id"]: cell["socket"] for cell in topology})
        )
        if mixes_a_card(devices, requests) or (near and any(judges_numa_too_early(devices, one) for one in requests)):
            seen["may differ"] += 1
            continue
        theirs = nova.ask("ask_fit", specs=lines, devices=rows, requests=wanted, cells=cells, topology=topology)
        pools = pools_of(devices)
        answer = fit(pools, requests, near)
        alone = []
        for request in requests:
            could = acceptable(pools, request, near)
            keys = {pool_key(pool) for pool in could or ()}
            free = [one.address for one in devices if one.status is Status.AVAILABLE and pool_key(one) in keys]
            alone.append(None if could is None else sorted(free))
        question = {
            "seed": seed,
            "lines": lines,
            "devices": rows,
            "requests": wanted,
            "cells": cells,
            "ours": alone,
            "nova": theirs,
        }
        # Nova says None, or no pools at all, for a request that can't be served.
        assert [each or None for each in alone] == [each or None for each in theirs["alone"]], told(question)
        ours = isinstance(answer, Choice)
        if ours and not theirs["fits"]:
            # Difference 3: Nova serves each request with the first devices, whatever the next one needs.
            assert len(requests) > 1, told(question)
            given = [one.address for each in pick_devices(devices, answer).values() for one in each]
            assert len(given) == len(set(given)) == sum(request.count for request in requests), told(question)
            seen["only ours"] += 1
            continue
        assert ours == theirs["fits"], told(question)
        seen["yes" if ours else "no"] += 1
    assert min(seen["yes"], seen["no"]) > QUESTIONS // 10, seen
    assert seen["only ours"] < QUESTIONS // 20, seen


def isolates_on_threads(host: list[dict[str, Any]], guest: dict[str, Any]) -> bool:
    """Difference 4: thread policy isolate on a host that has hyper-threads and divides its CPUs into no sets."""
    undivided = host[0]["cpus"] == host[0]["pinnable"]
    return guest["thread_policy"] == "isolate" and undivided and len(host[0]["siblings"][0]) > 1


def shares_pinned(host: list[dict[str, Any]], guest: dict[str, Any]) -> bool:
    """Difference 9: shared CPUs on a host that divides its CPUs into no sets and has pinned some."""
    return any(set(cell["cpus"]) & set(cell["pinned"]) for cell in host) and any(
        cell["cpus"] for cell in guest["cells"]
    )


def differ(guest: dict[str, Any]) -> bool:
    """Difference 6: Nova takes one guest cell's answer for another's when cells that want different things share a cache."""
    wants = {(len(cell["cpus"]), len(cell["pinned_cpus"]), cell["memory_mb"]) for cell in guest["cells"]}
    return len(wants) > 1 or (guest["emulator_isolate"] and len(guest["cells"]) > 1)


def test_whether_guest_cells_fit(nova: Peer) -> None:
    seen: Counter[str] = Counter()
    for seed in range(QUESTIONS):
        draw = Draw(seed)
        host, guest = draw.host_cells(), draw.guest()
        if isolates_on_threads(host, guest) or differ(guest) or shares_pinned(host, guest):
            seen["may differ"] += 1
            continue
        rows, wanted = [], []
        if draw.chance(50):
            count = draw.random.randrange(1, 5)
            rows = [
                {"address": f"0000:{at + 16:02x}:00.0", "vendor_id": "10de", "product_id": "1eb8", "dev_type": "type-PCI", "numa_node": draw.one(None, 0, 1, 2), "parent_addr": None}
                for at in range(count)
            ]  # fmt: skip
            wanted = [
                {**draw.request(0), "spec": [{"vendor_id": "10de", "product_id": "1eb8"}], "count": draw.one(1, 1, 2)}
            ]
        limits = draw.one(None, [4.0, 1.0], [1.0, 1.0])
        ours_host = host_topology_from_json({"cells": [{**cell, "pages": _pages(cell)} for cell in host]})
        answer = fit_server(
            ours_host,
            guest_topology_from_json(guest),
            pools_of(devices_of(rows, ["{}"])),
            requests_of(wanted),
            limits=NumaLimits(*limits) if limits else None,
        )
        theirs = nova.ask(
            "ask_numa", host=host, guest=guest, specs=["{}"], devices=rows, requests=wanted, limits=limits
        )
        ours = isinstance(answer, ServerFit)
        question = {"seed": seed, "host": host, "guest": guest, "devices": rows, "requests": wanted, "limits": limits}
        assert ours == theirs, told({**question, "ours": str(answer), "nova": theirs})
        seen["yes" if ours else "no"] += 1
    assert min(seen["yes"], seen["no"]) > QUESTIONS // 10, seen


def _pages(cell: dict[str, Any]) -> list[dict[str, int]]:
    return [{"size_kb": size, "total": total, "used": used, "reserved": 0} for size, total, used in cell["pages"]]


def test_the_peer_is_the_release_that_is_compared_with(nova: Peer) -> None:
    assert nova.ask("ask_version") == "34.0.0"


def test_what_the_peer_raises_is_told(nova: Peer) -> None:
    with pytest.raises(PeerRaised, match="PciConfigInvalidSpec"):
        nova.ask("ask_match", specs=["nothing"], devices=[])

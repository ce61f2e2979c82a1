"""What servers hold of cells, and topologies as the tables keep them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jetbridge.numa.fit import ServerFit, fit_server
from jetbridge.numa.serial import topology_from_json, topology_to_json
from jetbridge.numa.topology import GuestTopology, HostCell, HostTopology, PagePool
from jetbridge.numa.usage import with_usage
from tests.unit.numa.build import guest, host, host_cell

HOST = host(
    host_cell(0, shared=2, dedicated=4, threads=2, socket=0, pages=[[4, 262144], [2048, 1024, 0, 8]]),
    host_cell(1, shared=2, dedicated=4, threads=2, socket=1, pages=[[4, 262144], [2048, 1024]]),
)


def fitted(topology: HostTopology, asked: GuestTopology) -> GuestTopology:
    answer = fit_server(topology, asked, (), ())
    assert isinstance(answer, ServerFit)
    assert answer.guest is not None
    return answer.guest


def test_usage_adds_up_and_the_host_stays_as_it_was() -> None:
    first = fitted(HOST, guest(2, shared=1, dedicated=2, memory_mb=512, page="large", emulator_isolate=True))
    used = with_usage(HOST, [first])
    assert [(cell.cpu_usage, cell.memory_usage_mb, sorted(cell.pinned)) for cell in used.cells] == [
        (1, 512, [0, 1, 2]),
        (1, 512, [100, 101]),
    ]
    assert used.cells[0].pages == (PagePool(4, 262144), PagePool(2048, 1024, 256, 8))
    assert [replace(cell, pinned=frozenset(), cpu_usage=0, memory_usage_mb=0, pages=()) for cell in used.cells] == [
        replace(cell, pages=()) for cell in HOST.cells
    ]
    twice = with_usage(HOST, [first, fitted(used, guest(shared=1, memory_mb=512))])
    assert sum(cell.memory_usage_mb for cell in twice.cells) == 1536


def test_memory_without_a_page_size_lies_in_the_smallest_pages() -> None:
    used = with_usage(HOST, [fitted(HOST, guest(shared=1, memory_mb=512))])
    assert used.cells[0].pages[0].used == 512 * 1024 // 4
    assert used.cells[0].pages[1].used == 0


def test_a_guest_that_is_not_placed_or_whose_cell_is_gone_holds_nothing() -> None:
    assert with_usage(HOST, [guest(shared=1)]) is HOST
    lost = fitted(host(host_cell(7, shared=1)), guest(shared=1))
    assert with_usage(HOST, [lost]) == HOST


@pytest.mark.parametrize(
    "topology",
    [
        HOST,
        HostTopology(()),
        with_usage(HOST, [fitted(HOST, guest(2, shared=1, dedicated=1))]),
        guest(2, shared=1, dedicated=1, page="2048", thread_policy="prefer"),
        fitted(HOST, guest(2, dedicated=2, page="any", emulator_isolate=True)),
        replace(guest(shared=1), emulator_share=True),
    ],
)
def test_stored_and_read_again_it_is_the_same(topology: HostTopology | GuestTopology) -> None:
    stored = json.dumps(topology_to_json(topology), sort_keys=True)
    again = topology_from_json(json.loads(stored))
    assert again == topology
    assert json.dumps(topology_to_json(again), sort_keys=True) == stored


def test_what_an_older_agent_stored_is_read_with_defaults() -> None:
    cell = {"id": 0, "cpus": [0], "pinnable": [], "memory_mb": 512, "pages": [{"size_kb": 4, "total": 131072}]}
    assert topology_from_json({"kind": "host", "cells": [cell]}) == host(
        replace(host_cell(0, shared=1, memory_mb=512, pages=[[4, 131072]]), siblings=(), socket=None)
    )
    assert topology_from_json({"kind": "host", "cells": [{**cell, "pages": []}]}) == host(
        HostCell(id=0, cpus=frozenset({0}), pinnable=frozenset(), memory_mb=512)
    )
    guest_cell = {"id": 0, "cpus": [0], "pinned_cpus": [], "memory_mb": 512}
    assert topology_from_json({"kind": "guest", "cells": [guest_cell]}) == guest(shared=1, memory_mb=512)


def test_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind='flock'"):
        topology_from_json({"kind": "flock", "cells": []})

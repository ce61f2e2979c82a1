"""What a host's accelerators are in Placement."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from jetbridge.compute.accelerator_source import AcceleratorSource
from jetbridge.compute.inventory import take_inventory
from jetbridge.db import accelerators, arqs, compute_nodes, servers
from jetbridge.db.connection import Connection
from jetbridge.model.accelerator import Arq, ArqState
from jetbridge.model.provider import Inventory, Seen
from tests.unit.compute.conftest import T4, Bench, MakeBench
from tests.unit.compute.test_accelerators import GPUS, known, lines

NAME = "h1_accelerator_0000:01:00.0"


@pytest.fixture
def host(bench: MakeBench) -> Bench:
    return bench(devices=GPUS[:1], **lines({**T4, "type": "GPU", "traits": "CUSTOM_A"}))


def contribution(host: Bench, seen: dict[str, Seen] | None = None) -> Any:
    with host.host.database.read() as conn:
        node = compute_nodes.of_host(conn, "h1")
    return AcceleratorSource().contribute(host.host, node, seen)


def total(host: Bench) -> Inventory:
    (child,) = contribution(host).children
    inventory: Inventory = child.inventories["PGPU"]
    return inventory


def test_a_function_is_a_provider(host: Bench) -> None:
    (child,) = contribution(host).children
    assert child.name == NAME
    assert child.inventories == {"PGPU": Inventory(total=1, max_unit=1, reserved=0, allocation_ratio=1.0)}
    assert child.traits == {"CUSTOM_A", "OWNER_CYBORG", "CUSTOM_GPU_PRODUCT_ID_1EB8"}
    assert contribution(host) == contribution(host)


def test_what_cannot_be_given_now_is_reserved(host: Bench) -> None:
    (card,) = known(host)
    host.host.database.write(lambda conn: accelerators.set_enabled(conn, card.id, False))
    assert total(host).reserved == 1
    host.host.database.write(lambda conn: accelerators.set_enabled(conn, card.id, True))
    assert total(host).reserved == 0
    host.change({"devices": GPUS[:1], "simulate": {"discovery": "raise"}})
    take_inventory(host.host)
    assert total(host).reserved == 1


def test_its_provider_is_noted_once(host: Bench) -> None:
    with host.host.database.read() as conn:
        node = compute_nodes.of_host(conn, "h1")
    for _ in range(2):
        AcceleratorSource().reported(host.host, node, {NAME: "rp"}, {})
        (card,) = known(host)
        assert card.rp_uuid == "rp"
        with host.host.database.read() as conn:
            assert compute_nodes.of_host(conn, "h1").generation == node.generation + 1


def test_a_server_lacks_only_what_is_not_allocated(host: Bench) -> None:
    server = host.server()
    (card,) = known(host)
    arq = Arq(str(uuid.uuid4()), ArqState.INITIAL, "p", "infer", 0, {"resources:PGPU": "1"})

    def give(conn: Connection) -> None:
        arqs.create(conn, [arq])
        arqs.change(conn, arq.uuid, ArqState.BIND_STARTED, hostname="h1", instance_uuid=server.uuid)
        accelerators.take(conn, card.handles[0].id, arq.uuid)

    host.host.database.write(give)
    assert contribution(host, {NAME: Seen()}).heal == ()  # it is on no host yet: whoever builds it allocates
    host.host.database.write(lambda conn: servers.place(conn, server.uuid, "h1", "h1", host.node_id))
    assert contribution(host, {NAME: Seen()}).heal == ((server.uuid, NAME, "PGPU", 1),)
    allocated = Seen(allocations={server.uuid: {"PGPU": 1}})
    assert contribution(host, {NAME: allocated}).heal == ()
    assert contribution(host).heal == ()

"""Simulated hosts with vGPUs, and servers that get some: as far as vGPUs are concerned, there are no domains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jetbridge.compute import tracker, vgpus
from jetbridge.compute.inventory import take_inventory
from jetbridge.compute.reconcile import reconcile
from jetbridge.config.settings import Settings
from jetbridge.db import servers, vgpu_cards
from jetbridge.db import vgpus as rows
from jetbridge.mdev.choice import Wanted
from jetbridge.mdev.config import TypeOptions
from jetbridge.mdev.values import Vgpu
from jetbridge.model.server import Server, VmState
from jetbridge.virt.nodedev import parse_node_device
from jetbridge.virt.simulated import SimulatedConnection
from tests.unit.compute.conftest import CONTEXT, Bench

CARD = "pci_0000_3b_00_0"
WHOLE: dict[str, Any] = {
    "address": "0000:3b:00.0",
    "vendor_id": "10de",
    "product_id": "1db6",
    "driver": "nvidia",
    "mdev_types": {"nvidia-222": {"available": "4"}, "nvidia-223": {"available": "2"}},
}
SLICED: dict[str, Any] = {
    "address": "0000:65:00.0",
    "vendor_id": "10de",
    "product_id": "2235",
    "driver": "nvidia",
    "pf": {"vfs": "16"},
    "mdev_types": {"nvidia-712": {"available": "1", "max_instance": "4"}},
}
VENDOR: dict[str, Any] = {
    **{name: value for name, value in SLICED.items() if name != "mdev_types"},
    "pf": {"vfs": "4"},
    "vgpu_types": {"558": {"name": "NVIDIA L40S-4Q", "max_instance": "2"}},
}
FOREIGN = "c0ffee00-0000-4000-8000-000000000001"


def settings(*types: str, **sections: TypeOptions) -> Settings:
    return Settings(
        enabled_mdev_types=types, mdev_types={name.replace("_", "-"): one for name, one in sections.items()}
    )


def simulated(bench: Bench) -> SimulatedConnection:
    connection = bench.host.connection
    assert isinstance(connection, SimulatedConnection)
    return connection


def claim(bench: Bench, *wanted: Wanted, server: Server | None = None) -> tuple[Server, tuple[Vgpu, ...]]:
    server = server or bench.server()
    reserve = vgpus.reserving(bench.host, CONTEXT, server.uuid, bench.node_id, wanted)
    claimed = tracker.claim(bench.host, CONTEXT, server.uuid, bench.selection(), reserve)
    return server, claimed.vgpus


def boot(bench: Bench, *wanted: Wanted) -> tuple[Server, tuple[Vgpu, ...]]:
    """As far as the vGPUs are concerned: there is no domain."""
    server, _ = claim(bench, *wanted)
    mine = vgpus.make(bench.host, CONTEXT, server.uuid)
    now = bench.host.now()
    bench.host.database.write(
        lambda conn: servers.update(
            conn, server.uuid, vm_state=VmState.ACTIVE, task_state=None, launched_at=now, now=now
        )
    )
    return server, mine


def delete(bench: Bench, server: Server) -> None:
    vgpus.let_go(bench.host, CONTEXT, server.uuid, bench.node_id)
    tracker.leave(bench.host, CONTEXT, server.uuid, bench.node_id)


def ours(bench: Bench) -> tuple[Vgpu, ...]:
    with bench.host.database.read() as conn:
        return rows.of_node(conn, bench.node_id)


def totals(bench: Bench) -> dict[str, dict[str, int]]:
    with bench.host.database.read() as conn:
        return {card.name: dict(card.totals) for card in vgpu_cards.of_node(conn, bench.node_id) if card.totals}


def existing(bench: Bench) -> dict[str, str]:
    """Parents of the mediated devices that are there, by UUID."""
    nodes = map(parse_node_device, simulated(bench).node_devices())
    return {node.mdev.uuid: node.parent or "" for node in nodes if node.mdev and node.path}


def carried(bench: Bench, number: int) -> str:
    return (bench.host.files.read_text(f"/sys/bus/pci/devices/0000:65:00.{number}/nvidia/current_vgpu_type") or "")[:-1]


def make_foreign(bench: Bench, parent: str = CARD, kind: str = "nvidia-222", uuid: str = FOREIGN) -> None:
    simulated(bench).create_mdev(
        f"<device><parent>{parent}</parent><capability type='mdev'><type id='{kind}'/><uuid>{uuid}</uuid></capability></device>"
    )


def with_settings(bench: Bench, changed: Settings) -> Bench:
    """The same host after its agent was started with other options."""
    again = replace(
        bench,
        host=replace(
            bench.host,
            settings=replace(
                bench.host.settings,
                enabled_mdev_types=changed.enabled_mdev_types,
                mdev_types=changed.mdev_types,
            ),
        ),
    )
    take_inventory(again.host, starting=True)
    reconcile(again.host, starting=True)
    return again


ONE = Wanted(CARD, "VGPU", 1)

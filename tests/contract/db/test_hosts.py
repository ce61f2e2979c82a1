"""Whether anybody has anything of a host: agents compare their ledgers only then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jetbridge.db import builds, compute_nodes, hosts, pci_devices, server_arqs, servers, vgpus
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.mdev.values import Kind, State, Vgpu
from jetbridge.model.accelerator import ServerArq
from jetbridge.model.server import NetworkRequest
from jetbridge.pci.device import Condition, Status
from tests.contract.db.rows import NOW, device, new_id, node, server

Fill = Callable[[Connection, ComputeNode], None]


def a_device(status: Status = Status.AVAILABLE, condition: Condition = Condition.OK) -> Fill:
    def fill(conn: Connection, on: ComputeNode) -> None:
        pci_devices.save(conn, [device(on.id, status=status, condition=condition)], now=NOW)

    return fill


def a_held_device_that_is_gone(conn: Connection, on: ComputeNode) -> None:
    a_device(condition=Condition.HELD)(conn, on)
    pci_devices.forget_node(conn, on.id, now=NOW)


def a_server(conn: Connection, on: ComputeNode) -> None:
    servers.place(conn, servers.create(conn, server()).uuid, on.host, on.hypervisor_hostname, on.id, now=NOW)


def a_server_that_is_gone(conn: Connection, on: ComputeNode) -> None:
    uuid = servers.create(conn, server()).uuid
    servers.place(conn, uuid, on.host, on.hypervisor_hostname, on.id, now=NOW)
    servers.soft_delete(conn, uuid, now=NOW)


def a_nic_of_a_server_that_is_gone(conn: Connection, on: ComputeNode) -> None:
    nic = NetworkRequest("data", "fa:16:3e:00:00:01", port_id="p1", host=on.host)
    servers.soft_delete(conn, servers.create(conn, server(networks=(nic,))).uuid, now=NOW)


def a_build(conn: Connection, on: ComputeNode) -> None:
    builds.start(conn, "s1", "process-1", host=on.host, now=NOW)


def a_build_that_ended(conn: Connection, on: ComputeNode) -> None:
    builds.finish(conn, builds.start(conn, "s1", "process-1", host=on.host, now=NOW).id, now=NOW)


def a_free_vgpu(conn: Connection, on: ComputeNode) -> None:
    parent = "pci_0000_65_00_0"
    vgpus.save(conn, on.id, [Vgpu(new_id(), Kind.MDEV, parent, parent, "nvidia-55", "VGPU", None, State.READY)])


def an_accelerator_request(conn: Connection, on: ComputeNode) -> None:
    server_arqs.insert(conn, [ServerArq("server", 7, "infer", "p", arq_uuid="arq")])
    server_arqs.bound_to(conn, "arq", on.hypervisor_hostname, "rp")


IN_USE: tuple[Fill, ...] = (
    a_server,
    a_build,
    a_nic_of_a_server_that_is_gone,
    a_free_vgpu,
    an_accelerator_request,
    a_device(Status.CLAIMED),
    a_device(Status.ALLOCATED),
    a_device(condition=Condition.HELD),
)
IDLE: tuple[Fill, ...] = (
    lambda conn, on: None,
    a_server_that_is_gone,
    a_build_that_ended,
    a_device(),
    a_device(Status.UNAVAILABLE),
    a_device(condition=Condition.CLEANING),
    a_held_device_that_is_gone,
)


@pytest.mark.parametrize(("fill", "idle"), [(fill, False) for fill in IN_USE] + [(fill, True) for fill in IDLE])
def test_a_host_is_idle_when_no_ledger_of_ours_knows_anybody_on_it(database: Database, fill: Fill, idle: bool) -> None:
    def write(conn: Connection) -> tuple[ComputeNode, ComputeNode]:
        on, other = (compute_nodes.upsert(conn, node(name, hypervisor_hostname=f"{name}.lab")) for name in ("h1", "h2"))
        fill(conn, on)
        return on, other

    on, other = database.write(write)
    with database.read() as conn:
        assert hosts.holds_nothing(conn, on) is idle
        assert hosts.holds_nothing(conn, other), "what is on one host is not on another"

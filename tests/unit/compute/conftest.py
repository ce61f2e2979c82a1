"""The agent's parts on a real database and a simulated host."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jetbridge.compute.host import AgentHost
from jetbridge.compute.inventory import take_inventory
from jetbridge.config.fleet import load_fleet
from jetbridge.config.overrides import apply_overrides
from jetbridge.config.settings import Settings
from jetbridge.db import compute_nodes, pci_devices, request_specs, servers
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.image.store import ImageDirectory
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.flavor import Flavor
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.server import PowerState, Server, TaskState, VmState
from jetbridge.model.verdict import Selection
from jetbridge.pci.device import PciDevice
from jetbridge.pci.request import NumaPolicy, PciRequest
from jetbridge.rpc.inprocess import InProcessBus
from jetbridge.virt.simulated import SimulatedConnection, open_fleet_host
from tests.schema import new_database

T4 = {"vendor_id": "10de", "product_id": "1eb8"}
CONTEXT = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-11111111-1111-1111-1111-111111111111")


@dataclass(frozen=True)
class Bench:
    """One host with its rows, and servers that wait to be placed on it."""

    host: AgentHost
    folder: Path

    @property
    def node_id(self) -> int:
        with self.host.database.read() as conn:
            return compute_nodes.of_host(conn, self.host.name).id

    def selection(self) -> Selection:
        """The host as a scheduler that looks now would choose it."""
        with self.host.database.read() as conn:
            node = compute_nodes.of_host(conn, self.host.name)
        return Selection(node.host, node.id, node.generation)

    def server(self, *requests: PciRequest, flavor: Flavor | None = None, **spec: Any) -> Server:
        flavor = flavor or Flavor(id=1, flavorid="f", name="f", vcpus=1, memory_mb=512, root_gb=1)
        made = Server(
            id=0,
            uuid=str(uuid.uuid4()),
            display_name="s",
            project_id=ADMIN_ID,
            user_id=ADMIN_ID,
            vm_state=VmState.BUILDING,
            task_state=TaskState.SCHEDULING,
            power_state=PowerState.NOSTATE,
            flavor=flavor,
            image_ref=None,
            created_at=utcnow(),
        )
        frozen = RequestSpec(made.uuid, ADMIN_ID, flavor, None, pci_requests=requests, **spec)

        def write(conn: Connection) -> Server:
            request_specs.create(conn, frozen)
            return servers.create(conn, made, pci_requests=requests, numa_topology=frozen.numa_topology)

        return self.host.database.write(write)

    def get(self, server: Server) -> Server:
        with self.host.database.read() as conn:
            return servers.get(conn, server.uuid)

    def devices(self) -> dict[str, PciDevice]:
        with self.host.database.read() as conn:
            return {device.address: device for device in pci_devices.of_host(conn, self.node_id)}

    def change(self, entry: Mapping[str, Any]) -> None:
        """Other hardware from now on."""
        connection = self.host.connection
        assert isinstance(connection, SimulatedConnection)
        connection.apply_hardware(_load(self.folder, entry))


def request(count: int = 1, policy: NumaPolicy | None = None, **spec: str) -> PciRequest:
    return PciRequest(str(uuid.uuid4()), count, ({**T4, **spec},), alias_name="GPU", numa_policy=policy)


def _load(folder: Path, entry: Mapping[str, Any]) -> Any:
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump({"hosts": [{"name": "h1", "vcpus": 8, "memory_mb": 8192, **entry}]}))
    return load_fleet(path).hosts[0]


MakeBench = Callable[..., Bench]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[MakeBench]:
    """``bench(devices=[...], device_spec=[...])``: a host whose first inventory is taken."""
    database = new_database(tmp_path / "db.sqlite3")
    pool = ThreadPoolExecutor(1)

    def make(device_spec: list[dict[str, Any]] | None = None, settings: Settings | None = None, **entry: Any) -> Bench:
        options = {"pci": {"device_spec": [T4] if device_spec is None else device_spec}}
        fleet_host = _load(tmp_path, entry)
        connection, files = open_fleet_host(fleet_host, tmp_path / "sim")
        host = AgentHost(
            name="h1",
            connection=connection,
            files=files,
            settings=apply_overrides(settings or Settings(), options, "test"),
            database=database,
            bus=InProcessBus(pool),
            images=ImageDirectory(database, tmp_path / "images"),
            owner="test",
            now=utcnow,
            new_id=lambda: str(uuid.uuid4()),
            disk_gb=fleet_host.disk_gb,
            random=os.urandom,
        )
        take_inventory(host, starting=True)
        return Bench(host, tmp_path)

    yield make
    pool.shutdown()
    database.close()


def reopened(bench: Bench, device_spec: list[dict[str, Any]]) -> Bench:
    """The same host in a process that started with another device_spec."""
    options = {"pci": {"device_spec": device_spec}}
    settings = apply_overrides(bench.host.settings, options, "test")
    return Bench(replace(bench.host, settings=settings), bench.folder)

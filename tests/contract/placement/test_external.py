"""A Placement as others run it, with its own policies: what we ask of it has to be allowed there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jetbridge.config.settings import Settings
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.records import ConsumerAllocations
from jetbridge.placement.session import placement_adapter
from jetbridge.placement.transport import Transport
from tests.conftest import DatabaseServers
from tests.servers.external_placement import ExternalPlacement
from tests.unit.scheduler.build import new_id


def test_allocations_are_healed_in_one_step_with_inventories(database_server: DatabaseServers, tmp_path: Path) -> None:
    server = ExternalPlacement(database_server("postgresql").new_database(), tmp_path / "placement.log")
    try:
        client = PlacementClient(Transport(placement_adapter(Settings(placement_endpoint_override=server.url))))
        provider = client.create_provider(new_id(), "gpu1")
        consumer = new_id()
        held = ConsumerAllocations(project="project", user="user", by_provider={provider.uuid: {"VGPU": 1}})
        inventories = {provider.uuid: (provider.generation, {"VGPU": {"total": 1}})}
        client.reshape(inventories, {consumer: held})
        assert replace(client.allocations(consumer), generation=None) == held
    finally:
        server.stop()

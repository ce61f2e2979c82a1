"""NICs and ports as rows, and what became of NICs that were JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext

from jetbridge.db import interfaces, ports, servers
from jetbridge.db.engine import Database
from jetbridge.db.migrations.runner import _scripts
from jetbridge.db.tables import metadata
from jetbridge.errors import Conflict, NotFound
from jetbridge.model.network import Port
from jetbridge.model.server import NetworkRequest
from jetbridge.pci.port import VnicType
from jetbridge.pci.request import NumaPolicy
from tests.contract.db.rows import NOW, new_id, server

VF = NetworkRequest(
    "data", "fa:16:3e:00:00:01", "t", "n1", "p1", VnicType.DIRECT, "r1", made=False, fixed_ips=("10.0.0.1",), host="h1"
)
PLAIN = NetworkRequest("default", "fa:16:3e:00:00:02", network_id="n0")


def test_nics_are_kept_in_order_and_changed_one_by_one(database: Database) -> None:
    stored = database.write(lambda conn: servers.create(conn, server(networks=(VF, PLAIN))))
    with database.read() as conn:
        first, second = interfaces.of_server(conn, stored.uuid)
        assert (first, second) == (VF, PLAIN)
        assert interfaces.of_host(conn, "h1") == {stored.uuid: (VF,)}
        assert interfaces.holder(conn, "p1") == stored.uuid
        assert interfaces.unsettled(conn) == frozenset()
    database.write(
        lambda conn: interfaces.update(conn, second.id, task="attach", port_id="p2", mac="fa:16:3e:00:00:03")
    )
    with database.read() as conn:
        assert servers.get(conn, stored.uuid).networks == (VF,)  # what is being put in isn't one of its NICs yet
        assert interfaces.of_server(conn, stored.uuid)[1].port_id == "p2"
        assert interfaces.unsettled(conn) == {stored.uuid}
    database.write(lambda conn: servers.soft_delete(conn, stored.uuid, now=NOW))
    with database.read() as conn:
        assert interfaces.of_server(conn, stored.uuid) == (VF,)  # its host still has to release it
    database.write(lambda conn: interfaces.update(conn, first.id, host=None))
    database.write(lambda conn: interfaces.forget(conn, stored.uuid))
    with database.read() as conn:
        assert interfaces.of_server(conn, stored.uuid) == ()


def test_a_port_is_read_as_it_was_stored(database: Database) -> None:
    full = Port(
        "p1",
        "n1",
        "project",
        "fa:16:3e:00:00:01",
        name="p",
        vnic_type=VnicType.VDPA,
        profile={"trusted": "true", "vf_num": 0},
        host="h1",
        device_id="s1",
        device_owner="compute:nova",
        vif_type="hw_veb",
        vif_details={"vlan": "42"},
        fixed_ips=("10.0.0.1",),
        numa_policy=NumaPolicy.SOCKET,
        device_profile="d",
        description="text",
        admin_state_up=False,
    )
    database.write(lambda conn: ports.create(conn, full, now=NOW))
    with database.read() as conn:
        assert ports.get(conn, "p1") == full
        assert ports.listing(conn, device_id="s1", project_id="project") == (full,)
        assert ports.listing(conn, device_id="s2") == ports.listing(conn, project_id="other") == ()
        assert ports.of_network(conn, "n1") == 1
    with pytest.raises(Conflict, match="p1"):
        database.write(lambda conn: ports.create(conn, Port("p2", "n1", "project", full.mac)))
    assert database.write(lambda conn: ports.delete(conn, "p1"))
    with pytest.raises(NotFound):
        database.write(lambda conn: ports.save(conn, full))


def test_nics_that_were_json_become_rows_with_ports(empty_url: str) -> None:
    database = Database(empty_url)
    try:
        _upgrade_to(database, "0008")
        placed, waiting, gone = new_id(), new_id(), new_id()
        nics = json.dumps([{"network": "default", "mac": "fa:16:3e:00:00:01", "tag": None}])
        with database.engine.begin() as conn:
            for uuid, host, deleted in ((placed, "h1", 0), (waiting, None, 0), (gone, "h1", 3)):
                _insert_old(conn, uuid, host, deleted, nics)
        assert database.upgrade()
        with database.read() as conn:
            (nic,) = interfaces.of_server(conn, placed)
            (port,) = ports.listing(conn)
            assert (nic.port_id, nic.host, nic.network, nic.made) == (port.id, "h1", "default", True)
            assert (port.device_id, port.host, port.mac, port.network_id) == (placed, "h1", nic.mac, nic.network_id)
            (later,) = interfaces.of_server(conn, waiting)
            assert (later.port_id, later.host) == (None, None)
            assert interfaces.of_server(conn, gone) == ()
    finally:
        database.close()


def _upgrade_to(database: Database, revision: str) -> None:
    scripts = _scripts()
    with (
        database.engine.begin() as connection,
        EnvironmentContext(
            Config(), scripts, fn=lambda now, context: scripts._upgrade_revs(revision, now)
        ) as environment,
    ):
        environment.configure(connection=connection, target_metadata=metadata)
        environment.run_migrations()


def _insert_old(conn: Any, uuid: str, host: str | None, deleted: int, networks: str) -> None:
    values = {
        "uuid": uuid,
        "display_name": "s",
        "project_id": "p",
        "user_id": "u",
        "vm_state": "active",
        "power_state": 1,
        "flavorid": "f",
        "vcpus": 1,
        "memory_mb": 1,
        "root_gb": 1,
        "ephemeral_gb": 0,
        "swap_mb": 0,
        "config_drive": False,
        "launch_index": 0,
        "locked": False,
        "networks": networks,
        "host": host,
        "deleted": deleted,
        "created_at": NOW,
    }
    conn.execute(sa.table("instances", *(sa.column(name) for name in values)).insert().values(**values))

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.db import compute_nodes, networks
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.db.networks import HostNetwork
from jetbridge.errors import Invalid, NotFound
from jetbridge.network.embedded import get_network, list_networks, mac_address, network_id, resolve_networks
from tests.unit.api.doors import empty_database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "jetbridge.sqlite3").write_bytes(empty_database())
    database = Database(f"sqlite:///{tmp_path / 'jetbridge.sqlite3'}")
    yield database
    database.close()


def report(database: Database, host: str, *found: tuple[str, str]) -> None:
    """The agent of ``host`` says which networks it has, as (name, kind)."""

    def write(conn: Connection) -> None:
        node = ComputeNode(
            uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, host)),
            host=host,
            hypervisor_hostname=host,
            hypervisor_type="QEMU",
            hypervisor_version=9000000,
            vcpus=1,
            memory_mb=1,
            local_gb=1,
            cpu_allocation_ratio=1,
            ram_allocation_ratio=1,
            disk_allocation_ratio=1,
        )
        stored = compute_nodes.upsert(conn, node)
        networks.replace(conn, stored.id, [HostNetwork(name, kind) for name, kind in found])

    database.write(write)


def test_networks_of_all_hosts_appear_once_by_name(database: Database) -> None:
    report(database, "h1", ("default", "network"), ("br0", "bridge"))
    report(database, "h2", ("default", "network"), ("br0", "network"))
    assert [(network.name, network.kinds) for network in list_networks(database)] == [
        ("br0", ("bridge", "network")),
        ("default", ("network",)),
    ]


def test_network_is_found_by_id_and_by_name(database: Database) -> None:
    report(database, "h1", ("default", "network"))
    assert get_network(database, "default") == get_network(database, network_id("default"))
    with pytest.raises(NotFound):
        get_network(database, "other")


@pytest.mark.parametrize(
    ("names", "requested", "resolved"),
    [
        (["a", "b"], "none", ()),
        (["a"], [], ()),
        (["a"], "auto", ("a",)),
        (["a", "default", "b"], "auto", ("default",)),
        (["a", "b"], ["b", "a", "b"], ("b", "a", "b")),
        (["a", "b"], [network_id("b"), "a"], ("b", "a")),
    ],
)
def test_what_is_asked_for_becomes_names_in_order(
    database: Database, names: Sequence[str], requested: Sequence[str], resolved: Sequence[str]
) -> None:
    report(database, "h1", *((name, "network") for name in names))
    assert resolve_networks(database, requested) == tuple(resolved)


@pytest.mark.parametrize(
    ("names", "requested", "words"),
    [
        (["a", "b"], "auto", ["auto", "'default'", "a, b"]),
        ([], "auto", ["virsh net-start"]),
        (["a"], ["a", "zz"], ["'zz'", "use one of a"]),
        (["a"], [network_id("zz")], [network_id("zz")]),
    ],
)
def test_networks_that_can_not_be_had_are_refused_with_the_choices(
    database: Database, names: Sequence[str], requested: Sequence[str], words: Sequence[str]
) -> None:
    report(database, "h1", *((name, "network") for name in names))
    with pytest.raises(Invalid) as refusal:
        resolve_networks(database, requested)
    assert [word for word in words if word not in refusal.value.message] == []


@given(st.text())
def test_mac_addresses_are_ours_and_depend_only_on_the_seed(seed: str) -> None:
    assert re.fullmatch(r"fa:16:3e(:[0-9a-f]{2}){3}", mac_address(seed))
    assert mac_address(seed) == mac_address(seed)


def test_mac_addresses_of_many_nics_differ() -> None:
    macs = {mac_address(f"server:{number}") for number in range(500)}
    assert len(macs) == 500

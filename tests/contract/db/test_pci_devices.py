from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetbridge.db import compute_nodes, pci_devices, servers
from jetbridge.db.engine import Database
from jetbridge.pci.device import Condition, DeviceType, PciDevice, Status
from jetbridge.pci.pool import Pool, pools_of
from tests.contract.db.rows import NOW, device, new_id, node, server


@pytest.fixture
def host(database: Database) -> int:
    return database.write(lambda conn: compute_nodes.upsert(conn, node())).id


def stored(database: Database, *devices: PciDevice) -> list[PciDevice]:
    return database.write(lambda conn: pci_devices.save(conn, devices))


def of_host(database: Database, host: int) -> list[PciDevice]:
    with database.read() as conn:
        return pci_devices.of_host(conn, host)


def test_a_device_comes_back_as_it_was_saved(database: Database, host: int) -> None:
    full = device(
        host,
        "0000:3b:00.4",
        product_id="26ba",
        dev_type=DeviceType.VF,
        status=Status.ALLOCATED,
        condition=Condition.LOST,
        dev_id="pci_0000_3b_00_4",
        label="label_10de_26ba",
        numa_node=None,
        parent_addr="0000:3b:00.0",
        instance_uuid=new_id(),
        request_id=new_id(),
        extra_info={
            "capabilities": '{"vpd": {"card_serial_number": "X9"}}',
            "managed": "false",
            "parent_ifname": "ens1",
        },
        pool_tags={"physical_network": None, "trusted": "true"},
        resource_class="CUSTOM_GPU",
        traits="CUSTOM_FAST",
        one_time_use=True,
        managed=False,
        serial="X9",
        stale_update={"numa_node": 1, "address": "0000:3b:00.4"},
    )
    (saved,) = stored(database, full)
    assert saved.id is not None
    assert of_host(database, host) == [replace(full, id=saved.id)]


def test_saving_again_updates_by_id(database: Database, host: int) -> None:
    first, second = stored(database, device(host, "0000:3b:00.0"), device(host, "0000:5e:00.0"))
    stored(database, replace(second, status=Status.CLAIMED, instance_uuid="s", request_id="r"))
    assert [found.status for found in of_host(database, host)] == [Status.AVAILABLE, Status.CLAIMED]
    with database.read() as conn:
        assert pci_devices.of_instance(conn, "s") == [
            replace(second, status=Status.CLAIMED, instance_uuid="s", request_id="r")
        ]
    assert first in of_host(database, host)


def test_f2_four_devices_removed_in_one_pass(database: Database, host: int) -> None:
    four = stored(database, *(device(host, f"0000:3b:00.{function}") for function in range(4)))
    gone = stored(database, *(replace(each, status=Status.REMOVED) for each in four))
    assert of_host(database, host) == []
    assert {each.status for each in gone} == {Status.DELETED}


def test_a_removed_row_stays_for_history_and_leaves_its_address_free(database: Database, host: int) -> None:
    (old,) = stored(database, device(host))
    new = device(host, product_id="1eb9")
    # In one save, in the order in which a synchronisation could give them.
    answers = stored(database, new, replace(old, status=Status.REMOVED))
    assert [found.product_id for found in of_host(database, host)] == ["1eb9"]
    assert {each.id for each in answers} >= {old.id}
    with database.read() as conn:
        query = f"SELECT deleted, deleted_at IS NOT NULL FROM pci_devices WHERE id = {old.id}"
        assert tuple(conn.exec_driver_sql(query).one()) == (old.id, 1)


def test_the_last_device_that_was_at_an_address_is_known(database: Database, host: int) -> None:
    for product in ("1eb8", "1eb9"):
        (old,) = stored(database, device(host, product_id=product, extra_info={"one_time_use": "used"}))
        stored(database, replace(old, status=Status.REMOVED))
    (there,) = stored(database, device(host, product_id="1eba"))
    with database.read() as conn:
        found = pci_devices.last_gone(conn, host, [there.address, "0000:ff:00.0"])
        assert pci_devices.last_gone(conn, host + 1, [there.address]) == {}
        assert pci_devices.last_gone(conn, host, []) == {}
    assert {address: (each.product_id, each.extra_info) for address, each in found.items()} == {
        there.address: ("1eb9", {"one_time_use": "used"})
    }


def test_a_device_that_was_never_stored_can_be_removed(database: Database, host: int) -> None:
    assert stored(database, device(host, status=Status.REMOVED)) == []
    assert of_host(database, host) == []


def test_two_devices_at_one_address_of_a_host_are_refused(database: Database, host: int) -> None:
    stored(database, device(host))
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        stored(database, device(host))


def test_pools_are_made_by_one_statement_for_all_hosts(database: Database, host: int) -> None:
    other = database.write(lambda conn: compute_nodes.upsert(conn, node("gpu002"))).id
    stored(
        database,
        device(host, "0000:3b:00.1", dev_type=DeviceType.VF, parent_addr="0000:3b:00.0", pool_tags={"net": "n1"}),
        device(host, "0000:3b:00.2", dev_type=DeviceType.VF, parent_addr="0000:3b:00.0", pool_tags={"net": "n1"}),
        device(host, "0000:5e:00.0"),
        device(other, "0000:3b:00.0", status=Status.CLAIMED),
        device(other, "0000:5e:00.0", condition=Condition.UNKNOWN),
        device(other, "0000:5f:00.0", numa_node=None),
    )
    statements: list[str] = []
    with database.statement_hook(statements.append), database.read() as conn:
        pools = pci_devices.pools(conn)
    assert len(statements) == 1
    assert "GROUP BY" in statements[0]
    assert pools == {
        host: (
            Pool("10de", "1eb8", 0, DeviceType.PCI, "0000:5e:00.0", 1),
            Pool("10de", "1eb8", 0, DeviceType.VF, "0000:3b:00.0", 2, {"net": "n1"}),
        ),
        other: (Pool("10de", "1eb8", None, DeviceType.PCI, "0000:5f:00.0", 1),),
    }
    with database.read() as conn:
        assert pci_devices.pools(conn, [other]).keys() == {other}
        assert pci_devices.pools(conn, []) == {}
        assert pci_devices.pools(conn, range(1, 2000)) == pools


tags = st.dictionaries(st.sampled_from(["a", "b"]), st.none() | st.sampled_from(["", "1", "é"]), max_size=2)


@st.composite
def hosts_devices(draw: st.DrawFn) -> list[dict[str, Any]]:
    addresses = draw(st.lists(st.integers(0, 31), unique=True, max_size=8))
    return [
        {
            "address": f"0000:3b:{slot:02x}.1",
            "parent_addr": draw(st.sampled_from([None, "0000:3b:00.0", "0000:3c:00.0"])),
            "dev_type": draw(st.sampled_from(DeviceType)),
            "numa_node": draw(st.sampled_from([None, 0, 1])),
            "status": draw(st.sampled_from([Status.AVAILABLE, Status.AVAILABLE, Status.ALLOCATED, Status.UNCLAIMABLE])),
            "condition": draw(st.sampled_from([Condition.OK, Condition.OK, Condition.CLEANING])),
            "pool_tags": draw(tags),
            "extra_info": draw(
                st.sampled_from(
                    [{}, {"parent_ifname": "e1"}, {"rp_uuid": "r1"}, {"fabric": "f"}, {"switch": "0000:01:00.0"}]
                )
            ),
        }
        for slot in addresses
    ]


@given(drawn=hosts_devices())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_grouped_query_makes_the_pools_of_the_pure_function(
    database: Database, host: int, drawn: list[dict[str, Any]]
) -> None:
    database.write(
        lambda conn: pci_devices.save(
            conn, [replace(each, status=Status.REMOVED) for each in pci_devices.of_host(conn, host)]
        )
    )
    stored(database, *(device(host, **values) for values in drawn))
    with database.read() as conn:
        grouped, pure = pci_devices.pools(conn).get(host, ()), pools_of(pci_devices.of_host(conn, host))
    assert grouped == pure
    assert [pool.groups for pool in grouped] == [pool.groups for pool in pure]


def test_the_listing_names_host_and_server(database: Database, host: int) -> None:
    guest = database.write(lambda conn: servers.create(conn, server("train")))
    stored(
        database,
        device(host, "0000:3b:00.0", status=Status.ALLOCATED, instance_uuid=guest.uuid),
        device(host, "0000:5e:00.0"),
    )
    with database.read() as conn:
        shown = [(row.host, row.device.address, row.server_name) for row in pci_devices.listing(conn)]
        assert shown == [("gpu001", "0000:3b:00.0", "train"), ("gpu001", "0000:5e:00.0", None)]
        assert [row.device.address for row in pci_devices.listing(conn, status=Status.AVAILABLE)] == ["0000:5e:00.0"]
        assert pci_devices.listing(conn, host="gpu002") == []
        assert pci_devices.counts_by_status(conn) == {
            (Status.ALLOCATED, Condition.OK): 1,
            (Status.AVAILABLE, Condition.OK): 1,
        }
        assert pci_devices.owners_of_host(conn, host) == {guest.uuid: 1}
        assert pci_devices.of_instances(conn, [guest.uuid, "other"]).keys() == {guest.uuid}


def test_eight_claims_at_once_take_eight_different_devices(database: Database, host: int) -> None:
    stored(database, *(device(host, f"0000:3b:00.{function}") for function in range(8)))
    together = threading.Barrier(8)

    def claim(number: int) -> str:
        together.wait(10)

        def take(conn: Any) -> str:
            compute_nodes.lock(conn, host)
            free = [each for each in pci_devices.of_host(conn, host) if each.status is Status.AVAILABLE]
            pci_devices.save(conn, [replace(free[-1], status=Status.CLAIMED, instance_uuid=f"s{number}")], now=NOW)
            return free[-1].address

        return database.write(take)

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(claim, range(8)))
    assert len(set(taken)) == 8
    with database.read() as conn:
        assert pci_devices.pools(conn) == {}
        assert compute_nodes.generations(conn) == {host: 9}


def test_thousands_of_devices_are_saved_in_one_transaction(database: Database, host: int) -> None:
    many = [device(host, f"{number:04x}:00:00.0") for number in range(4000)]
    assert len(stored(database, *many)) == 4000
    with database.read() as conn:
        assert len(pci_devices.pools(conn)[host]) == 4000

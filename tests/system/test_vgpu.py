"""vGPUs from the flavor to the guest: every layout of cards boots exactly what fits, and the first that doesn't fit is told why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jetbridge.cli.main import run
from jetbridge.placement.client import PlacementClient
from jetbridge.virt.guest import hostdevs_of, mdevs_of
from jetbridge.virt.simulated import SimulatedConnection
from tests.system.cloud import Cloud, host, running

A40 = {"vendor_id": "10de", "product_id": "2235", "driver": "nvidia"}
ONE, TWO, FOUR = {"resources:VGPU": "1"}, {"resources:VGPU": "2"}, {"resources:VGPU": "4"}
FOREIGN = "c0ffee00-0000-4000-8000-000000000001"


def card(bus: int, **more: Any) -> dict[str, Any]:
    return {"address": f"0000:{bus:02x}:00.0", **A40, **more}


def types(**available: int) -> dict[str, Any]:
    return {name.replace("_", "-"): {"available": str(number)} for name, number in available.items()}


def offering(*enabled: str, **sections: dict[str, Any]) -> dict[str, Any]:
    return {"devices": {"enabled_mdev_types": list(enabled)}} | {
        f"mdev_{name.replace('_', '-')}": options for name, options in sections.items()
    }


HOSTS = [
    host("busy", [card(0x3B, mdev_types=types(nvidia_222=8))], config=offering("nvidia-222")),
    host("whole", [card(0x3B, mdev_types=types(nvidia_222=16))], config=offering("nvidia-222")),
    host(
        "two",
        [card(0x3B, mdev_types=types(nvidia_222=4)), card(0x5E, mdev_types=types(nvidia_223=2))],
        config=offering(
            "nvidia-222",
            "nvidia-223",
            nvidia_222={"device_addresses": ["0000:3b:00.0"]},
            nvidia_223={"device_addresses": ["0000:5e:00.0"], "mdev_class": "CUSTOM_BIG"},
        ),
    ),
    host(
        "sliced",
        [
            card(
                0x65,
                pf={"vfs": 16, "max_vfs": 16},
                mdev_types={"nvidia-712": {"available": "1", "max_instance": "4"}},
            )
        ],
        config=offering("nvidia-712"),
    ),
    host(
        "vendor",
        [card(0x65, pf={"vfs": 4, "max_vfs": 4}, vgpu_types={"558": {"name": "L40S-4Q", "max_instance": "2"}})],
        config=offering("nvidia-558", nvidia_558={"max_instances": 2}),
    ),
    host(
        "pair",
        [card(0x3B, mdev_types=types(nvidia_222=4)), card(0x5E, mdev_types=types(nvidia_222=4))],
        config=offering("nvidia-222"),
    ),
    host(
        "capped",
        [card(0x3B, mdev_types=types(nvidia_222=16)), card(0x5E, mdev_types=types(nvidia_222=16))],
        config=offering("nvidia-222", nvidia_222={"max_instances": 10}),
    ),
    host("leaving", [card(0x3B, mdev_types=types(nvidia_222=2))], config=offering("nvidia-222")),
    host(
        "mixed",
        [card(0x65, pf={"vfs": 3, "max_vfs": 3}, mdev_types=types(nvidia_712=1, nvidia_713=1))],
        config=offering(
            "nvidia-712",
            "nvidia-713",
            nvidia_712={"device_addresses": ["0000:65:00.0"]},
            nvidia_713={"device_addresses": ["0000:65:00.1"], "mdev_class": "CUSTOM_BIG"},
        ),
    ),
]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with running(tmp_path_factory.mktemp("vgpu"), {"hosts": HOSTS}) as cloud:
        cloud.until(lambda: len(usages(cloud)) == 11, "all cards are in Placement", lambda: usages(cloud))
        yield cloud


@pytest.fixture
def clean(cloud: Cloud) -> Iterator[Cloud]:
    """The same product for all tests of the module: each leaves no server."""
    yield cloud
    for server_id in [row[0] for row in cloud.sql("SELECT uuid FROM instances WHERE deleted = 0")]:
        cloud.delete(server_id)
        cloud.wait_gone(server_id)
    assert {name: used for name, (used, _) in usages(cloud).items() if used} == {}
    assert cloud.sql("SELECT * FROM vgpus WHERE instance_uuid IS NOT NULL OR kind = 'vfio'") == []


def client_of(cloud: Cloud) -> PlacementClient:
    assert cloud.service is not None
    return cloud.service.placement


def usages(cloud: Cloud) -> dict[str, tuple[int, int]]:
    """Used and total of each card, by its provider's name."""
    client = client_of(cloud)
    found = {}
    for provider in client.providers():
        if provider.parent_uuid is not None:
            _, inventories = client.inventories(provider.uuid)
            total = sum(inventory["total"] for inventory in inventories.values())
            found[provider.name] = (sum(client.usages(provider.uuid).values()), total)
    return found


def flavor(cloud: Cloud, extra_specs: dict[str, str]) -> str:
    return cloud.flavor(f"f{len(cloud.sql('SELECT id FROM flavors'))}", extra_specs)


def boot(cloud: Cloud, on: str, extra_specs: dict[str, str], count: int = 1) -> list[dict[str, Any]]:
    flavor_id = flavor(cloud, extra_specs)
    made = [cloud.boot(flavor_id, availability_zone=f"nova:{on}") for _ in range(count)]
    return [cloud.wait(server_id, "ACTIVE", "ERROR") for server_id in made]


def refusal(servers: list[dict[str, Any]]) -> str:
    """What the only one of the servers that doesn't run is told; its user sees no more of it."""
    [message] = [server["fault"]["message"] for server in servers if server["status"] == "ERROR"]
    return str(message)


def statuses(servers: list[dict[str, Any]]) -> list[str]:
    return sorted(server["status"] for server in servers)


def held(cloud: Cloud, server_id: str) -> list[tuple[str, str, str]]:
    """Card, type and UUID of what a server has, in its guest's order."""
    return cloud.sql(  # type: ignore[return-value]
        "SELECT card, type, uuid FROM vgpus WHERE instance_uuid = :server ORDER BY id", server=server_id
    )


def guest(cloud: Cloud, server: dict[str, Any]) -> str:
    name = server["OS-EXT-SRV-ATTR:instance_name"]
    return str(cloud.domains(server["OS-EXT-SRV-ATTR:host"])[name]["live_xml"])


def simulated(cloud: Cloud, name: str) -> SimulatedConnection:
    assert cloud.service is not None
    connection = cloud.service.agents[name].host.connection
    assert isinstance(connection, SimulatedConnection)
    return connection


def made_on(cloud: Cloud, name: str) -> set[str]:
    return {str(record.uuid) for record in simulated(cloud, name)._machine.memory.mdevs.values() if record.active}


def test_one_card_boots_its_sixteen_and_tells_the_next_why(clean: Cloud) -> None:
    servers = boot(clean, "whole", ONE, 17)
    assert statuses(servers) == ["ACTIVE"] * 16 + ["ERROR"]
    assert "Placement has no free VGPU: card pci_0000_3b_00_0 has 0 of 16 VGPU free" in refusal(servers)
    assert usages(clean)["whole_pci_0000_3b_00_0"] == (16, 16)
    for server in servers:
        if server["status"] == "ACTIVE":
            [(_, _, uuid)] = held(clean, server["id"])
            assert mdevs_of(guest(clean, server)) == (uuid,)


def test_109_and_111_cards_of_two_types_are_asked_for_by_class(clean: Cloud) -> None:
    small, big = boot(clean, "two", ONE, 5), boot(clean, "two", {"resources:CUSTOM_BIG": "1"}, 3)
    assert statuses(small) == ["ACTIVE"] * 4 + ["ERROR"]
    assert statuses(big) == ["ACTIVE"] * 2 + ["ERROR"]
    # Each names the card of its class, and not the other one.
    assert "no free VGPU: card pci_0000_3b_00_0 has 0 of 4 VGPU free)" in refusal(small)
    assert "no free CUSTOM_BIG: card pci_0000_5e_00_0 has 0 of 2 CUSTOM_BIG free)" in refusal(big)
    kinds = {held(clean, server["id"])[0][:2] for server in small if server["status"] == "ACTIVE"}
    assert kinds == {("pci_0000_3b_00_0", "nvidia-222")}
    kinds = {held(clean, server["id"])[0][:2] for server in big if server["status"] == "ACTIVE"}
    assert kinds == {("pci_0000_5e_00_0", "nvidia-223")}


def test_f9_a_card_of_sixteen_vfs_boots_the_four_that_fit(clean: Cloud) -> None:
    assert usages(clean)["sliced_pci_0000_65_00_0"] == (0, 4)
    servers = boot(clean, "sliced", ONE, 5)
    assert statuses(servers) == ["ACTIVE"] * 4 + ["ERROR"]
    assert "no free VGPU: card pci_0000_65_00_0 has 0 of 4 VGPU free" in refusal(servers)
    assert usages(clean)["sliced_pci_0000_65_00_0"] == (4, 4)
    assert [name for name in usages(clean) if name.startswith("sliced")] == ["sliced_pci_0000_65_00_0"]


def test_f22_a_vendors_card_gives_vfs_with_a_type_and_takes_it_away(clean: Cloud) -> None:
    servers = boot(clean, "vendor", ONE, 3)
    assert statuses(servers) == ["ACTIVE", "ACTIVE", "ERROR"]
    assert "no free VGPU: card pci_0000_65_00_0 has 0 of 2 VGPU free" in refusal(servers)
    running_ = [server for server in servers if server["status"] == "ACTIVE"]
    addresses = {address for server in running_ for address in hostdevs_of(guest(clean, server))}
    assert addresses == {"0000:65:00.1", "0000:65:00.2"}
    assert "managed='no'" in guest(clean, running_[0]).replace('"', "'")
    files = simulated(clean, "vendor")._machine
    assert {files.vendor_type(address) for address in addresses} == {"558"}
    for server in running_:
        clean.delete(server["id"])
        clean.wait_gone(server["id"])
    assert {files.vendor_type(address) for address in addresses} == {"0"}
    assert statuses(boot(clean, "vendor", ONE, 2)) == ["ACTIVE", "ACTIVE"]


def test_107_one_request_for_two_servers_of_four_fills_two_cards_of_four(clean: Cloud) -> None:
    flavor_id = flavor(clean, FOUR)
    clean.boot(flavor_id, name="m", min_count=2, max_count=2, availability_zone="nova:pair")
    made = [row[0] for row in clean.sql("SELECT uuid FROM instances WHERE deleted = 0")]
    servers = [clean.wait(server_id, "ACTIVE", "ERROR") for server_id in made]
    assert statuses(servers) == ["ACTIVE", "ACTIVE"]
    assert usages(clean)["pair_pci_0000_3b_00_0"] == usages(clean)["pair_pci_0000_5e_00_0"] == (4, 4)
    told = "no free VGPU: card pci_0000_3b_00_0 has 0 of 4 VGPU free, card pci_0000_5e_00_0 has 0 of 4 VGPU free"
    assert told in refusal(boot(clean, "pair", ONE))


def test_two_of_one_group_may_come_of_two_cards(clean: Cloud) -> None:
    [first, second] = boot(clean, "pair", {"resources:VGPU": "3"}, 2)
    assert {first["status"], second["status"]} == {"ACTIVE"}
    [split] = boot(clean, "pair", TWO)
    assert split["status"] == "ACTIVE"
    assert {kept for kept, _, _ in held(clean, split["id"])} == {"pci_0000_3b_00_0", "pci_0000_5e_00_0"}
    assert mdevs_of(guest(clean, split)) == tuple(uuid for _, _, uuid in held(clean, split["id"]))
    assert "no free VGPU: card pci_0000_3b_00_0" in refusal(boot(clean, "pair", ONE))


def test_108_isolated_groups_need_two_cards(clean: Cloud) -> None:
    apart = {"resources1:VGPU": "1", "resources2:VGPU": "1", "group_policy": "isolate"}
    [server] = boot(clean, "pair", apart)
    assert server["status"] == "ACTIVE"
    assert {kept for kept, _, _ in held(clean, server["id"])} == {"pci_0000_3b_00_0", "pci_0000_5e_00_0"}
    [refused] = boot(clean, "whole", apart)
    assert "isolate asks: card pci_0000_3b_00_0 has 16 of 16 VGPU free" in refusal([refused])
    [together] = boot(clean, "whole", {**apart, "group_policy": "none"})
    assert together["status"] == "ACTIVE"


def test_110_a_cap_fills_one_card_and_leaves_the_other_without_a_provider(clean: Cloud) -> None:
    shown = {name: total for name, (_, total) in usages(clean).items() if name.startswith("capped")}
    assert shown == {"capped_pci_0000_3b_00_0": 10}
    assert statuses(boot(clean, "capped", {"resources:VGPU": "10"})) == ["ACTIVE"]
    clean.update_resources("capped")
    assert "no free VGPU: card pci_0000_3b_00_0 has 0 of 10 VGPU free" in refusal(boot(clean, "capped", ONE))
    shown = {name: total for name, (_, total) in usages(clean).items() if name.startswith("capped")}
    assert shown == {"capped_pci_0000_3b_00_0": 10}


def test_groups_of_two_classes_may_come_of_one_card(clean: Cloud) -> None:
    both = {"resources1:VGPU": "2", "resources2:CUSTOM_BIG": "1", "group_policy": "none"}
    [server] = boot(clean, "mixed", both)
    assert server["status"] == "ACTIVE"
    assert sorted(kind for _, kind, _ in held(clean, server["id"])) == ["nvidia-712", "nvidia-712", "nvidia-713"]
    assert "no free 2 VGPU: card pci_0000_65_00_0 has 0 of 2 VGPU free" in refusal(boot(clean, "mixed", both))


def test_groups_of_several_sizes_may_come_of_one_card_or_of_two(clean: Cloud) -> None:
    [one] = boot(clean, "busy", {"resources1:VGPU": "5", "resources2:VGPU": "1", "group_policy": "none"})
    assert (one["status"], len(held(clean, one["id"]))) == ("ACTIVE", 6)
    [two] = boot(clean, "pair", {"resources:VGPU": "4", "resources1:VGPU": "4"})
    assert (two["status"], len(held(clean, two["id"]))) == ("ACTIVE", 8)


def test_a_trait_that_an_operator_set_on_a_card_chooses_it_and_stays(clean: Cloud) -> None:
    client = client_of(clean)
    [chosen] = [one for one in client.providers() if one.name == "pair_pci_0000_5e_00_0"]
    client.ensure_trait("CUSTOM_FAST")
    generation, traits = client.traits(chosen.uuid)
    client.set_traits(chosen.uuid, generation, traits | {"CUSTOM_FAST"})
    fast = {**ONE, "trait:CUSTOM_FAST": "required"}
    servers = boot(clean, "pair", fast, 5)
    assert statuses(servers) == ["ACTIVE"] * 4 + ["ERROR"]
    cards = {held(clean, server["id"])[0][0] for server in servers if server["status"] == "ACTIVE"}
    assert cards == {"pci_0000_5e_00_0"}
    clean.update_resources("pair")
    assert client.traits(chosen.uuid)[1] == {"OWNER_NOVA", "CUSTOM_FAST"}
    told = (
        "pci_0000_3b_00_0 has 4 of 4 VGPU free and lacks trait CUSTOM_FAST, card pci_0000_5e_00_0 has 0 of 4 VGPU free"
    )
    assert told in refusal(servers)


def test_the_commands_list_types_and_vgpus_with_their_servers(
    clean: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JETBRIDGE_STATE_DIR", str(clean.state))
    monkeypatch.delenv("JETBRIDGE_URL", raising=False)

    def answer(*arguments: str) -> list[dict[str, Any]]:
        assert run([*arguments, "--json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    [server] = boot(clean, "two", {"resources:CUSTOM_BIG": "1"})
    offered = {
        (one["parent"], one["type"]): (one["resource_class"], one["used"], one["total"])
        for one in answer("vgpu", "types", "--host", "two")
    }
    assert offered == {
        ("pci_0000_3b_00_0", "nvidia-222"): ("VGPU", 0, 4),
        ("pci_0000_5e_00_0", "nvidia-223"): ("CUSTOM_BIG", 1, 2),
    }
    assert {one["host"] for one in answer("vgpu", "types")} == {each["name"] for each in HOSTS}
    [(card, kind, uuid)] = held(clean, server["id"])
    [mine] = [one for one in answer("vgpu", "list", "--host", "two") if one["instance_uuid"]]
    assert (mine["uuid"], mine["parent"], mine["type"], mine["instance_uuid"]) == (uuid, card, kind, server["id"])
    assert run(["vgpu", "list", "--host", "two"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if uuid in line]
    assert line.split() == [uuid, "two", card, kind, "ready", "s"]
    assert run(["vgpu", "types", "--host", "nowhere"]) == 3
    capsys.readouterr()
    [[shown]] = [one["vgpus"] for one in answer("servers") if one["id"] == server["id"]]
    assert shown == {"uuid": uuid, "type": kind, "held_as": uuid}
    assert run(["servers"]) == 0
    assert uuid in next(line for line in capsys.readouterr().out.splitlines() if server["id"] in line)


def test_the_audit_compares_vgpus_with_guests_and_placement(clean: Cloud) -> None:
    def found() -> list[tuple[str, str, str]]:
        answer = clean.client.get(f"{clean.url}/jetbridge/v1/audit", params={"host": "two"}).json()
        assert answer["unseen"] == {}
        return [(each["ledger"], each["subject"], each["text"]) for each in answer["findings"]]

    [server] = boot(clean, "two", ONE)
    name, mine = server["OS-EXT-SRV-ATTR:instance_name"], server["id"]
    [(_, _, uuid)] = held(clean, mine)
    assert found() == []
    provider = "two_pci_0000_3b_00_0"
    lacking = ("allocations", provider, f"server {mine} owns 0 of its vGPUs and has 1 of it allocated")
    own = "UPDATE vgpus SET instance_uuid = :owner WHERE uuid = :uuid"
    clean.change(own, owner=None, uuid=uuid)
    assert found() == [("domains", uuid, f"is nobody's, and domain {name} runs with it"), lacking]
    clean.change(own, owner=FOREIGN, uuid=uuid)
    assert found() == [
        ("vgpus", uuid, f"is held by server {FOREIGN}, which does not live here"),
        ("domains", uuid, f"is server {FOREIGN}'s, and domain {name} runs with it"),
        *sorted(
            [lacking, ("allocations", provider, f"server {FOREIGN} owns 1 of its vGPUs and has 0 of it allocated")]
        ),
    ]
    clean.change(own, owner=mine, uuid=uuid)
    clean.act(mine, "os-stop")
    clean.wait(mine, "SHUTOFF")
    simulated(clean, "two").destroy_mdev(f"mdev_{uuid.replace('-', '_')}_0000_3b_00_0")
    assert found() == [("vgpus", uuid, "(nvidia-222) is not on pci_0000_3b_00_0")]
    clean.update_resources("two")
    assert found() == []


def test_114_what_cant_be_done_with_a_vgpu_is_refused_and_the_guest_runs_on(clean: Cloud) -> None:
    [server] = boot(clean, "whole", ONE)
    kept = held(clean, server["id"])
    for action in ("suspend", "resize", "migrate", "os-migrateLive", "rebuild", "rescue", "shelve", "createImage"):
        answer = clean.client.post(f"/servers/{server['id']}/action", json={action: None})
        assert answer.status_code == 400, action
        assert "There is no such action" in answer.json()["badRequest"]["message"]
    [(_, _, uuid)] = kept
    assert mdevs_of(guest(clean, server)) == (uuid,)
    assert (clean.show(server["id"])["status"], held(clean, server["id"])) == ("ACTIVE", kept)


def test_105_and_d25_servers_that_come_and_go_leak_no_mdev_and_touch_no_foreign_one(
    clean: Cloud, request: pytest.FixtureRequest
) -> None:
    """20 of them; with ``--long`` a hundred."""
    xml = (
        "<device><parent>pci_0000_3b_00_0</parent><capability type='mdev'><type id='nvidia-222'/>"
        f"<uuid>{FOREIGN}</uuid></capability></device>"
    )
    name = simulated(clean, "busy").create_mdev(xml)
    clean.update_resources("busy")
    before = made_on(clean, "busy")
    flavor_id = flavor(clean, ONE)

    def life(_: int) -> None:
        server_id = clean.boot(flavor_id, availability_zone="nova:busy")
        assert clean.wait(server_id, "ACTIVE", "ERROR")["status"] == "ACTIVE"
        clean.delete(server_id)
        clean.wait_gone(server_id)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(life, range(100 if request.config.getoption("--long") else 20)))
    made = made_on(clean, "busy")
    assert made >= before
    assert len(made - before) <= 4
    assert FOREIGN in made
    ours = {
        row[0]
        for row in clean.sql(
            "SELECT v.uuid FROM vgpus v JOIN compute_nodes n ON n.id = v.compute_node_id WHERE n.host = 'busy'"
        )
    }
    assert ours == made - {FOREIGN}
    journal = simulated(clean, "busy").journal_path.read_text()
    assert "destroy_mdev" not in journal
    simulated(clean, "busy").destroy_mdev(name)
    clean.update_resources("busy")


def test_a_stopped_server_keeps_its_vgpu_through_a_restart_of_its_host(clean: Cloud) -> None:
    [server] = boot(clean, "vendor", ONE)
    [mdev] = boot(clean, "two", ONE)
    kept = held(clean, mdev["id"])
    for one in (server, mdev):
        clean.act(one["id"], "os-stop")
        clean.wait(one["id"], "SHUTOFF")
    for name in ("vendor", "two"):
        simulated(clean, name).reboot_host()
        clean.update_resources(name)
    assert usages(clean)["two_pci_0000_3b_00_0"] == (1, 4)
    for one in (server, mdev):
        clean.act(one["id"], "os-start")
        assert clean.wait(one["id"], "ACTIVE", "ERROR")["status"] == "ACTIVE"
    assert held(clean, mdev["id"]) == kept
    [address] = hostdevs_of(guest(clean, server))
    assert simulated(clean, "vendor")._machine.vendor_type(address) == "558"


def test_113_a_hard_reboot_defines_a_lost_guest_again_with_the_vgpu_it_has(clean: Cloud) -> None:
    [server] = boot(clean, "two", ONE)
    [(_, _, uuid)] = held(clean, server["id"])
    connection = simulated(clean, "two")
    connection.destroy_domain(server["OS-EXT-SRV-ATTR:instance_name"])
    connection.undefine_domain(server["OS-EXT-SRV-ATTR:instance_name"])
    clean.update_resources("two")
    assert clean.wait(server["id"], "SHUTOFF")["status"] == "SHUTOFF"
    clean.act(server["id"], "reboot", {"type": "HARD"})
    clean.wait(server["id"], "ACTIVE")
    assert mdevs_of(guest(clean, server)) == (uuid,)


def test_a_hypervisor_that_refuses_leaves_nothing(clean: Cloud) -> None:
    [failing] = [one for one in HOSTS if one["name"] == "sliced"]
    broken = {**failing, "simulate": {"fail": {"create_mdev": {"times": 1, "error": "no room for mdevs"}}}}
    clean.reload({"hosts": [broken if one is failing else one for one in HOSTS]})
    clean.change("DELETE FROM vgpus WHERE compute_node_id = (SELECT id FROM compute_nodes WHERE host = 'sliced')")
    for name in [record.name for record in simulated(clean, "sliced")._machine.memory.mdevs.values()]:
        simulated(clean, "sliced").destroy_mdev(name)
    [server] = boot(clean, "sliced", ONE)
    assert server["status"] == "ERROR"
    assert "no room for mdevs" in server["fault"]["message"]
    clean.update_resources("sliced")
    assert usages(clean)["sliced_pci_0000_65_00_0"] == (0, 4)
    clean.reload({"hosts": HOSTS})
    assert statuses(boot(clean, "sliced", ONE)) == ["ACTIVE"]


def test_a_host_that_leaves_the_fleet_leaves_no_rows_and_its_mdevs_are_nobodys_when_it_comes_back(clean: Cloud) -> None:
    [server] = boot(clean, "leaving", ONE)
    clean.delete(server["id"])
    clean.wait_gone(server["id"])
    clean.reload({"hosts": [one for one in HOSTS if one["name"] != "leaving"]})
    for table in ("vgpus", "vgpu_cards"):
        living = "SELECT id FROM compute_nodes WHERE deleted = 0"
        assert clean.sql(f"SELECT * FROM {table} WHERE compute_node_id NOT IN ({living})") == []
    clean.reload({"hosts": HOSTS})
    clean.until(
        lambda: usages(clean).get("leaving_pci_0000_3b_00_0") == (0, 1), "it has room beside what it made before"
    )

"""Services as processes of their own: what only several can do to each other, and what RabbitMQ can do to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jetbridge.config.settings import Settings
from jetbridge.db.engine import PATIENCE_SECONDS
from tests.conftest import DatabaseServers
from tests.servers.rabbitmq import RabbitNode
from tests.system.cloud import T4, fleet, gpu, host
from tests.system.separate import SeparateCloud
from tests.system.test_accelerators import Accelerators, accelerated
from tests.system.test_boot_races import boot_at_once, check_journals, delete_all

QUICK = Settings(service_down_time=6, report_interval=1, update_resources_interval=2)
"""Deaths are noticed soon."""

Begin = Callable[..., SeparateCloud]


@pytest.fixture
def begin(tmp_path: Path, rabbit: RabbitNode, database: str | None) -> Iterator[Begin]:
    with ExitStack() as stack:

        def start(content: dict[str, Any], settings: Settings | None = None, *, in_pairs: bool = True) -> SeparateCloud:
            wanted = replace(settings or Settings(), database_connection=database)
            cloud = SeparateCloud(tmp_path, rabbit, wanted, in_pairs=in_pairs)
            cloud.write_fleet(content)
            if database is not None:
                cloud.make_schema()
            stack.callback(cloud.stop)
            cloud.start()
            return cloud

        yield start


@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_all_end_soon_when_the_database_is_away(begin: Begin, database_server: DatabaseServers) -> None:
    """Each sign of life, span and row waited a minute for it, one after the other."""
    cloud = begin(fleet(host("h1", [gpu(1)])), in_pairs=False)
    server = database_server("postgresql")
    server.stop()
    try:
        began = time.monotonic()
        cloud.stop()
        assert time.monotonic() - began < PATIENCE_SECONDS
    finally:
        server.start()
    assert "counts as up for" in cloud.log()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_forty_boots_at_once_with_two_of_everything_are_ten_active(begin: Begin) -> None:
    cloud = begin(fleet(host("h1", [gpu(bus) for bus in range(5)]), host("h2", [gpu(bus) for bus in range(5)])))
    flavor = cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"})
    servers = boot_at_once(cloud, flavor, 40)
    assert sorted(str(server["status"]) for server in servers) == ["ACTIVE"] * 10 + ["ERROR"] * 30
    assert cloud.statuses() == ["allocated"] * 10
    for server in servers:
        if server["status"] == "ERROR":
            assert "No valid host" in str(server["fault"])
    check_journals(cloud)
    log = cloud.log()
    for role in ("conductor", "conductor-2"):
        assert "goes to host" in (cloud.state / f"{role}.log").read_text(), log[-2000:]
    delete_all(cloud, servers)
    assert cloud.statuses() == ["available"] * 10
    assert cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)]
    assert cloud.sql("SELECT count(*) FROM instances WHERE compute_node_id IS NOT NULL AND deleted = 0") == [(0,)]


@pytest.mark.timeout(600)
def test_rabbitmq_restarts_in_the_middle_of_twenty_boots(begin: Begin, rabbit: RabbitNode) -> None:
    slow = {"simulate": {"delay": {"create_root_disk": 0.5}}}
    cloud = begin(
        fleet(host("h1", [gpu(bus) for bus in range(8)], **slow), host("h2", [gpu(bus) for bus in range(8)], **slow)),
        replace(QUICK, service_down_time=20),
    )
    flavor = cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"})

    def boot(number: int) -> str | None:
        if number >= 4:
            assert restarting.wait(60)
        answer = cloud.client.post(
            "/servers",
            json={"server": {"name": f"s{number}", "flavorRef": flavor, "imageRef": image, "networks": "none"}},
        )
        assert answer.status_code in (202, 503), answer.text
        return answer.json()["server"]["id"] if answer.status_code == 202 else None

    image = cloud.image()
    restarting = threading.Event()
    with ThreadPoolExecutor(20) as pool:
        booting = [pool.submit(boot, number) for number in range(20)]
        cloud.until(lambda: "claimed" in cloud.statuses(), "builds are under way")
        rabbit.stop()
        restarting.set()
        rabbit.start()
        ids = [server_id for server_id in (boot.result() for boot in booting) if server_id]
    servers = [cloud.wait(server_id, "ACTIVE", "ERROR") for server_id in ids]
    for server in servers:
        if server["status"] == "ERROR":
            assert server["fault"]["message"]
    assert sum(server["status"] == "ACTIVE" for server in servers) == 16
    assert cloud.statuses() == ["allocated"] * 16
    check_journals(cloud)
    delete_all(cloud, servers)
    assert cloud.statuses() == ["available"] * 16
    assert cloud.domains("h1") == cloud.domains("h2") == {}
    assert cloud.sql("SELECT count(*) FROM builds WHERE state = 'running'") == [(0,)]


@pytest.mark.timeout(600)
def test_a_compute_that_dies_leaves_nobody_without_an_answer_and_cleans_up_when_it_returns(begin: Begin) -> None:
    slow = {"simulate": {"delay": {"start_domain": 30.0}}}
    cloud = begin(fleet(host("h1", [gpu(1)], **slow), host("h2", [gpu(1)])), QUICK)
    flavor = cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"})
    ids = [cloud.boot(flavor, f"s{number}") for number in range(2)]
    starting = "SELECT instance_uuid FROM builds WHERE host = 'h1' AND step = 'start'"
    [(on_h1,)] = cloud.until(lambda: cloud.sql(starting), "the guest of h1 is being started")
    [other] = set(ids) - {on_h1}
    assert cloud.wait(other, "ACTIVE", "ERROR")["status"] == "ACTIVE"  # before the kill: h2 is of the same process
    assert cloud.sql(starting), "h1 is still at it"
    command = cloud.kill("compute")
    for conductor in ("conductor", "conductor-2"):
        cloud.begin(conductor + "-again", cloud.kill(conductor))
        cloud.ready(conductor + "-again")
    server = cloud.wait(on_h1, "ERROR")  # though its host may be gone for good
    assert "stopped in step start on host h1" in server["fault"]["message"]
    assert cloud.statuses("h1") == ["claimed"], "nothing is freed before the host can tell what runs there"
    cloud.delete(on_h1)
    cloud.wait_gone(on_h1)
    cloud.begin("compute", command)
    cloud.ready("compute")
    assert cloud.statuses("h1") == ["available"]
    assert cloud.domains("h1") == {}
    assert cloud.show(other)["status"] == "ACTIVE"


@pytest.mark.timeout(600)
def test_what_runs_is_told_what_may_not_run_is_refused_and_all_read_the_fleet_again(begin: Begin) -> None:
    cloud = begin(fleet(host("h1", [gpu(1)]), host("h2", [gpu(1)])), QUICK)
    status = cloud.client.get(f"{cloud.url}/jetbridge/v1/status").json()
    up = {service["binary"]: 0 for service in status["services"]}
    for service in status["services"]:
        assert service["state"] == "up", service
        up[service["binary"]] += 1
    assert up == {"nova-conductor": 2, "nova-scheduler": 2}
    assert {state: status["hosts"][state] for state in ("up", "down")} == {"up": 2, "down": 0}
    for role, arguments, words in (
        ("second-api", ["api", "--port", "0"], "is used by another jetbridge"),
        ("rival", ["compute", "--host", "h2"], "Host h2 is served by another jetbridge compute"),
        ("nobody", ["compute", "--host", "h9"], "no host is named h9"),
    ):
        cloud.begin(role, arguments)
        process = cloud.processes.pop(role)
        assert process.wait(60) == 1
        assert process.stdout is not None
        process.stdout.close()
        assert words in (cloud.folder / f"{role}.stderr").read_text()
    more = fleet(host("h1", [gpu(1), gpu(2)]), host("h2", []), host("h3", []))
    assert cloud.reload(more) == {"added": [], "removed": [], "changed": ["h1", "h2"], "unserved": ["h3"], "kept": []}
    assert set(cloud.devices()) == {("h1", "0000:01:00.0"), ("h1", "0000:02:00.0")}
    twice = [{**T4, "name": "GPU", "device_type": word} for word in ("type-PF", "type-VF")]
    cloud.write_fleet(fleet(host("h1", []), host("h2", [], config={"pci": {"alias": twice}})))
    refused = cloud.client.post(f"{cloud.url}/jetbridge/v1/fleet/reload")
    assert (refused.status_code, len(cloud.devices())) == (400, 2), "what one refuses changes nothing of the other"
    cloud.write_fleet(more)
    cloud.kill("conductor-2")
    told = cloud.until(
        lambda: [
            service
            for service in cloud.client.get(f"{cloud.url}/jetbridge/v1/status").json()["services"]
            if service["state"] == "down"
        ],
        "the killed conductor is told",
    )
    assert [service["binary"] for service in told] == ["nova-conductor"]


NO_ROOM = {"fail": {"define_domain": {"error": "internal error: no"}}, "delay": {"create_root_disk": 8.0}}


@pytest.mark.timeout(600)
def test_the_accelerator_service_of_the_api_may_be_away_while_servers_have_something_of_it(begin: Begin) -> None:
    """One file names it for all processes, and the API finds itself in it. h1 fails what it builds."""
    content = fleet(accelerated("h1", gpu(1)), accelerated("h2", gpu(2)))
    cloud = begin({**content, "hosts": [{**content["hosts"][0], "simulate": NO_ROOM}, content["hosts"][1]]}, QUICK)
    accelerators = Accelerators(cloud)
    accelerators.prepare()
    good = cloud.boot(cloud.flavor("f", {"accel:device_profile": "one"}), host="h2")
    cloud.wait(good, "ACTIVE")
    (arq,) = accelerators.arqs()
    assert (arq["state"], arq["hostname"]) == ("Bound", "h2")
    assert len(accelerators.xml(good, "h2").hostdevs) == 1
    bad = accelerators.boot("one")
    step = "SELECT step FROM builds WHERE host = 'h1' AND state = 'running'"
    cloud.until(lambda: cloud.sql(step) == [("root-disk",)], "h1 builds")
    again = cloud.kill("api")
    cloud.until(
        lambda: cloud.sql("SELECT vm_state FROM instances WHERE uuid = :id", id=bad) == [("error",)], "it fails"
    )
    known = "SELECT count(*) FROM server_arqs WHERE instance_uuid = :id"
    assert cloud.sql(known, id=bad) == [(1,)], "who could not be asked to take it back is asked later"
    cloud.begin("api", again)
    cloud.ready("api")
    cloud.until(lambda: cloud.sql(known, id=bad) == [(0,)], "it is taken back")
    assert [arq["instance_uuid"] for arq in accelerators.arqs()] == [good]
    for server in (good, bad):
        cloud.delete(server)
        cloud.wait_gone(server)
    accelerators.check_nothing_left()

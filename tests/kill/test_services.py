"""SIGKILL of each service as a process of its own, on PostgreSQL and RabbitMQ: when it is back nothing is left and nobody waits."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from jetbridge.compute.registry import FLOWS
from jetbridge.config.settings import Settings
from jetbridge.steps.runtime import Moment
from tests.conftest import DatabaseServers
from tests.servers.rabbitmq import RabbitNode
from tests.system import points
from tests.system.child import SENT, Death
from tests.system.cloud import DEADLINE
from tests.system.invariants import Journals, check_always, check_at_rest
from tests.system.ledger import check_allocations
from tests.system.separate import SeparateCloud

QUICK = Settings(service_down_time=6, report_interval=1, update_resources_interval=2)

pytestmark = pytest.mark.xdist_group("services")


class MortalServices(SeparateCloud):
    """``doomed``: commands of those that kill themselves or have done so, by role."""

    flavors: dict[str, str]

    def __init__(self, folder: Path, rabbit: RabbitNode, settings: Settings) -> None:
        super().__init__(folder, rabbit, settings)
        self.doomed: dict[str, list[str]] = {}

    def doom(self, role: str, death: Death) -> list[str]:
        """The process of that role is another one now, which kills itself. Answers its command."""
        arguments = self.kill(role)
        self.doomed[role] = arguments
        self.begin(role, arguments, "tests.kill.mortal", death.step, death.moment, str(death.spared))
        self.ready(role)
        if role == "api":
            self.client.base_url = httpx.URL(f"{self.url}/compute/v2.1")
        return arguments

    def resurrect(self, role: str, arguments: list[str], journals: Journals) -> None:
        process = self.processes[role]
        assert process.wait(DEADLINE) == -signal.SIGKILL
        if role.startswith("compute"):  # its hypervisor died with it
            journals.killed()
        self.replace_doomed(role, arguments)

    def replace_doomed(self, role: str, arguments: list[str]) -> None:
        """By one that lives on."""
        self.kill(role)
        del self.doomed[role]
        self.begin(role, arguments)
        self.ready(role)
        if role == "api":
            self.client.base_url = httpx.URL(f"{self.url}/compute/v2.1")

    def gone(self, server_id: str) -> bool:
        return self.client.get(f"/servers/{server_id}").status_code == 404

    def idle_or_gone(self, server_id: str) -> bool:
        answer = self.client.get(f"/servers/{server_id}")
        return answer.status_code == 404 or answer.json()["server"]["OS-EXT-STS:task_state"] is None

    def rests(self) -> None:
        """Soon, and invariants hold meanwhile."""
        end = time.monotonic() + DEADLINE
        while True:
            try:
                return check_at_rest(self)
            except AssertionError:
                check_always(self)
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)


@pytest.fixture(scope="module")
def cloud(
    tmp_path_factory: pytest.TempPathFactory, rabbit: RabbitNode, database_server: DatabaseServers
) -> Iterator[MortalServices]:
    """One for all: a case begins and ends with nothing in it."""
    url = database_server("postgresql").new_database()
    made = MortalServices(tmp_path_factory.mktemp("services"), rabbit, replace(QUICK, database_connection=url))
    made.write_fleet(points.FLEET)
    made.make_schema()
    try:
        made.start()
        for role in ("conductor-2", "scheduler-2"):  # so that the other one gets the message
            made.processes[role].send_signal(signal.SIGTERM)
            made.processes.pop(role).wait(DEADLINE)
        made.flavors = {flow: points.make_flavor(made, flow) for flow in points.FLOWS}
        yield made
    finally:
        made.stop()


@pytest.fixture
def journals(cloud: MortalServices) -> Iterator[Journals]:
    known = Journals(cloud)
    known.check()
    yield known
    for role, arguments in list(
        cloud.doomed.items()
    ):  # the test failed: the next one has all services again, and nothing in them
        cloud.replace_doomed(role, arguments)
        empty_again(cloud)


def name(death: Death) -> str:
    return f"{death.step}-{death.moment}"


def empty_again(cloud: MortalServices) -> None:
    for server in cloud.client.get("/servers").json()["servers"]:
        cloud.delete(server["id"])
        cloud.wait_gone(server["id"])
    cloud.rests()
    assert cloud.statuses() == ["available"] * 3
    assert cloud.domains("h1") == cloud.domains("h2") == {}
    check_allocations(cloud, ())


BUILDS = [("compute", Death(step.name, moment)) for step in FLOWS["build"] for moment in Moment]
BUILDS += [("conductor", Death(message, SENT)) for message in ("select_destinations", "build_server")]
BUILDS += [("api", Death("build_servers", SENT))]
BUILT = {step.name for step in FLOWS["build"]}
DELETES: list[tuple[str, Death]] = [
    # A build that has a step of this name is to get over it.
    ("compute", Death(step.name, moment, spared=int(step.name in BUILT)))
    for step in FLOWS["delete"]
    for moment in Moment
]
DELETES += [("conductor", Death("delete_server", SENT)), ("api", Death("delete_server", SENT))]


@pytest.mark.parametrize(("role", "death"), BUILDS, ids=lambda value: value if isinstance(value, str) else name(value))
def test_a_build_ends_whose_service_was_killed(
    cloud: MortalServices, journals: Journals, role: str, death: Death
) -> None:
    arguments = cloud.doom(role, death)
    with suppress(httpx.TransportError):  # the API may die before it answers
        cloud.boot(cloud.flavors["build"])
    cloud.resurrect(role, arguments, journals)
    check_always(cloud)
    [server] = cloud.client.get("/servers/detail").json()["servers"]
    ended = cloud.wait(server["id"], "ACTIVE", "ERROR")
    if role == "compute":
        done = death == Death(FLOWS["build"][-1].name, Moment.CHANGED)
        assert ended["status"] == ("ACTIVE" if done else "ERROR")
        assert done or "stopped in step" in ended["fault"]["message"]
    cloud.rests()
    empty_again(cloud)
    journals.check()


@pytest.mark.parametrize(("role", "death"), DELETES, ids=lambda value: value if isinstance(value, str) else name(value))
def test_a_delete_ends_whose_service_was_killed(
    cloud: MortalServices, journals: Journals, role: str, death: Death
) -> None:
    arguments = cloud.doom(role, death)
    server_id = cloud.boot(cloud.flavors["build"])
    cloud.wait(server_id, "ACTIVE")
    with suppress(httpx.TransportError):
        cloud.delete(server_id)
    cloud.resurrect(role, arguments, journals)
    check_always(cloud)
    cloud.wait_gone(server_id)
    empty_again(cloud)
    journals.check()


POINTS = [(flow, point) for flow, found in points.discovered().items() for point in found]


def test_every_service_is_killed() -> None:
    assert {point.role for _, point in POINTS} == {"api", "conductor", "scheduler", "compute"}


@pytest.mark.parametrize(
    ("flow", "point"), POINTS, ids=[f"{flow}-{point.name}-{point.moment}" for flow, point in POINTS]
)
def test_what_a_service_was_doing_ends_that_was_killed_beside_the_steps(
    cloud: MortalServices, journals: Journals, flow: str, point: points.Point
) -> None:
    role = "compute-2" if point.role == "compute" and flow == "failed" else point.role
    arguments = cloud.doom(role, Death(point.name, point.moment))
    server_id = None
    with suppress(httpx.TransportError):  # the API may die before it answers
        server_id = cloud.boot(cloud.flavors[flow], config_drive=True)
        if flow == "delete":
            cloud.wait(server_id, "ACTIVE")
            cloud.delete(server_id)
    cloud.resurrect(role, arguments, journals)
    check_always(cloud)
    for server in cloud.client.get("/servers").json()["servers"]:
        if flow == "delete":
            cloud.until(lambda: cloud.idle_or_gone(server["id"]), "the delete ended, or was never accepted")  # noqa: B023
            assert point.role == "api" or cloud.gone(server["id"])
        else:
            ended = cloud.wait(server["id"], "ACTIVE", "ERROR")
            assert flow == "build" or ended["status"] == "ERROR"
    cloud.rests()
    empty_again(cloud)
    journals.check()

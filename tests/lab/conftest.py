"""L1 and the service in it live for the whole suite; after each scenario everything has to be given back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab.cache import LabError
from lab.guest import guest_kernel
from lab.hardware import ALL
from lab.machine import Machine, attach, start
from tests.lab.cloud import WARM, Cloud, Guest, compile_project, refresh
from tests.lab.setups import COMMON, Setup


@dataclass
class Scenario:
    """A line of the table at the end: ``seen`` is what the guest said of the device, or what else was proven."""

    device: str = ""
    seen: list[str] = field(default_factory=list)


_SCENARIO = pytest.StashKey[Scenario]()
_ROWS = pytest.StashKey[list[tuple[str, str, str, str, str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--same-service",
        action="store_true",
        help="use the service that an earlier run left in an L1 started by hand: quicker, with the code of then",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "short: also part of `make lab-short`")
    config.addinivalue_line("filterwarnings", "ignore::Warning:openstack")
    config.stash[_ROWS] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first scenario also waits for L1 and the service. Modules of one setup come in a row: each change costs half a minute."""
    mine = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in mine:
        item.add_marker(pytest.mark.timeout(3600))
    setups = list(dict.fromkeys((COMMON.name, *(_setup_name(item) for item in mine))))
    mine.sort(key=lambda item: setups.index(_setup_name(item)))
    items[:] = [item for item in items if item not in mine] + mine


def _setup_name(item: pytest.Item) -> str:
    return setup_of(getattr(item, "module", None)).name


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """An L1 of its own; one that `python -m lab start` left running is used and stays."""
    compile_project()
    found = attach()
    machine = found or start(early=WARM)
    if found and not request.config.getoption("--same-service"):
        refresh(machine)
    yield machine
    if request.session.testsfailed:
        _keep_logs(machine)
    if found is None:
        machine.stop()


def _keep_logs(machine: Machine) -> None:
    """A failure can only be understood with what the service and the hypervisor said."""
    logs = "tail -n 500 /var/lib/jetbridge-*/jetbridge.log; tail -n 40 /var/log/libvirt/qemu/*.log"
    with contextlib.suppress(LabError):  # L1 may be what failed
        (machine.folder / "failure.log").write_text(machine.attempt(logs)[1])
        print(f"\nlab: the end of the logs is in {machine.folder / 'failure.log'}")


@pytest.fixture(scope="session")
def serving() -> list[Cloud]:
    """The one service of L1, as the last entry."""
    return []


@pytest.fixture(scope="module")
def cloud(
    machine: Machine, serving: list[Cloud], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Cloud:
    """The service with the module's ``SETUP``. One ``jetbridge up`` serves all modules in a row that have the same one."""
    setup: Setup = setup_of(request.module)
    if serving and serving[-1].setup == setup:
        return serving[-1]
    folder = tmp_path_factory.mktemp("cloud")
    cloud = Cloud(machine, folder, setup)
    if not (request.config.getoption("--same-service") and cloud.process):
        cloud.install()
        cloud.start()
        cloud.populate(guest_kernel(), folder)
        cloud.wait_reported()
    serving.append(cloud)
    return cloud


def setup_of(module: object) -> Setup:
    setup = getattr(module, "SETUP", COMMON)
    assert isinstance(setup, Setup)
    return setup


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> Scenario:
    scenario = Scenario()
    request.node.stash[_SCENARIO] = scenario
    return scenario


@pytest.fixture
def boot(cloud: Cloud) -> Iterator[Callable[[str], Guest]]:
    """Boots a server of a flavor; whatever is left of it is deleted in the end."""
    yield cloud.boot
    for server_id in tuple(cloud.servers()):
        cloud.delete(server_id)


@pytest.fixture(autouse=True)
def everything_is_given_back(cloud: Cloud, request: pytest.FixtureRequest) -> Iterator[None]:
    """No domain, no device that isn't available, no driver other than before."""
    yield
    if request.session.shouldstop:
        return
    for server_id in tuple(cloud.servers()):
        cloud.delete(server_id)
    statuses = {address: device["status"] for address, device in cloud.devices().items()}
    assert statuses == dict.fromkeys(statuses, "available")
    assert cloud.machine.run("virsh -q list --all --name").strip() == ""
    assert drivers(cloud.machine) == {device.address: device.driver for device in ALL}


def drivers(machine: Machine) -> dict[str, str | None]:
    """The driver of each of the lab's devices, by sysfs."""
    addresses = " ".join(device.address for device in ALL)
    lines = machine.run(
        f"for a in {addresses}; do echo $a $(readlink /sys/bus/pci/devices/$a/driver); done"
    ).splitlines()
    pairs = [line.split() for line in lines]
    return {address: link[0].rsplit("/", 1)[-1] if link else None for address, *link in pairs}


# --- the table at the end -----------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if not (report.when == "call" or report.failed):
        return
    scenario = item.stash.get(_SCENARIO, Scenario())  # none: what it needs failed before
    document = getattr(getattr(item, "obj", None), "__doc__", None) or item.name
    title = document.strip().splitlines()[0].rstrip(".")
    if callspec := getattr(item, "callspec", None):
        title = f"{title} [{callspec.id}]"
    rows = item.config.stash[_ROWS]
    seen = (
        "; ".join(scenario.seen) if report.passed else "FAILED" if report.when == "call" else f"FAILED ({report.when})"
    )
    rows.append((title, scenario.device, seen, f"{call.duration:.0f}", report.outcome))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[_ROWS]
    if not rows:
        return
    terminalreporter.section("the lab")
    head = ("scenario", "device", "what the guest saw", "s")
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(2)]
    for scenario, device, seen, seconds, *_ in (head, *rows):
        terminalreporter.line(f"{scenario:{widths[0]}}  {device:{widths[1]}}  {seconds:>4}  {seen}")

"""The command line against the running product, as people and scripts use it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from jetbridge.cli.main import run
from tests.system.cloud import T4_ALIAS, Cloud, fleet, gpu, host
from tests.system.conftest import Launch
from tests.system.forked_services import ForkedService
from tests.system.ledger import books

JETBRIDGE = [sys.executable, "-m", "jetbridge.cli.main"]
SECONDS = 60


@pytest.fixture
def cloud(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    cloud = launch(fleet(host("h1", [gpu(0x3B, 0), gpu(0x3C, 1)]), host("h2", [gpu(0x3B)])))
    monkeypatch.setenv("JETBRIDGE_STATE_DIR", str(cloud.state))
    monkeypatch.delenv("JETBRIDGE_URL", raising=False)
    return cloud


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_server_is_followed_through_every_command(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    server = cloud.boot(cloud.flavor("f", {"pci_passthrough:alias": "GPU:2"}), name="followed")
    cloud.wait(server, "ACTIVE")

    owned = answer(capsys, "devices", "--server", "followed")
    assert [(each["host"], each["address"], each["status"]) for each in owned] == [
        ("h1", "0000:3b:00.0", "allocated"),
        ("h1", "0000:3c:00.0", "allocated"),
    ]
    assert len(answer(capsys, "devices")) == 3
    assert len(answer(capsys, "devices", "--status", "available")) == 1
    assert [line.split()[0] for line in lines(capsys, "devices", "--host", "h2")] == ["HOST", "h2"]
    assert [(each["host"], each["count"]) for each in answer(capsys, "pools")] == [("h2", 1)]
    assert answer(capsys, "pools", "--host", "h1") == []
    hosts = {each["host"]: each for each in answer(capsys, "hosts")}
    assert (hosts["h1"]["servers"], hosts["h1"]["devices"]) == (1, {"allocated": 2})
    (listed,) = answer(capsys, "servers")
    assert (listed["id"], listed["host"], len(listed["devices"])) == (server, "h1", 2)
    document = "\n".join(lines(capsys, "xml", "followed"))
    assert document.count("<hostdev") == 2
    assert answer(capsys, "xml", server)["domain"] == "instance-00000001"
    explained = answer(capsys, "explain", "followed")
    assert {each["filter"]: each["hosts"] for each in explained["verdicts"]} == {
        None: ["h1"],
        "PciPassthroughFilter": ["h2"],
    }
    status = answer(capsys, "status")
    assert (status["devices"], status["servers"]) == ({"allocated": 2, "available": 1}, {"active": 1})
    (row,) = answer(capsys, "sql", f"SELECT spec FROM nova_api.request_specs WHERE instance_uuid='{server}'")
    assert json.loads(row["spec"])["pci_requests"]["requests"][0]["alias_name"] == "GPU"

    cloud.delete(server)
    cloud.wait_gone(server)
    assert sum(each["count"] for each in answer(capsys, "pools")) == 3
    assert answer(capsys, "explain", server)["vm_state"] == "deleted"


LOOKS = {
    "capabilities",
    "console_log",
    "domain_capabilities",
    "domain_xml",
    "domains",
    "networks",
    "node_devices",
    "version",
}
"""The calls of a hypervisor that change nothing."""


def test_f26_looking_changes_nothing(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    """By all ledgers: the tables, Placement, and what the hypervisors hold and were asked."""
    server = cloud.boot(cloud.flavor("f", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server, "ACTIVE")
    refused = cloud.boot(cloud.flavor("many", {"pci_passthrough:alias": "GPU:9"}))
    cloud.wait(refused, "ERROR")
    journals = [cloud.state / "sim" / name / "journal.jsonl" for name in ("h1", "h2")]

    def asked() -> list[list[str]]:
        return [[json.loads(line)["call"] for line in journal.read_text().splitlines()] for journal in journals]

    before, placed, calls = cloud.ledgers(), books(cloud), asked()
    for command in (
        ["scan", "--host", "h1"], ["pools"], ["devices"], ["hosts"], ["servers"], ["status"], ["explain", server],
        ["explain", refused], ["journey", server], ["xml", server], ["vgpu", "types"], ["vgpu", "list"], ["audit"],
        ["sql", "SELECT count(*) FROM pci_devices"], ["scan"], ["fleet", "templates"],
    ):  # fmt: skip
        assert run(command) == 0, capsys.readouterr().err
        capsys.readouterr()
    assert cloud.ledgers() == before
    assert books(cloud) == placed
    since = {call for now, then in zip(asked(), calls, strict=True) for call in now[len(then) :]}
    assert since <= LOOKS
    assert "node_devices" in since


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["xml", "nope"], 3, "Server nope could not be found"),
        (["explain", "nope"], 3, "Server nope could not be found"),
        (["devices", "--host", "nope"], 3, "host nope could not be found"),
        (["pools", "--host", "nope"], 3, "host nope could not be found"),
        (["scan", "--host", "nope"], 3, "host nope could not be found"),
        (["devices", "--server", "nope"], 3, "Server nope could not be found"),
        (["devices", "--status", "frei"], 1, "'frei': use available"),
        (["xml", "../../hosts"], 3, "../../hosts"),
    ],
)
def test_what_is_not_there_is_named(
    cloud: Cloud, arguments: Sequence[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert words in captured.err


def test_an_ambiguous_name_is_answered_with_the_ids(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    flavor = cloud.flavor("f", {})
    ids = [cloud.boot(flavor, name="twin") for _ in range(2)]
    for server in ids:
        cloud.wait(server, "ACTIVE")
    assert run(["xml", "twin"]) == 1
    error = capsys.readouterr().err
    assert all(server in error for server in ids)


def test_a_server_that_no_host_took_has_no_xml_but_an_explanation(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cloud.boot(cloud.flavor("f", {"pci_passthrough:alias": "GPU:3"}), name="big")
    cloud.wait(server, "ERROR")
    assert run(["xml", "big"]) == 1
    assert "jetbridge explain" in capsys.readouterr().err
    told = "\n".join(lines(capsys, "explain", "big"))
    assert "refused by PciPassthroughFilter" in told
    assert "fault: " in told


def test_scan_of_a_host_prints_lines_that_work(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    printed = lines(capsys, "scan", "--host", "h1")
    specs = [line for line in printed if line.startswith("device_spec = ")]
    assert json.loads(specs[0].removeprefix("device_spec = "))["address"] == "0000:3b:00.0"
    (alias,) = [line for line in printed if line.startswith("alias = ")]
    assert json.loads(alias.removeprefix("alias = "))["product_id"] == "1eb8"
    scanned = {each["address"]: each for each in answer(capsys, "scan", "--host", "h1")}
    assert scanned["0000:3c:00.0"]["numa_node"] == 1


def test_fleet_reload_brings_new_hardware(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, "fleet", "reload") == ["nothing has changed"]
    cloud.write_fleet(fleet(host("h1", [gpu(0x3B, 0), gpu(0x3C, 1), gpu(0x3D, 1)]), host("h2", [gpu(0x3B)])))
    assert answer(capsys, "fleet", "reload")["changed"] == ["h1"]
    assert len(answer(capsys, "devices", "--host", "h1")) == 3


# --- up, as a process -----------------------------------------------------------------------------


STOPPED = "note: stopping\nnote: stopped\n"
"""What a service that has nothing to wait for says at its end."""


def outside() -> dict[str, str]:
    """The environment without what would configure us."""
    return {key: value for key, value in os.environ.items() if not key.startswith("JETBRIDGE_")}


class Up:
    """``jetbridge up`` in a process of its own. That of a new interpreter, to its end, is in test_stop.py and test_pages.py."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.state = folder / "state"
        folder.mkdir(exist_ok=True)
        self.errors = folder / f"{uuid.uuid4()}.stderr"
        words = ["up", "--state-dir", str(self.state), *arguments]
        self.process = ForkedService(words, outside(), Path.cwd(), self.errors)

    def ready(self) -> tuple[str, str]:
        """The line to paste, and the URL."""
        export, ready = self.process.stdout.readline().rstrip(), self.process.stdout.readline().rstrip()
        assert ready.startswith("ready http://"), self.end()
        return export, ready.removeprefix("ready ")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and what stood on stderr."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str]:
        code = self.process.wait(SECONDS)
        return code, self.errors.read_text()


@pytest.fixture
def small_fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet(host("h1", [gpu(0x3B)]))))
    return path


@pytest.fixture
def ups() -> Iterator[list[Up]]:
    started: list[Up] = []
    yield started
    for up in started:
        with contextlib.suppress(ProcessLookupError):
            up.process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_tells_how_to_use_it_keeps_its_state_and_stops_cleanly(
    tmp_path: Path, small_fleet: Path, ups: list[Up], number: signal.Signals
) -> None:
    first = Up(tmp_path, "--fleet", str(small_fleet), "--port", "0")
    ups.append(first)
    export, url = first.ready()
    assert export == f"export OS_CLIENT_CONFIG_FILE={first.state / 'clouds.yaml'} OS_CLOUD=jetbridge"
    created = httpx.post(f"{url}/image/v2/images", json={"name": "kept", "disk_format": "raw"})
    assert created.status_code == 201
    assert first.stop(number) == (0, STOPPED)

    again = Up(tmp_path, "--fleet", str(small_fleet), "--port", "0")
    ups.append(again)
    _, url = again.ready()
    names = [image["name"] for image in httpx.get(f"{url}/image/v2/images").json()["images"]]
    assert sorted(names) == ["kept", "tiny"]
    assert again.stop() == (0, STOPPED)


def test_two_services_do_not_share_a_state_folder(tmp_path: Path, small_fleet: Path, ups: list[Up]) -> None:
    first = Up(tmp_path, "--fleet", str(small_fleet), "--port", "0")
    ups.append(first)
    _, url = first.ready()
    second = Up(tmp_path, "--fleet", str(small_fleet), "--port", "0")
    ups.append(second)
    code, errors = second.end()
    assert code == 1
    assert errors.startswith("error: ")
    assert str(first.state) in errors
    port_taken = Up(tmp_path / "other", "--fleet", str(small_fleet), "--port", url.rpartition(":")[2])
    ups.append(port_taken)
    code, errors = port_taken.end()
    assert code == 1
    assert "--port" in errors
    assert first.stop() == (0, STOPPED)


@pytest.mark.parametrize(
    ("arguments", "config", "words"),
    [
        pytest.param(["--listen", "0.0.0.0"], {}, ["0.0.0.0", "http_basic_auth_user_file"], id="open to all"),
        pytest.param(
            [],
            {"pci": {"alias": [T4_ALIAS, {**T4_ALIAS, "device_type": "type-PF"}]}},
            ["GPU", "type-PCI", "type-PF", "stands in", "fleet.yaml"],
            id="aliases that disagree",
        ),
        pytest.param(
            [],
            {"pci": {"device_spec": [{"vendor_id": "zz"}]}},
            ["device_spec", "zz", "stands in", "fleet.yaml"],
            id="bad device_spec",
        ),
        pytest.param(["--config-file", "/nowhere/nova.conf"], {}, ["/nowhere/nova.conf"], id="no configuration"),
        pytest.param(["--listen", "203.0.113.77"], {}, ["203.0.113.77"], id="not our address"),
        pytest.param(
            ["--port", "8778"],
            {},
            ["--port and --placement-port are both 8778", "different"],
            id="Placement's own port",
        ),
    ],
)
def test_up_refuses_to_start_with_one_line_that_says_why(
    tmp_path: Path, ups: list[Up], arguments: list[str], config: dict[str, Any], words: list[str]
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet(host("h1", [gpu(0x3B)]), **config)))
    up = Up(tmp_path, "--fleet", str(path), "--port", "0", *arguments)
    ups.append(up)
    code, errors = up.end()
    assert code == 1
    assert errors.startswith("error: ")
    assert "Traceback" not in errors
    assert [word for word in words if word not in errors] == []


# --- demo -----------------------------------------------------------------------------------------


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own; as a person starts it in ``test_demo_for_people_is_plain_when_it_is_piped``."""
    errors = folder / "demo.stderr"
    process = ForkedService(["demo", *arguments], outside(), Path.cwd(), errors)
    out = process.stdout.read()
    code = process.wait(SECONDS)
    return subprocess.CompletedProcess(arguments, code, out, errors.read_text())


def test_demo_shows_the_way_of_a_device_and_proves_that_it_comes_back(tmp_path: Path) -> None:
    done = demo(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    story = json.loads(done.stdout)
    assert story["alias"]["name"] == "GPU"
    assert story["device"]["product_id"] == "1eb8"
    assert story["request"]["request_id"] == story["device"]["request_id"]
    assert f'bus="0x{story["device"]["address"][5:7]}"' in story["hostdev"]
    assert story["free"] == {"before": 4, "during": 3, "after": 4}
    slice_ = story["vgpu"]
    assert (slice_["wish"], slice_["vgpu"]["kind"], slice_["vgpu"]["state"]) == (
        {"resources:VGPU": "1"},
        "mdev",
        "ready",
    )
    assert (
        f'type="mdev" managed="no" model="vfio-pci">\n  <source>\n    <address uuid="{slice_["vgpu"]["uuid"]}"/>'
        in slice_["hostdev"]
    )
    accelerated = story["accelerators"]
    assert [entry["state"] for entry in accelerated["states"]] == ["Initial", "Bound"]
    assert f'bus="0x{accelerated["arq"]["attach_handle_info"]["bus"]}"' in accelerated["hostdev"]
    assert {event["seam"] for event in story["events"]} == {"CAST", "CALL", "REST", "LIBRARY"}
    crossed = [(event["from"], event["to"]) for event in story["events"]]
    assert [pair for pair in crossed if pair[0] in ("client", "api", "conductor")][:4] == [
        ("client", "api"),
        ("api", "conductor"),
        ("conductor", "scheduler"),
        ("conductor", f"compute:{story['host']}"),
    ]
    shown = story["placement"]
    assert shown["provider"]["name"].startswith(f"{story['host']}_0000:")
    assert shown["inventory"]["CUSTOM_PCI_10DE_1EB8"]["total"] == 1
    ((_, allocated),) = shown["allocations"]["during"].items()
    assert allocated == {"CUSTOM_PCI_10DE_1EB8": 1}
    assert shown["allocations"]["before"] == shown["allocations"]["after"] == {}


def test_demo_for_people_is_plain_when_it_is_piped() -> None:
    # It starts the service up to three times.
    done = subprocess.run([*JETBRIDGE, "demo"], capture_output=True, text=True, timeout=4 * SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    for words in (
        "pci_passthrough:alias=GPU:1",
        "select_destinations",
        "start_domain",
        "<hostdev",
        "the device is back",
        "A slice of a GPU  a flavor with resources:VGPU=1: one nvidia-566 of card pci_0000_65_00_0",
        '<hostdev mode="subsystem" type="mdev" managed="no" model="vfio-pci">',
        "its vGPU waits for the next one",
        "The same by Placement",
        "inventory CUSTOM_PCI_10DE_1EB8: total 1, reserved 0",
        "accel:device_profile=infer",
        "Initial after POST, then Bound",
        "the request is gone",
    ):
        assert words in done.stdout


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"hosts": [host("h", [gpu(0x3B)])]}, id="neither alias nor device_spec"),
        pytest.param(
            {"hosts": [host("h", [gpu(0x3B)], config={"pci": {"device_spec": [{"product_id": "1eb8"}]}})]},
            id="no alias",
        ),
        pytest.param({"hosts": [{"name": "h", "hardware": ["a100x2-vf"]}]}, id="VFs"),
    ],
)
def test_demo_works_on_fleets_that_configure_nothing(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(content))
    done = demo(tmp_path, "--fleet", str(path), "--json")
    assert done.returncode == 0, done.stderr
    free = json.loads(done.stdout)["free"]
    assert (free["before"] - 1, free["before"]) == (free["during"], free["after"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param({"hosts": [{"name": "bare"}]}, "no device", id="no hardware"),
        pytest.param(
            fleet(host("h", [gpu(0x3B)]), pci={"alias": [{**T4_ALIAS, "product_id": "2330"}]}),
            "10de:1eb8",
            id="an alias for other hardware",
        ),
    ],
)
def test_demo_without_a_free_device_says_so_and_fails(tmp_path: Path, content: dict[str, Any], words: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(content))
    done = demo(tmp_path, "--fleet", str(path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {path}: ")
    assert words in done.stderr

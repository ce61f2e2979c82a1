"""The command line without a service: usage, exit codes, help, what is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jetbridge import __version__
from jetbridge.cli.main import run
from jetbridge.service.statedir import StateDir

COMMANDS = [
    ["up"], ["demo"], ["sql"], ["db", "upgrade"], ["scan"], ["devices"], ["devices", "clean"], ["audit"], ["pools"], ["hosts"], ["servers"], ["xml"],
    ["explain"], ["journey"], ["fleet", "reload"], ["fleet", "templates"], ["vgpu", "types"], ["vgpu", "list"],
    ["status"], ["version"],
]  # fmt: skip


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No command may reach a service of the person who runs the tests."""
    folder = tmp_path / "state"
    monkeypatch.setenv("JETBRIDGE_STATE_DIR", str(folder))
    monkeypatch.setenv("JETBRIDGE_URL", "http://127.0.0.1:1")
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: jetbridge" in shown
    assert "Examples" in shown or command == ["version"]


@pytest.mark.parametrize("command", [[], ["fleet"], ["db"], *COMMANDS], ids=" ".join)
def test_help_has_words_for_values_and_no_types_of_the_program(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "-h"]) == 0
    shown = capsys.readouterr().out
    options = shown[shown.index("Options") :]
    assert "<" not in options.replace("SERVER      <str>", "")
    assert "list[" not in options
    if command == ["up"]:
        assert all(words in " ".join(shown.split()) for words in ("--config-file FILE", "--state-dir FOLDER"))


@pytest.mark.parametrize("command", [["xml"], ["sql"], ["devices", "--host"], ["up", "--fleet"]], ids=" ".join)
def test_an_argument_that_is_not_utf8_is_told(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "a\udcff"]) == 2
    assert capsys.readouterr().err == "error: 'a\\udcff' on the command line is not UTF-8: write it as text\n"


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != ["up"]], ids=" ".join)
def test_every_command_but_up_has_json(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run([*command, "--help"])
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "frobnicate"),
        (["devices", "--bogus"], "--bogus"),
        (["sql"], "QUERY"),
        (["xml"], "SERVER"),
        (["up", "--port", "70000"], "70000"),
        (["up", "--port", "x"], "'x'"),
        (["fleet", "frobnicate"], "frobnicate"),
    ],
)
def test_wrong_usage_is_told_in_one_line_and_ends_with_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert words in captured.err
    assert "--help" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["devices"], ["pools"], ["hosts"], ["servers"], ["status"], ["xml", "s"], ["explain", "s"], ["fleet", "reload"],
        ["scan", "--host", "h"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_service_ends_with_4_and_the_command_to_start_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 4
    assert (
        capsys.readouterr().err
        == "error: nothing listens at http://127.0.0.1:1: start it with `jetbridge up` (where the services are processes of their own: `jetbridge api`)\n"
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    assert capsys.readouterr().out == f"jetbridge {__version__}\n"
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"jetbridge {__version__}\n"


def test_database_is_made_then_queried_and_never_changed(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = ["sql", "SELECT count(*) AS n FROM nova.pci_devices", "--json"]
    assert run(query) == 3
    assert "jetbridge up" in capsys.readouterr().err
    assert run(["db", "upgrade"]) == 0
    assert "upgraded" in capsys.readouterr().out
    assert run(["db", "upgrade", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["upgraded"] is False
    assert run(query) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 0}]
    assert run(["sql", "SELECT address FROM pci_devices"]) == 0
    assert capsys.readouterr().err == "no rows\n"
    for refused in ("DELETE FROM pci_devices", "DROP TABLE pci_devices", "SELECT 1; SELECT 2", "", "SELECT nope"):
        assert run(["sql", refused]) == 1
        assert capsys.readouterr().err.startswith("error: ")


def test_templates_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "templates", "--json"]) == 0
    found = {template["name"]: template for template in json.loads(capsys.readouterr().out)}
    assert len(found["t4x4"]["devices"]) == 4


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "can't be read"), ("hosts: []", "hosts is empty"), ("hosts: [{name: g, hardwear: [t4x4]}]", "hardwear")],
)
@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_fleet_file_that_is_wrong_is_told_without_a_traceback(
    command: str, content: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fleet.yaml"
    if content is not None:
        path.write_text(content)
    assert run([command, "--fleet", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: Fleet file {path}")
    assert words in error


def in_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_help_does_not_wait_for_heavy_modules() -> None:
    """So that --help and TAB stay quick, on any machine: what costs time is not even imported."""
    code = "import sys, jetbridge.cli.main; print(*sys.modules)"
    loaded = set(in_python(code).split())
    assert loaded.isdisjoint(
        {"sqlalchemy", "fastapi", "httpx", "uvicorn", "oslo_config", "lxml.etree", "libvirt", "yaml"}
    )


def test_the_embedded_placement_starts_without_the_framework_of_our_own_routes() -> None:
    """Every start of the service waits for it."""
    loaded = in_python("import sys, jetbridge.service.placement_child; print(*sys.modules)").split()
    assert "fastapi" not in loaded


def test_reader_that_leaves_early_is_no_error() -> None:
    code = "from jetbridge.cli.main import main; import sys; sys.argv[1:] = ['fleet', 'templates', '--json']; main()"
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert b"Traceback" not in writer.stderr.read()
    writer.stderr.close()
    writer.wait()


@pytest.mark.skipif(not os.path.isdir("/sys/bus/pci/devices"), reason="this machine shows no PCI")
def test_this_machine_is_scanned_without_a_service(capsys: pytest.CaptureFixture[str]) -> None:
    found: Any = len(os.listdir("/sys/bus/pci/devices"))
    code = run(["scan", "--json"])
    captured = capsys.readouterr()
    if found:
        assert code == 0
        assert len(json.loads(captured.out)) == found
    else:
        assert code == 1
        assert captured.err.startswith("error: ")


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """Names an SQLite database outside of the state folder."""
    path = tmp_path / "jetbridge.conf"
    path.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/elsewhere.sqlite3\n")
    return path


@pytest.mark.parametrize("way", ["--config-file", "JETBRIDGE_CONFIG_FILE", "--database", "JETBRIDGE_DATABASE"])
def test_the_database_named_is_the_one_that_is_used(
    way: str,
    state: Path,
    config_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = f"sqlite:///{tmp_path}/elsewhere.sqlite3" if way.lower().endswith("database") else str(config_file)
    options = [way, value] if way.startswith("--") else []
    if not options:
        monkeypatch.setenv(way, value)
    assert run(["db", "upgrade", *options]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/elsewhere.sqlite3: upgraded\n"
    assert run(["sql", "SELECT count(*) FROM flavors", *options]) == 0
    assert not state.exists()


def test_the_database_of_another_systems_file_is_left_alone(
    state: Path, config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = config_file.rename(tmp_path / "nova.conf")
    assert run(["db", "upgrade", "--config-file", str(foreign)]) == 0
    said = capsys.readouterr()
    assert said.out == f"{state}/jetbridge.sqlite3: upgraded\n"
    assert "[database] are not read" in said.err
    assert "elsewhere" not in said.err


def test_a_service_with_another_database_is_not_mistaken_for_one_without_data(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StateDir(state)
    assert run(["db", "upgrade"]) == 0
    folder.note_database("postgresql://jetbridge:secret@db/jetbridge", "postgresql://jetbridge:***@db/jetbridge")
    capsys.readouterr()
    for command in (["sql", "SELECT 1"], ["db", "upgrade"]):
        assert run(command) == 3
        said = capsys.readouterr().err
        assert "keeps its data in postgresql://jetbridge:***@db/jetbridge: give the --config-file" in said
    folder.note_database(folder.database_url, folder.database_url)
    assert run(["sql", "SELECT 1"]) == 0


@pytest.mark.parametrize("command", [["sql", "SELECT 1"], ["db", "upgrade"], ["up", "--port", "0"]])
@pytest.mark.parametrize(
    "url", ["postgresql://jetbridge:hunter2@/x?host=/nowhere", "mysql://u:hunter2@h@i/x", "u:hunter2@h"]
)
def test_a_database_that_can_not_be_reached_is_told_in_one_line_without_its_password(
    command: list[str], url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JETBRIDGE_DATABASE", url)
    assert run(command) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: Database ")
    assert said.count("\n") == 1
    assert "hunter2" not in said

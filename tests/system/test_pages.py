"""Pages of docs/, run as they stand against `jetbridge up` as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.forked_commands import folder_with_commands
from tests.system.transcript import Shell, commands_of, matches

ROOT = Path(__file__).parents[2]
PAGES = ("operate.md", "network.md", "accelerators.md", "vgpu.md")
"""Each says how its service is started, and in which state folder."""


def start_of(page: str) -> tuple[list[str], str]:
    """The command of a page that starts its service, and the folder below the home that it gives it."""
    found = re.search(r"jetbridge (up [^\n`]*) --state-dir ~/(\S+?)`?\)?;?\n", (ROOT / "docs" / page).read_text())
    assert found, f"docs/{page} starts no service in a folder of its own"
    return found[1].split(), found[2]


def test_no_page_meets_what_another_left() -> None:
    folders = [start_of(page)[1] for page in PAGES]
    assert len(set(folders)) == len(PAGES)


@pytest.fixture
def environment(tmp_path: Path, page: str) -> Iterator[dict[str, str]]:
    """A person's terminal: a home of their own, and the service running."""
    command, folder = start_of(page)
    state = tmp_path / folder
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join(map(str, (folder_with_commands(), Path(sys.executable).parent, os.environ["PATH"]))),
        "OS_CLIENT_CONFIG_FILE": str(state / "clouds.yaml"),
        "OS_CLOUD": "jetbridge",
        "JETBRIDGE_STATE_DIR": str(state),
        "COLUMNS": "200",
    }
    up = subprocess.Popen(
        [Path(sys.executable).with_name("jetbridge"), *command, "--state-dir", str(state), "--port", "0"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        said = [up.stdout.readline(), up.stdout.readline()]
        assert said[0] == f"export OS_CLIENT_CONFIG_FILE={state}/clouds.yaml OS_CLOUD=jetbridge\n"
        assert said[1].startswith("ready http://127.0.0.1:")
        yield environment
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(timeout=30) == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_shows_what_the_page_says(page: str, environment: dict[str, str]) -> None:
    shell = Shell(ROOT, environment)
    try:
        for command in commands_of(ROOT / "docs" / page):
            output = shell.run(command.text)
            assert matches(command.output, output), (
                f"docs/{page}:{command.line}\n$ {command.text}\n{output}\n--- but the page says ---\n"
                + "\n".join(command.output)
            )
    finally:
        shell.close()

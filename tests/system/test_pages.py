"""Pages of docs/, run as they stand against `jetbridge up` as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.forked_openstack import folder_with_openstack
from tests.system.transcript import Shell, commands_of, matches

ROOT = Path(__file__).parents[2]
NIC_FLEET = ("--fleet", "examples/nic-fleet.yaml")
PAGES = {
    "operate.md": ("--config-file", "examples/jetbridge.conf", "--fleet", "examples/slow-fleet.yaml"),
    "network.md": NIC_FLEET,
    "accelerators.md": NIC_FLEET,
    "vgpu.md": ("--fleet", "examples/vgpu-fleet.yaml"),
}
"""How the service of each page is started."""


@pytest.fixture
def environment(tmp_path: Path, page: str) -> Iterator[dict[str, str]]:
    """A person's terminal: a home of their own, and the service running."""
    state = tmp_path / ".local" / "state" / "jetbridge"
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join(map(str, (folder_with_openstack(), Path(sys.executable).parent, os.environ["PATH"]))),
        "OS_CLIENT_CONFIG_FILE": str(state / "clouds.yaml"),
        "OS_CLOUD": "jetbridge",
        "COLUMNS": "200",
    }
    up = subprocess.Popen(
        ["jetbridge", "up", *PAGES[page], "--port", "0"],
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

"""The systemd units start commands that there are, with options that these have."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer

from jetbridge.cli.main import app

UNITS = sorted((Path(__file__).parents[3] / "packaging" / "systemd").glob("*.service"))


def test_each_service_has_a_unit() -> None:
    assert {unit.stem.rstrip("@") for unit in UNITS} == {
        f"jetbridge-{role}" for role in ("api", "compute", "conductor", "scheduler")
    }


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_what_there_is(unit: Path) -> None:
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    program, role, *words = shlex.split(line.removeprefix("ExecStart="))
    assert program == "/usr/bin/jetbridge"
    assert unit.stem.startswith(f"jetbridge-{role}")
    command = typer.main.get_command(app).commands[role]  # type: ignore[attr-defined]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_can_read_the_configuration_that_the_page_installs(unit: Path) -> None:
    """The agent ran with group libvirt in the place of its own: /etc/jetbridge is for group jetbridge (docs/install.md)."""
    lines = unit.read_text().splitlines()
    assert "Group=jetbridge" in lines
    assert ("SupplementaryGroups=libvirt" in lines) == (unit.stem == "jetbridge-compute")

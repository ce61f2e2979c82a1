"""What operators type on a host with a device in a guest: docs/operate.md, word for word."""

from __future__ import annotations

import re
import shlex

from lab.cache import PROJECT
from lab.hardware import EDU
from tests.lab.cloud import BIN, Cloud
from tests.lab.conftest import Scenario
from tests.system.transcript import Shell, commands_of, matches

PAGE = PROJECT / "docs" / "operate.md"
_EXPORT = re.compile(r"export (\w+)=")


class TwoMachines:
    """A terminal on the clients' machine and one on the host; what either exports the other has, too."""

    def __init__(self, cloud: Cloud) -> None:
        self._machine = cloud.machine
        self._clients = Shell(PROJECT, {**cloud.environment, "PATH": f"{BIN}:{cloud.environment['PATH']}"})
        self._exported = {"JETBRIDGE_STATE_DIR": cloud.state, "COLUMNS": "200"}

    def run(self, command: str) -> str:
        exported = _EXPORT.match(command)
        if exported is None:
            return self._run(command)
        name = exported[1]
        *said, value = self._run(f"{command}; echo ${name}").splitlines() or [""]
        assert not said, said
        self._exported[name] = value
        return ""

    def _run(self, command: str) -> str:
        variables = "".join(f"export {name}={shlex.quote(value)}; " for name, value in self._exported.items())
        if re.search(r"\b(openstack|jetbridge xml) ", command):
            return self._clients.run(variables + command)
        return self._machine.run(f"PATH={BIN}:$PATH; {variables}{command}", check=False).rstrip("\n")

    def close(self) -> None:
        self._clients.close()


def test_operator_checks(cloud: Cloud, scenario: Scenario) -> None:
    """operator's checks of docs/operate.md, word for word: lspci, virsh, mdevctl, the log and the tables"""
    scenario.device = EDU.name
    machines = TwoMachines(cloud)
    cloud.flavor("edu")
    commands = commands_of(PAGE, "console host")
    assert len(commands) > 20
    try:
        for command in commands:
            output = machines.run(command.text)
            assert matches(command.output, output), (
                f"docs/operate.md:{command.line}\n$ {command.text}\n{output}\n--- but the page says ---\n"
                + "\n".join(command.output)
            )
    finally:
        machines.close()
    scenario.seen.append(f"{len(commands)} commands answered as the page says; the guest listed {EDU.ids}")

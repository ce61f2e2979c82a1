"""A Jetbridge of separate processes: an API, two conductors, two schedulers and two computes, as their commands start them. All read one
file, which names the API's accelerator service unless the settings name another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx

from jetbridge.config.fleet import load_fleet
from jetbridge.config.options import SETTINGS
from jetbridge.config.setting import default_of
from jetbridge.config.settings import Settings
from jetbridge.db.engine import Database
from jetbridge.errors import InvalidFleet, JetbridgeError
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.placement.session import GROUP as PLACEMENT
from jetbridge.rpc.oslo import OsloBus
from jetbridge.service.placement import EmbeddedPlacement
from jetbridge.sessions import is_configured
from jetbridge.steps.runtime import Observer, nobody
from tests.servers.placement import forks
from tests.servers.rabbitmq import RabbitNode, free_port
from tests.system.cloud import DEADLINE, Cloud
from tests.system.forked_services import ForkedService

START_SECONDS = 120.0
STOP_SECONDS = 60.0
QUEUES = ("conductor", "scheduler")


class SeparateCloud(Cloud):
    """``processes`` by role; each can be killed and started again alone."""

    def __init__(
        self, folder: Path, rabbit: RabbitNode, settings: Settings | None = None, *, in_pairs: bool = True
    ) -> None:
        """``in_pairs``: two of each service, but for the API; starting them is most of what a short test takes."""
        super().__init__(folder, settings)
        self.in_pairs = in_pairs
        self.rabbit = rabbit
        self.processes: dict[str, subprocess.Popen[str] | ForkedService] = {}
        self._commands: dict[str, list[str]] = {}
        self.placement: EmbeddedPlacement | None = None
        self.port = free_port()

    @property
    def placement_url(self) -> str:
        return super().placement_url if self.placement is None else self.placement.url

    def start(self, observe: Observer = nobody) -> None:
        assert observe is nobody, "nobody can look into other processes"
        if not is_configured(self.settings, PLACEMENT):
            self.state.mkdir(mode=0o711, exist_ok=True)
            self.placement = EmbeddedPlacement(
                self.settings, self.state / "placement.sqlite3", self.folder / "placement.log", "127.0.0.1", 0, forks()
            )
            self.placement.start()
        self._write_config()
        names = [host.name for host in load_fleet(self.fleet_file).hosts]
        half = (len(names) + 1) // 2 if self.in_pairs else len(names)
        parts = [part for part in (names[:half], names[half:]) if part]
        roles = {"api": ["api", "--port", str(self.port)], "conductor": ["conductor"], "scheduler": ["scheduler"]}
        if self.in_pairs:
            roles |= {"conductor-2": ["conductor"], "scheduler-2": ["scheduler"]}
        for number, part in enumerate(parts, 1):
            hosts = [word for name in part for word in ("--host", name)]
            roles["compute" if number == 1 else f"compute-{number}"] = ["compute", *hosts]
        for role, arguments in roles.items():
            self.begin(role, arguments)
        try:
            for role in roles:
                self.ready(role)
        except JetbridgeError:
            self.stop()
            raise
        self.client = httpx.Client(
            base_url=f"{self.url}/compute/v2.1", headers={"OpenStack-API-Version": "compute 2.96"}, timeout=DEADLINE
        )

    def make_schema(self) -> None:
        """On a database server nobody does so unasked."""
        database = Database(str(self.settings.database_connection))
        database.upgrade()
        database.close()

    def begin(self, role: str, arguments: Sequence[str], program: str | None = None, *first: str) -> None:
        """``program``: a module that is run instead of our own command, with the words ``first`` before the others."""
        self._commands[role] = [*first, *arguments]
        common = ["--config-file", str(self._config), "--fleet", str(self.fleet_file), "--state-dir", str(self.state)]
        folder, environment = Path(__file__).parents[2], {**os.environ, "JETBRIDGE_DEBUG": ""}
        errors = self.folder / f"{role}.stderr"
        if program is None:
            self.processes[role] = ForkedService([*arguments, *common], environment, folder, errors)
            return
        self.processes[role] = subprocess.Popen(
            [sys.executable, "-m", program, *first, *arguments, *common],
            stdout=subprocess.PIPE,
            stderr=errors.open("w"),
            text=True,
            cwd=folder,
            env=environment,
        )

    def ready(self, role: str) -> None:
        """Raises what the process said when it didn't start."""
        output = self.processes[role].stdout
        assert output is not None
        line = output.readline().split()
        if not line:
            self.processes[role].wait(START_SECONDS)
            raise JetbridgeError((self.folder / f"{role}.stderr").read_text())
        if role == "api":
            self.url = line[-1]

    def kill(self, role: str) -> list[str]:
        """At once, without a word. Answers the command, for ``begin``."""
        process = self.processes.pop(role)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        return self._commands[role]

    def stop(self) -> None:
        self.client.close()
        if self.placement is not None:
            self.placement.stop()
            self.placement = None
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        codes = {}
        for role, process in self.processes.items():
            codes[role] = process.wait(STOP_SECONDS)
            assert process.stdout is not None
            process.stdout.close()
        failed = {role: code for role, code in codes.items() if code != 0}
        self.processes.clear()
        try:
            hosts = [host.name for host in load_fleet(self.fleet_file).hosts]
        except InvalidFleet:
            hosts = []
        self.rabbit.forget(*QUEUES, *(f"compute.{name}" for name in hosts))
        assert not failed or not self.url, f"ended with {failed}:\n{self.log()[-3000:]}"

    def update_resources(self, host_name: str) -> None:
        context = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-test")
        with ThreadPoolExecutor(1) as pool:
            bus = OsloBus(self.rabbit.url, pool)
            bus.start()
            try:
                bus.call(context, "compute", "update_resources", {}, source="test", server=host_name)
            finally:
                bus.stop()

    def log(self) -> str:
        """Of all processes, by time."""
        lines = [line for path in self.state.glob("*.log") for line in path.read_text().splitlines()]
        return "\n".join(sorted(lines))

    @property
    def _config(self) -> Path:
        return self.folder / "jetbridge.conf"

    def _write_config(self) -> None:
        sections: dict[str, list[str]] = {"DEFAULT": [f"transport_url = {self.rabbit.url}"]}
        settings = replace(
            self.settings,
            placement_endpoint_override=self.placement_url,
            cyborg_endpoint_override=self.settings.cyborg_endpoint_override
            or f"http://localhost:{self.port}/accelerator/v2",
        )
        for setting in SETTINGS:
            value = getattr(settings, setting.field)
            if value == default_of(setting) or setting.field == "transport_url":
                continue
            values = value if setting.multi else [",".join(value) if isinstance(value, tuple) else value]
            sections.setdefault(setting.group, []).extend(f"{setting.name} = {one}" for one in values)
        self._config.write_text("".join(f"[{name}]\n" + "\n".join(rows) + "\n" for name, rows in sections.items()))

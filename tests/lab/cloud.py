"""``jetbridge up`` inside L1, and its clients outside of it."""

from __future__ import annotations

import compileall
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import bcrypt
from openstack.config import OpenStackConfig
from openstack.connection import Connection

from jetbridge.cli.client import Client
from jetbridge.service.statedir import write_clouds
from jetbridge.steps.runtime import Moment
from lab.cache import PROJECT
from lab.machine import SERVICE_PORT, Machine
from tests.lab.console import READY, Report, read_report
from tests.lab.setups import USERS, Setup
from tests.lab.warm import DOOR

T = TypeVar("T")
BIN = Path(sys.executable).parent
CONFIG = "/etc/jetbridge/jetbridge.conf"
OUTPUT = "/var/log/jetbridge.out"
PASSWORD = "lab"
WARM = "tests.lab.warm"
SECONDS = 900
"""Until a wait is given up: everything here runs in an emulator inside an emulator, on a machine that may be busy."""


def wait_for(what: str, look: Callable[[], T | None], seconds: float = SECONDS, pause: float = 1) -> T:
    """What ``look`` answers once it isn't None. Raises ``AssertionError`` naming ``what``."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(pause)


def stop_service(machine: Machine) -> None:
    """Whatever its setup, as an operator stops it."""
    machine.run(
        "for file in /run/jetbridge-*.pid; do [ -e $file ] || continue; read process <$file; kill $process 2>/dev/null;"
        " while kill -0 $process 2>/dev/null; do sleep 0.2; done; rm $file; done"
    )


def refresh(machine: Machine) -> None:
    """For an L1 that was left running: files of the project may have changed since it mounted them."""
    stop_service(machine)
    nine_p = "trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro"
    machine.run(
        f"pkill -f '[-]m {WARM}'; while pgrep -f '[-]m {WARM}'; do sleep 0.2; done; rm -f {DOOR}*; cd {PROJECT}/..;"
        f" for folder in jetbridge tests .venv; do umount {PROJECT}/$folder; done; umount {PROJECT};"
        f" mount -t 9p -o {nine_p} project {PROJECT} && mount --bind /image/venv {PROJECT}/.venv && cd {PROJECT} &&"
        f" setsid {BIN}/python -m {WARM} >/run/early.out 2>&1 </dev/null &"
    )


def compile_project() -> None:
    """L1's share is read-only: what isn't compiled here would be compiled there at every start."""
    for folder in ("jetbridge", "tests/kill", "tests/lab", "tests/system"):
        compileall.compile_dir(PROJECT / folder, quiet=2)


class Cloud:
    """The service with one setup. ``folder`` is for the clients' clouds.yaml."""

    def __init__(self, machine: Machine, folder: Path, setup: Setup) -> None:
        self.machine = machine
        self.setup = setup
        self.state = f"/var/lib/jetbridge-{setup.name}"
        self._arguments = ("up", "--config-file", CONFIG, "--state-dir", self.state)
        self._pid_file = f"/run/jetbridge-{setup.name}.pid"
        self.program = BIN / "jetbridge"
        self.url = f"http://127.0.0.1:{machine.port}"
        self._clouds = folder / "clouds.yaml"
        write_clouds(self._clouds, self.url, "http_basic", f"http://127.0.0.1:{machine.placement_port}")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("OS_", "JETBRIDGE_"))},
            "OS_CLIENT_CONFIG_FILE": str(self._clouds),
            "OS_CLOUD": "jetbridge",
            "OS_USERNAME": "admin",
            "OS_PASSWORD": PASSWORD,
            "JETBRIDGE_URL": self.url,
            "JETBRIDGE_USER": "admin",
            "JETBRIDGE_PASSWORD": PASSWORD,
            "COLUMNS": "200",
        }
        self.death: tuple[str, Moment] | None = None
        self._sdk: Connection | None = None

    # --- the service ---

    def start(self, death: tuple[str, Moment] | None = None, *, cold: bool = False) -> None:
        """Serve from what the state folder holds. Returns when the service says that it is ready. ``death``: it kills itself when
        that step of a build or delete is at that moment. ``cold``: the command as a user starts it, imports and all."""
        self.death = death
        words = [*self._arguments, "--listen", "0.0.0.0", "--port", str(SERVICE_PORT)]
        self.machine.run(f"rm -f {OUTPUT} {self._pid_file}")
        if cold:
            assert death is None
            program = shlex.join([f"{BIN}/jetbridge", *words])
            self.machine.run(
                f"cd {PROJECT}; setsid nohup {program} >{OUTPUT} 2>&1 </dev/null & echo $! >{self._pid_file}"
            )
        else:
            order = {"words": words, "output": OUTPUT, "pid_file": self._pid_file, "death": death}
            self.machine.run(
                f"until [ -p {DOOR} ]; do pgrep -f '[-]m {WARM}' >/dev/null || {{ cat /run/early.out; exit 1; }}; sleep 2; done;"
                f" echo {shlex.quote(json.dumps(order))} >{DOOR};"
                f" until [ -s {self._pid_file} ]; do sleep 0.2; done",
                timeout=SECONDS,
            )

        def ready() -> bool | None:
            # First whether it lives: what a process says with its last breath would come after an output that was read before.
            code, said = self.machine.attempt(f"kill -0 $(cat {self._pid_file}); code=$?; cat {OUTPUT}; exit $code")
            if re.search("^ready http", said, re.MULTILINE):
                return True
            assert code == 0, f"jetbridge up ended: {said}"
            return None

        wait_for("jetbridge up is ready", ready, pause=2)

    @property
    def process(self) -> str | None:
        """Its process id; None: it doesn't run with this setup."""
        code, found = self.machine.attempt(f"read process <{self._pid_file} && kill -0 $process && echo $process")
        return found.strip() if code == 0 else None

    def kill(self) -> None:
        """As the kernel would when memory is short: nothing gets a chance to clean up."""
        if process := self.process:
            self.machine.run(f"kill -9 {process}")
            self.await_death()

    def await_death(self) -> None:
        wait_for("the service is dead", lambda: None if self.process else True, pause=1)

    def install(self) -> None:
        """A fresh state folder and the configuration."""
        stop_service(self.machine)
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        self.machine.run(f"rm -rf {self.state}")
        self.machine.put(USERS, f"admin:{hashed}:admin:admin\n")
        self.machine.put(CONFIG, self.setup.configuration())

    def populate(self, kernel: Path, folder: Path) -> None:
        """Images as an operator makes them."""
        disk = folder / "empty.raw"
        with disk.open("wb") as file:
            file.truncate(1 << 20)
        images = self.sdk.image
        aki = images.create_image("kernel", filename=str(kernel), disk_format="aki", container_format="aki")
        more: dict[str, Any] = {
            "filename": str(disk),
            "disk_format": "raw",
            "container_format": "bare",
            "kernel_id": aki.id,
        }
        images.create_image("guest", **more)
        images.create_image("brief-guest", **more, os_command_line="poweroff")

    def flavor(self, name: str) -> str:
        """The id of the setup's flavor, which is made when first asked for: what few scenarios need is made for few."""
        if found := self.sdk.compute.find_flavor(name):
            return str(found.id)
        flavor = self.sdk.compute.create_flavor(name=name, ram=64, vcpus=1, disk=0)
        self.sdk.compute.create_flavor_extra_specs(flavor, dict(self.setup.flavors[name]))
        return str(flavor.id)

    def wait_reported(self) -> None:
        """Until the host's providers are in Placement: before that it takes no servers."""

        def look() -> bool | None:
            with closing(Client(self.url, "admin", PASSWORD)) as client:
                hosts = client.get("/jetbridge/v1/hosts")["hosts"]
            return True if hosts and all(host["reported"] for host in hosts) else None

        wait_for("the host is reported to Placement", look, pause=2)

    def log_has(self, *texts: str) -> bool | None:
        """True once a line of the log has all of them."""
        greps = " | ".join(f"grep -F {shlex.quote(text)}" for text in texts)
        return True if self.machine.attempt(f"cat {self.state}/jetbridge.log | {greps} >/dev/null")[0] == 0 else None

    def log(self, lines: int = 60) -> str:
        return self.machine.attempt(f"tail -n {lines} {self.state}/jetbridge.log; cat {OUTPUT}")[1]

    # --- clients ---

    @property
    def sdk(self) -> Connection:
        if self._sdk is None:
            config = OpenStackConfig(config_files=[str(self._clouds)], load_envvars=False)
            self._sdk = Connection(config=config.get_one("jetbridge", username="admin", password=PASSWORD))
        return self._sdk

    def openstack(self, *words: str) -> str:
        return self._client("openstack", *words)

    def jetbridge(self, *words: str) -> str:
        return self._client("jetbridge", *words)

    def _client(self, program: str, *words: str) -> str:
        done = subprocess.run(
            [str(BIN / program), *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{program} {shlex.join(words)}: {done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        """What the service knows, by address."""
        # Not by the command: this is asked again and again, and a new Python each time would slow down what it waits for.
        with closing(Client(self.url, "admin", PASSWORD)) as client:
            return {device["address"]: device for device in client.get("/jetbridge/v1/devices")["devices"]}

    def device_is(self, address: str, status: str, condition: str = "ok") -> Mapping[str, Any]:
        def look() -> Mapping[str, Any] | None:
            device = self.devices().get(address)
            return device if device and (device["status"], device["condition"]) == (status, condition) else None

        return wait_for(f"{address} is {status}, {condition}", look)

    # --- servers ---

    def create(self, flavor: str, name: str | None = None, image: str = "guest") -> str:
        """Asks for a server; its id."""
        server = self.sdk.compute.create_server(
            name=name or flavor,
            flavor_id=self.flavor(flavor),
            image_id=self.sdk.image.find_image(image, ignore_missing=False).id,
            networks="none",
        )
        return str(server.id)

    def boot(self, flavor: str, name: str | None = None) -> Guest:
        """A server that is ACTIVE and whose guest has reported."""
        guest = Guest(self, self.create(flavor, name))
        server = self.settled(guest.id)
        assert server.status == "ACTIVE", f"{flavor} is {server.status}: {server.fault}\n{self.log()}"
        guest.wait_ready()
        return guest

    def refused(self, flavor: str) -> str:
        """Why a server can't be had: its fault's text. The server is deleted."""
        server_id = self.create(flavor)
        try:
            server = self.settled(server_id)
            assert server.status == "ERROR", f"{flavor} is {server.status}"
            fault = server.fault or {}
            return str(fault.get("details") or fault.get("message"))
        finally:
            self.delete(server_id)

    def settled(self, server_id: str) -> Any:
        """The server once it is neither being built nor anything else."""

        def look() -> Any:
            server = self.sdk.compute.get_server(server_id)
            return server if server.status != "BUILD" and not server.task_state else None

        return wait_for(f"server {server_id} is built or failed", look)

    def state_is(self, server_id: str, status: str) -> None:
        def look() -> bool | None:
            server = self.sdk.compute.get_server(server_id)
            return True if server.status == status and not server.task_state else None

        wait_for(f"server {server_id} is {status}", look)

    def delete(self, server_id: str) -> None:
        """Until nothing of it is left. One that is gone already: nothing happens."""
        self.sdk.compute.delete_server(server_id, ignore_missing=True)
        wait_for(f"server {server_id} is gone", lambda: True if server_id not in set(self.servers()) else None)

    def servers(self) -> Iterator[str]:
        for server in self.sdk.compute.servers(details=False):
            yield str(server.id)


@dataclass(frozen=True)
class Guest:
    cloud: Cloud
    id: str

    @property
    def domain(self) -> str:
        return str(self.cloud.sdk.compute.get_server(self.id).instance_name)

    def console(self) -> str:
        return str(self.cloud.sdk.compute.get_server_console_output(self.id)["output"])

    def wait_ready(self) -> None:
        wait_for(f"the guest of {self.id} reports", lambda: True if READY in self._since_boot() else None)

    def _since_boot(self) -> str:
        return self.console().rpartition("guest: up")[2]

    def report(self) -> Report:
        return read_report(self.console())

    def xml(self) -> str:
        return self.cloud.machine.run(f"virsh dumpxml {self.domain}")

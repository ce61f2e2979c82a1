"""The released Cyborg, and a Compute API of ours that it tells how bindings ended."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jetbridge.accelerator.bindings import ServerBindings
from jetbridge.accelerator.client import AcceleratorClient
from jetbridge.accelerator.session import external_adapter
from jetbridge.api.app import create_app
from jetbridge.config.settings import Settings
from jetbridge.db.clock import utcnow
from jetbridge.service.http import HttpServer
from tests.unit.api.clouds import Cloud, open_cloud

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-cyborg" / "bin" / "python"


@dataclass(frozen=True)
class Cyborg:
    """``provider`` stands for the fake driver's device of host gpu1, which has 16 accelerators."""

    url: str
    provider: str
    cloud: Cloud

    @property
    def client(self) -> AcceleratorClient:
        return AcceleratorClient(external_adapter(Settings(cyborg_endpoint_override=self.url)))

    @property
    def bindings(self) -> ServerBindings:
        return ServerBindings(self.cloud.database, self.client, utcnow)


@pytest.fixture(scope="session")
def cyborg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cyborg]:
    assert PYTHON.exists(), "make test-cyborg prepares the environment of these tests"
    folder = tmp_path_factory.mktemp("cyborg")
    with open_cloud(tmp_path_factory.mktemp("compute")) as cloud:
        compute = HttpServer("127.0.0.1", 0)
        compute.start(create_app(cloud.services))
        log = (folder / "log").open("w")
        child = subprocess.Popen(
            [PYTHON, "-W", "ignore", Path(__file__).with_name("child.py"), folder, f"{compute.base_url}/compute/v2.1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line, (folder / "log").read_text()[-3000:]
            said = json.loads(line)
            yield Cyborg(f"http://127.0.0.1:{said['port']}/v2", said["providers"][0], cloud)
        finally:
            child.kill()
            child.wait()
            log.close()
            compute.stop()

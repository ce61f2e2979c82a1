"""The real clients, configured by the clouds.yaml that the service writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.cloud import Cloud

OPENSTACK = Path(sys.executable).with_name("openstack")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class OpenStack:
    """The ``openstack`` command."""

    cloud: Cloud

    @property
    def environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        return {**kept, "OS_CLIENT_CONFIG_FILE": str(self.cloud.state / "clouds.yaml"), "OS_CLOUD": "jetbridge"}

    def run(self, *words: str, version: str | None = None) -> Result:
        """Whatever it answers, it isn't a traceback."""
        command = [str(OPENSTACK), *(() if version is None else ("--os-compute-api-version", version)), *words]
        done = subprocess.run(
            command, env=dict(self.environment), capture_output=True, text=True, timeout=120, check=False
        )
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, version: str | None = None) -> str:
        result = self.run(*words, version=version)
        assert result.code == 0, f"openstack {' '.join(words)}: {result.err}\n{self.cloud.log()[-3000:]}"
        return result.out

    def json(self, *words: str, version: str | None = None) -> Any:
        return json.loads(self.ok(*words, "-f", "json", version=version))

    def refused(self, *words: str, version: str | None = None) -> str:
        """What the client says."""
        result = self.run(*words, version=version)
        assert result.code != 0, result.out
        return result.err

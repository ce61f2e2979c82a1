"""The ``openstack`` command, configured by the clouds.yaml that the service writes.

Starting it takes longer than what it does: one process (``python -m tests.system.clients``) runs the real shell once per command.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.system.cloud import Cloud


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class OpenStack:
    cloud: Cloud
    process: subprocess.Popen[str]

    def run(self, *words: str, version: str | None = None) -> Result:
        """Whatever it answers, it isn't a traceback."""
        asked = [*(() if version is None else ("--os-compute-api-version", version)), *words]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        result = Result(**json.loads(self.process.stdout.readline()))
        assert "Traceback" not in result.err + result.out, result.err
        return result

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


@contextlib.contextmanager
def openstack_client(cloud: Cloud) -> Iterator[OpenStack]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    environment = {**kept, "OS_CLIENT_CONFIG_FILE": str(cloud.state / "clouds.yaml"), "OS_CLOUD": "jetbridge"}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.system.clients"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield OpenStack(cloud, process)
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    from openstackclient.shell import OpenStackShell

    answers = sys.stdout
    for line in sys.stdin:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = OpenStackShell().run(json.loads(line))
            except SystemExit as ending:
                code = ending.code if isinstance(ending.code, int) else 1
        logging.getLogger().handlers.clear()  # each shell adds its own, with its streams
        answers.write(json.dumps({"code": code, "out": out.getvalue(), "err": err.getvalue()}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()

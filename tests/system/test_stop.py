"""Ctrl-C in the terminal of `jetbridge up`: it says what it waits for, and that it has stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml

from jetbridge.cli.up import DRAIN_SECONDS, stopping
from jetbridge.rpc import inprocess
from tests.system.cloud import fleet, gpu, host

pytestmark = pytest.mark.all_in_one


def test_what_is_said() -> None:
    assert stopping(0) == "stopping"
    assert stopping(2) == "stopping: waiting for 2 builds (at most 30 s)"
    assert DRAIN_SECONDS == inprocess.DRAIN_SECONDS


def test_a_stop_says_which_builds_it_waits_for(tmp_path: Path) -> None:
    file, state = tmp_path / "fleet.yaml", tmp_path / "state"
    file.write_text(yaml.safe_dump(fleet(host("h1", [gpu(1)], simulate={"delay": {"start_domain": 3}}))))
    command = [str(Path(sys.executable).parent / "jetbridge"), "up", "--fleet", str(file), "--port", "0"]
    up = subprocess.Popen(
        [*command, "--state-dir", str(state)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert up.stdout is not None
        url = [up.stdout.readline() for _ in range(2)][1].split()[1]
        with httpx.Client(base_url=f"{url}/compute/v2.1", timeout=30) as client:
            flavor = {"name": "f", "ram": 512, "vcpus": 1, "disk": 1}
            flavor_id = client.post("/flavors", json={"flavor": flavor}).json()["flavor"]["id"]
            image_id = client.get(f"{url}/image/v2/images").json()["images"][0]["id"]
            server = {"name": "s", "flavorRef": flavor_id, "imageRef": image_id, "networks": "none"}
            headers = {"OpenStack-API-Version": "compute 2.96"}
            answer = client.post("/servers", json={"server": server}, headers=headers)
            assert answer.status_code == 202, answer.text
            path, deadline = f"/servers/{answer.json()['server']['id']}", time.monotonic() + 30
            while client.get(path).json()["server"]["OS-EXT-STS:task_state"] != "spawning":
                assert time.monotonic() < deadline, json.dumps(client.get(path).json())
                time.sleep(0.05)
        up.send_signal(signal.SIGINT)
        said = up.communicate(timeout=60)[1].splitlines()
        assert said[-2:] == ["note: stopping: waiting for 1 build (at most 30 s)", "note: stopped"]
        assert up.returncode == 0
    finally:
        up.kill()

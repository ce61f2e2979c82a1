"""A `jetbridge up` of its own with simulated hypervisors, and a client that boots servers on it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

GPUS = 8
HERE = Path(__file__).parents[1]


def fleet(hosts: int, placement: bool) -> str:
    devices = "\n".join(
        f"      - {{address: '0000:{bus:02x}:00.0', vendor_id: '10de', product_id: '1eb8', numa_node: {at // 4},"
        f" switch: '0000:{bus - 1 - at % 2:02x}:01.0'}}"
        for at, bus in enumerate((0x12, 0x13, 0x22, 0x23, 0x82, 0x83, 0x92, 0x93))
    )
    both = "true" if placement else "false"
    return f"""hosts:
  - name: node[0001-{hosts:04}]
    numa: {{cells: 2, cpus_per_cell: 32, sockets: 2, memory_mb_per_cell: 262144}}
    devices:
{devices}
config:
  pci:
    device_spec: [{{vendor_id: '10de', product_id: '1eb8'}}]
    alias: [{{name: gpu, vendor_id: '10de', product_id: '1eb8', device_type: type-PCI}}]
    report_in_placement: '{both}'
  filter_scheduler: {{pci_in_placement: '{both}'}}
"""


@dataclass
class Service:
    url: str
    ready_s: float
    pids: list[int]

    def rss_mb(self) -> int:
        return sum(_status(pid, "VmHWM") for pid in self.pids) // 1024

    def cpu_s(self) -> float:
        return sum(_cpu(pid) for pid in self.pids)


def _status(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def all_in_one(
    hosts: int,
    placement: bool,
    database: str | None = None,
    profile: Path | None = None,
    kept: Path | None = None,
) -> Iterator[Service]:
    """``kept``: the folder whose state is used and stays; without it everything is made anew and thrown away."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) if kept is None else kept
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fleet.yaml").write_text(fleet(hosts, placement))
        command = [sys.executable]
        if profile is not None:
            command += ["-m", "benchmarks.profiled", str(profile)]
        else:
            command += ["-m", "jetbridge.cli.main"]
        command += ["up", "--fleet", str(folder / "fleet.yaml"), "--state-dir", str(folder / "state"), "--port", "0"]
        if database is not None:
            command += ["--database", database]
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE)
        try:
            assert process.stdout is not None
            url = next((line.split()[1] for line in process.stdout if line.startswith("ready ")), None)
            if url is None:
                raise SystemExit(f"jetbridge up ended with {process.wait()}")
            children = [
                int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            ]
            yield Service(url, time.monotonic() - start, [process.pid, *children])
        finally:
            process.terminate()
            process.wait(60)


@dataclass
class Client:
    """Boots and deletes, and remembers how long it took."""

    url: str
    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    deleted: int = 0
    poll_s: float = 0.05
    _local: threading.local = field(default_factory=threading.local)

    @property
    def http(self) -> httpx.Client:
        if not hasattr(self._local, "client"):
            headers = {"OpenStack-API-Version": "compute 2.90"}
            # Idle connections are given up before the server does so, or else a request may meet its end.
            limits = httpx.Limits(keepalive_expiry=1)
            base = f"{self.url}/compute/v2.1"
            self._local.client = httpx.Client(base_url=base, headers=headers, timeout=120, limits=limits)
        client: httpx.Client = self._local.client
        return client

    def flavor(self, count: int) -> str:
        """One of so many GPUs; in a kept state it may be there already."""
        known = {each["name"]: str(each["id"]) for each in self._json("GET", "/flavors")["flavors"]}
        if f"gpu{count}" in known:
            return known[f"gpu{count}"]
        body = {"name": f"gpu{count}", "vcpus": 2, "ram": 2048, "disk": 1}
        flavor = self._json("POST", "/flavors", {"flavor": body})["flavor"]["id"]
        specs = {"extra_specs": {"pci_passthrough:alias": f"gpu:{count}"}}
        self._json("POST", f"/flavors/{flavor}/os-extra_specs", specs)
        return str(flavor)

    def image(self) -> str:
        return str(httpx.get(f"{self.url}/image/v2/images").json()["images"][0]["id"])

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json()

    def boot(self, flavor: str, image: str) -> str | None:
        """Until ACTIVE; None when it failed."""
        start = time.monotonic()
        body = {"name": "bench", "flavorRef": flavor, "imageRef": image, "networks": "none"}
        server = str(self._json("POST", "/servers", {"server": body})["server"]["id"])
        while True:
            time.sleep(self.poll_s)
            found = self._json("GET", f"/servers/{server}")["server"]
            if found["status"] == "ACTIVE":
                self.seconds.append(time.monotonic() - start)
                return server
            if found["status"] == "ERROR":
                self.failed.append(found.get("fault", {}).get("message", "ERROR"))
                return None

    def delete(self, server: str) -> None:
        self.http.delete(f"/servers/{server}").raise_for_status()
        while self.http.get(f"/servers/{server}").status_code != 404:
            time.sleep(self.poll_s)
        self.deleted += 1

"""Boots and deletes per second of the whole service, with simulated hypervisors: `python -m benchmarks.boots`.

Starts `jetbridge up` (or, with --separate, every service by itself on PostgreSQL and RabbitMQ) on a fleet of hosts of eight GPUs, keeps a number of clients
booting and deleting for a while, then boots at a fixed rate and takes the times from the request to ACTIVE.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.measure import report

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
def all_in_one(hosts: int, placement: bool, database: str | None, profile: Path | None) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
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
        body = {"name": f"gpu{count}", "vcpus": 2, "ram": 2048, "disk": 1}
        flavor = self._json("POST", "/flavors", {"flavor": body})["flavor"]["id"]
        specs = {"extra_specs": {"pci_passthrough:alias": f"gpu:{count}"}}
        self._json("POST", f"/flavors/{flavor}/os-extra_specs", specs)
        return str(flavor)

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
            time.sleep(0.05)
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
            time.sleep(0.05)
        self.deleted += 1


def sustained(service: Service, flavor: str, image: str, workers: int, seconds: float) -> dict[str, float]:
    """Each worker boots and deletes, one after the other."""
    client, until = Client(service.url), time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < until:
            server = client.boot(flavor, image)
            if server is not None:
                client.delete(server)

    cpu, start = service.cpu_s(), time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work) for _ in range(workers)]:
            future.result()
    elapsed, cpu = time.monotonic() - start, service.cpu_s() - cpu
    if client.failed:
        raise SystemExit(f"{len(client.failed)} boots failed, the first with: {client.failed[0]}")
    return {
        "boots_per_s": round(client.deleted / elapsed, 2),
        "cpu_ms_per_boot_and_delete": round(1000 * cpu / client.deleted, 1),
        "boots_per_cpu_s": round(client.deleted / cpu, 1),
    }


def at_rate(service: Service, flavor: str, image: str, rate: float, seconds: float) -> dict[str, float]:
    """Boots begin when it is their time, however long others take."""
    client = Client(service.url)

    def one() -> None:
        server = client.boot(flavor, image)
        if server is not None:
            client.delete(server)

    with ThreadPoolExecutor(64) as pool:
        start, futures = time.monotonic(), []
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            futures.append(pool.submit(one))
        for future in futures:
            future.result()
    times = sorted(client.seconds)
    return {
        "rate": rate,
        "p50_s": round(statistics.median(times), 3),
        "p99_s": round(times[min(len(times) - 1, int(len(times) * 0.99))], 3),
    }


def one_by_one(service: Service, flavor: str, image: str, count: int) -> float:
    client = Client(service.url)
    for _ in range(count):
        server = client.boot(flavor, image)
        if server is not None:
            client.delete(server)
    return round(statistics.median(client.seconds), 3)


def measured(service: Service, workers: int, singles: int, seconds: float, target: float) -> dict[str, Any]:
    ready_cpu = service.cpu_s()
    client = Client(service.url)
    one, eight = client.flavor(1), client.flavor(GPUS)
    image = httpx.get(f"{service.url}/image/v2/images").json()["images"][0]["id"]
    one_by_one(service, one, image, 3)  # what is imported and compiled at the first boot
    alone = {"gpu1_s": one_by_one(service, one, image, singles), "gpu8_s": one_by_one(service, eight, image, singles)}
    figures: dict[str, Any] = {
        "ready_s": round(service.ready_s, 2),
        "ready_cpu_s": round(ready_cpu, 2),
        **alone,
        "ratio_gpu8": round(alone["gpu8_s"] / alone["gpu1_s"], 2),
    }
    print(figures, file=sys.stderr, flush=True)
    figures["sustained"] = sustained(service, one, image, workers, seconds)
    print(figures["sustained"], file=sys.stderr, flush=True)
    figures["half_rate"] = at_rate(service, one, image, target / 2, seconds)
    return {**figures, "rss_mb": service.rss_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--mode", choices=["alias", "placement"], default="alias")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--singles", type=int, default=10, help="Boots one by one, of one GPU and of eight.")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--database", help="SQLAlchemy URL; absent: SQLite in the state folder")
    parser.add_argument("--profile", type=Path, help="Write where the service's time went to this file.")
    options = parser.parse_args()
    placement = options.mode == "placement"
    with all_in_one(options.hosts, placement, options.database, options.profile) as service:
        figures = measured(service, options.workers, options.singles, options.seconds, target=10 if placement else 20)
    report({"hosts": options.hosts, "devices": GPUS * options.hosts, "mode": options.mode, **figures})


if __name__ == "__main__":
    main()

"""Boots and deletes per second of the whole service, with simulated hypervisors: `python -m benchmarks.boots`.

Starts `jetbridge up` (or, with --separate, every service by itself on PostgreSQL and RabbitMQ) on a fleet of hosts of eight GPUs, keeps a number of clients
booting and deleting for a while, then boots at a fixed rate and takes the times from the request to ACTIVE.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.measure import report
from benchmarks.running import GPUS, Client, Service, all_in_one


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
    image = client.image()
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

"""Boots of 1, 2, 4 and 8 devices by Placement: `python -m benchmarks.placement_boot`.

Starts `jetbridge up` on 1,000 hosts of eight GPUs, each a provider of its own. The first run lets the hosts report themselves, which takes minutes; the state is kept, and later runs
start with it and measure a restart too. Then servers are booted one by one, and eight at once: how long it takes, and what Placement is asked (from the servers' journeys). Beside it the
released Placement answers `GET /allocation_candidates` for the same devices from a copy of the same file (benchmarks/candidates.py).
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.candidates import in_time
from benchmarks.measure import report
from benchmarks.running import GPUS, Client, Service, all_in_one

COUNTS = (1, 2, 4, 8)
KEPT = Path(__file__).parents[1] / ".bench"
PATIENCE_S = 3600.0


@dataclass(frozen=True)
class Boot:
    """``scheduling_s``: of it, until a host was chosen and recorded; ``asked``: what the scheduler asked of Placement."""

    seconds: float
    scheduling_s: float
    asked: tuple[str, ...]


def await_reports(log: Path, since: int, hosts: int) -> float:
    """Seconds until the log tells that every host has compared itself with Placement."""
    start = time.monotonic()
    while time.monotonic() < start + PATIENCE_S:
        with log.open() as stream:
            stream.seek(since)
            told = re.findall(r"(\d+) of \d+ hosts have reported", stream.read())
        if any(int(done) >= hosts for done in told):
            return time.monotonic() - start
        time.sleep(0.2)
    raise SystemExit(f"The hosts have not reported within {PATIENCE_S:g} s: {log}")


def journey(service: Service, server: str) -> tuple[float, tuple[str, ...]]:
    """How long the scheduler took for a server, and its requests to Placement, by what they ask."""
    path = f"{service.url}/jetbridge/v1/servers/{server}/journey"
    spans = [span for way in httpx.get(path, timeout=60).json()["requests"] for span in way["spans"]]
    chosen = sum(span["seconds"] for span in spans if span["what"] == "select_destinations")
    mine = [span for span in spans if span["to"] == "placement" and span["from"] == "scheduler"]
    return chosen, tuple(span["what"].partition("/allocations/")[0] for span in mine)


def one_by_one(service: Service, repeat: int) -> dict[int, list[Boot]]:
    """The counts take turns, so that what else the machine does falls on all of them."""
    client = Client(service.url, poll_s=0.01)
    image, flavors = client.image(), {count: client.flavor(count) for count in COUNTS}
    taken: dict[int, list[Boot]] = {count: [] for count in COUNTS}
    for number in range(1 + repeat):
        for count, flavor in flavors.items():
            server = client.boot(flavor, image)
            if server is None:
                raise SystemExit(f"gpu:{count} failed: {client.failed[-1]}")
            if number:  # the first of each imports and compiles
                taken[count].append(Boot(client.seconds[-1], *journey(service, server)))
            client.delete(server)
    return taken


def at_once(service: Service, count: int, repeat: int) -> float:
    """Seconds until so many servers of one GPU, asked for at the same time, are all ACTIVE."""
    client, taken = Client(service.url), []
    image, flavor = client.image(), client.flavor(1)
    with ThreadPoolExecutor(count) as pool:
        for _ in range(repeat):
            start = time.monotonic()
            servers = list(pool.map(lambda _: client.boot(flavor, image), range(count)))
            taken.append(time.monotonic() - start)
            if None in servers:
                raise SystemExit(f"a boot failed: {client.failed[-1]}")
            list(pool.map(lambda server: client.delete(str(server)), servers))
    return statistics.median(taken)


def measured(service: Service, repeat: int) -> dict[str, Any]:
    boots = one_by_one(service, repeat)
    wall = {count: statistics.median(one.seconds for one in taken) for count, taken in boots.items()}
    scheduling = {count: statistics.median(one.scheduling_s for one in taken) for count, taken in boots.items()}
    return {
        "requests": {f"gpu{count}": sorted({len(one.asked) for one in taken}) for count, taken in boots.items()},
        "asked": dict(Counter(boots[GPUS][0].asked)),
        "boot_ms": {f"gpu{count}": round(1000 * seconds) for count, seconds in wall.items()},
        "scheduling_ms": {f"gpu{count}": round(1000 * seconds) for count, seconds in scheduling.items()},
        "ratio_gpu8": round(wall[GPUS] / wall[1], 2),
        "eight_at_once_s": round(at_once(service, 8, max(repeat // 3, 1)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000, help="At least 20.")
    parser.add_argument("--repeat", type=int, default=9, help="Boots of each count.")
    parser.add_argument(
        "--limit", type=float, default=30, help="Seconds after which a query for candidates is given up."
    )
    parser.add_argument("--kept", type=Path, default=KEPT, help="Where populated states are kept.")
    options = parser.parse_args()
    folder: Path = options.kept / f"placement-{options.hosts}"
    log, database = folder / "state" / "jetbridge.log", folder / "state" / "placement.sqlite3"
    populated = folder / "populated"
    known = populated.exists()
    since = log.stat().st_size if log.exists() else 0
    if not known:
        print(f"populating {folder} (minutes, once)", file=sys.stderr, flush=True)
    with all_in_one(options.hosts, placement=True, kept=folder) as service:
        start = {"ready_s": round(service.ready_s, 1), "reported_s": round(await_reports(log, since, options.hosts), 1)}
        populated.touch()
        figures = {"restart" if known else "first_start": start, **measured(service, options.repeat)}
    print(figures, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as name:
        if not options.limit:
            report({"hosts": options.hosts, **figures})
            return
        copy = Path(name) / database.name
        for part in (database, database.with_name(f"{database.name}-wal")):  # what isn't in the file yet is in its log
            if part.exists():
                shutil.copy(part, copy.with_name(part.name))
        figures["candidates"] = {f"gpu{count}": in_time(copy, count, options.limit) for count in COUNTS}
    report({"hosts": options.hosts, "providers": options.hosts * (1 + GPUS), **figures})


if __name__ == "__main__":
    main()

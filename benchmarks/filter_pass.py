"""A decision over many hosts in memory, and what loading the hosts that changed costs: `python -m benchmarks.filter_pass --hosts 10000`.

A host has eight GPUs and two NUMA cells. A pass is everything from the hosts' values to the chosen host: all filters that are on by default, weights, order,
and the verdicts grouped by reason. The peer's pass is its PciPassthroughFilter alone.
"""

from __future__ import annotations

import argparse
import logging
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fleets import CONTEXT, Hosts, for_peer, gpu_request, request_for_peer, request_spec
from benchmarks.measure import cpu_seconds, ratio, report, rss_mb
from benchmarks.stored import reload_ms
from jetbridge.config.settings import Settings
from jetbridge.model.host_state import HostState, Look
from jetbridge.scheduler.filters.load import load_filters
from jetbridge.scheduler.memo import Memo
from jetbridge.scheduler.select import Choosing, select_destinations
from jetbridge.scheduler.shared import Shared
from jetbridge.scheduler.snapshot import MOST_SHARED
from tests.peer.process import peer
from tests.servers.databases import Postgres

CHANGED = 100
FILTERS = load_filters(Settings(), {})


def choosing() -> Choosing:
    return Choosing(FILTERS, random.Random(1))


class Pass:
    """The hosts of one scheduler, as its snapshot holds them."""

    def __init__(self, hosts: int, kinds: int) -> None:
        self._make = Hosts(kinds)
        self._looks: Shared[Look] = Shared(max(MOST_SHARED, 2 * hosts))
        self._random = random.Random(2)
        self.states = [self._make.host(number) for number in range(hosts)]
        self.number = 0

    def share(self, state: HostState) -> None:
        state.share_look(self._looks.of(state.look))

    def forget(self) -> None:
        """As after the start: no look is made yet."""
        self._looks = Shared(max(MOST_SHARED, 2 * len(self.states)))
        for state in self.states:
            state.__dict__.pop("look", None)

    def decide(self, memo: Memo) -> None:
        self.number += 1
        outcome = select_destinations(
            CONTEXT, self.states, [request_spec(self.number, gpu_request())], choosing(), memo=memo
        )
        assert outcome.selections is not None

    def cold(self) -> None:
        for state in self.states:
            self.share(state)
        self.decide(Memo(FILTERS))

    def change(self) -> list[HostState]:
        """New values of a hundred hosts, in place of the old ones."""
        changed = []
        for number in self._random.sample(range(len(self.states)), CHANGED):
            self.states[number] = self._make.host(number)
            changed.append(self.states[number])
        return changed

    def warm(self) -> float:
        memo = Memo(FILTERS)
        for state in self.states:
            self.share(state)
        self.decide(memo)
        taken = []
        for _ in range(9):
            changed = self.change()
            start = time.process_time()
            for state in changed:
                self.share(state)
            self.decide(memo)
            taken.append(time.process_time() - start)
        return median(taken)


@contextmanager
def databases(postgresql: bool) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        urls = {"sqlite": f"sqlite:///{Path(folder) / 'bench.sqlite3'}"}
        if postgresql:
            server = Postgres()
            try:
                yield {**urls, "postgresql": server.new_database()}
            finally:
                server.close()
        else:
            yield urls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=10000)
    parser.add_argument("--kinds", type=int, default=2500, help="How many host states differ.")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--no-database", action="store_true", help="Don't measure loading.")
    parser.add_argument("--no-postgresql", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    run = Pass(options.hosts, options.kinds)
    figures: dict[str, Any] = {
        "hosts": options.hosts,
        "states": len({state.look for state in run.states}),
        "warm_s": run.warm(),
        "cold_s": cpu_seconds(run.cold, 3, run.forget),
        "no_memo_s": cpu_seconds(lambda: run.decide(Memo(FILTERS, most_answers=0)), 3),
        "rss_mb": rss_mb(),
    }
    if not options.no_peer:
        with peer() as nova:
            states = [for_peer(state) for state in run.states]
            answer = nova.ask("time_filter_pass", states=states, requests=[request_for_peer(gpu_request())], repeat=1)
            figures |= {"peer_s": answer["seconds"], "peer_version": nova.ask("ask_version")}
        figures["ratio_warm"] = ratio(figures["peer_s"], figures["warm_s"])
        figures["ratio_cold"] = ratio(figures["peer_s"], figures["cold_s"])
    if not options.no_database:
        with databases(not options.no_postgresql) as urls:
            figures["reload_ms"] = {kind: reload_ms(url, options.hosts, CHANGED) for kind, url in urls.items()}
    report({key: round(value, 5) if isinstance(value, float) else value for key, value in figures.items()})


if __name__ == "__main__":
    main()

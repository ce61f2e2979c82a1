"""How figures are taken: CPU time, so that what else the machine does counts little; medians; one JSON object as the last line."""

from __future__ import annotations

import gc
import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any


def cpu_seconds(work: Callable[[], object], repeat: int = 5, prepare: Callable[[], object] = lambda: None) -> float:
    """Median CPU seconds of ``work``; ``prepare`` runs before each, untimed."""
    taken = []
    for _ in range(repeat):
        prepare()
        gc.collect()
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def rss_mb() -> int:
    """The most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def ratio(peer: float, own: float) -> float:
    return round(peer / own, 1)


def report(figures: dict[str, Any]) -> None:
    print(json.dumps(figures))

"""Pools end, with or without what they still do."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from jetbridge.service.pools import ended_in_time


def test_what_is_done_soon_is_waited_for() -> None:
    pool = ThreadPoolExecutor(1)
    works = [pool.submit(time.sleep, 0.05) for _ in range(3)]
    assert ended_in_time(pool, 60)
    assert all(work.done() for work in works)


def test_what_takes_longer_is_left_and_what_has_not_begun_is_dropped() -> None:
    pool, go = ThreadPoolExecutor(1), threading.Event()
    running, waiting = pool.submit(go.wait), pool.submit(time.sleep, 0)
    assert not ended_in_time(pool, 0.05)
    assert waiting.cancelled()
    assert not running.done()
    go.set()
    assert running.result(60)

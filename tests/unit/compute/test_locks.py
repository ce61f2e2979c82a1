"""One operation at a time on each server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from jetbridge.compute.locks import ServerLocks


def test_operations_on_one_server_never_overlap() -> None:
    locks, inside, most = ServerLocks(), 0, 0

    def work(_: int) -> None:
        nonlocal inside, most
        with locks.hold("s1"):
            inside += 1
            most = max(most, inside)
            inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(2000)))
    assert most == 1
    assert len(locks) == 0


def test_operations_on_different_servers_do_overlap() -> None:
    locks, both = ServerLocks(), threading.Barrier(2, timeout=10)

    def work(server: str) -> None:
        with locks.hold(server):
            both.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, ["s1", "s2"]))


def test_trying_a_lock_that_is_held_says_so_at_once_and_leaves_it_held() -> None:
    locks = ServerLocks()
    with locks.hold("s1"):
        with locks.try_hold("s1") as free:
            assert not free
        with locks.try_hold("s2") as free:
            assert free
        assert len(locks) == 1
    with locks.try_hold("s1") as free:
        assert free
    assert len(locks) == 0

"""One operation at a time on each server of a host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ServerLocks:
    """A lock per server that exists only while somebody holds or awaits it.

    A holder is always running on a worker and never waits for another message, so waiting on a worker
    for a lock can't stall the pool.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def hold(self, server: str) -> Iterator[None]:
        """Wait for the server's lock and hold it."""
        lock = self._enter(server)
        try:
            with lock:
                yield
        finally:
            self._leave(server)

    @contextmanager
    def try_hold(self, server: str) -> Iterator[bool]:
        """Yields whether the lock was free; it is held then. For whoever can come again later."""
        lock = self._enter(server)
        try:
            taken = lock.acquire(blocking=False)
            try:
                yield taken
            finally:
                if taken:
                    lock.release()
        finally:
            self._leave(server)

    def _enter(self, server: str) -> threading.Lock:
        with self._guard:
            lock, users = self._locks.get(server, (threading.Lock(), 0))
            self._locks[server] = (lock, users + 1)
            return lock

    def _leave(self, server: str) -> None:
        with self._guard:
            lock, users = self._locks[server]
            if users == 1:
                del self._locks[server]
            else:
                self._locks[server] = (lock, users - 1)

    def __len__(self) -> int:
        """How many servers are being worked on."""
        with self._guard:
            return len(self._locks)

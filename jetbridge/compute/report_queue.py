"""Work that hosts want done in the background, a few at a time: a fleet that reports itself for the first time takes minutes, and
must leave the process's threads to servers meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from jetbridge.errors import JetbridgeError

logger = logging.getLogger(__name__)

_Item = tuple[str, Callable[[], None]]

AT_ONCE = 2
STEPS = 10
"""How often progress is told when many hosts report at once."""
MANY = 20


class ReportQueue:
    """``background`` runs a piece of work on the process's pool."""

    def __init__(self, background: Callable[[Callable[[], None]], None], at_once: int = AT_ONCE) -> None:
        self._background = background
        self._at_once = at_once
        self._guard = threading.Lock()
        self._waiting: dict[str, Callable[[], None]] = {}
        self._running: set[str] = set()
        self._again: dict[str, Callable[[], None]] = {}
        self._idle = threading.Condition(self._guard)
        self._held = 0
        self._asked = 0
        self._done = 0

    def ask(self, key: str, work: Callable[[], None]) -> None:
        """Do ``work`` some time soon. A key that waits already is not asked twice; one that runs is done once more afterwards."""
        with self._guard:
            if key in self._running:
                self._again[key] = work
                return
            if key not in self._waiting:
                self._asked += 1
            self._waiting[key] = work
            items = self._due()
        self._begin(items)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile nothing begins, and what is asked for waits: a fleet that starts is up sooner."""
        with self._guard:
            self._held += 1
        try:
            yield
        finally:
            with self._guard:
                self._held -= 1
                items = self._due()
            self._begin(items)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do. False: not within ``timeout`` seconds."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._waiting and not self._running, timeout)

    def _due(self) -> list[_Item]:
        """What may begin now; it counts as running."""
        items: list[_Item] = []
        while self._waiting and not self._held and len(self._running) < self._at_once:
            key = next(iter(self._waiting))
            self._running.add(key)
            items.append((key, self._waiting.pop(key)))
        return items

    def _begin(self, items: list[_Item]) -> None:
        for item in items:
            self._background(partial(self._run, *item))

    def _run(self, key: str, work: Callable[[], None]) -> None:
        """One piece, then another task for the next: between them the pool serves others."""
        try:
            work()
        except JetbridgeError as error:
            logger.warning("The report of %s to Placement failed: %s", key, error)
        except Exception:
            logger.exception("The report of %s to Placement failed", key)
        with self._guard:
            self._running.discard(key)
            if key in self._again:
                self._waiting.setdefault(key, self._again.pop(key))
                self._asked += 1
            self._done += 1
            self._tell()
            items = self._due()
            if not self._waiting and not self._running:
                self._asked = self._done = 0
            self._idle.notify_all()
        self._begin(items)

    def _tell(self) -> None:
        step = max(self._asked // STEPS, 1)
        if self._asked >= MANY and (self._done % step == 0 or self._done == self._asked):
            logger.info("%d of %d hosts have reported their providers to Placement", self._done, self._asked)

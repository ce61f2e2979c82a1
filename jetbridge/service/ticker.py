"""What a process does again and again: one thread that hands work to the pool, whatever the number of hosts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from jetbridge.errors import JetbridgeError

logger = logging.getLogger(__name__)


@dataclass
class Task:
    """Runs ``work`` every ``seconds``, never twice at once."""

    name: str
    seconds: float
    work: Callable[[], None]
    due: float = field(default=0.0)
    running: bool = field(default=False)


class Ticker:
    """``submit`` runs work on the pool. ``monotonic`` gives seconds."""

    def __init__(
        self, submit: Callable[[Callable[[], None]], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._submit = submit
        self._monotonic = monotonic
        self._condition = threading.Condition()
        self._tasks: dict[str, Task] = {}
        self._stopping = False
        self._thread: threading.Thread | None = None

    def add(self, name: str, seconds: float, work: Callable[[], None], *, after: float | None = None) -> None:
        """Run ``work`` every ``seconds``, for the first time after ``after`` seconds (None: one interval). A task of the
        same name is replaced."""
        with self._condition:
            first = self._monotonic() + (seconds if after is None else after)
            self._tasks[name] = Task(name, seconds, work, due=first)
            self._condition.notify()

    def remove(self, name: str) -> None:
        with self._condition:
            self._tasks.pop(name, None)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                if self._stopping:
                    return
                now = self._monotonic()
                due = [task for task in self._tasks.values() if task.due <= now and not task.running]
                for task in due:
                    task.running = True
                if not due:
                    waiting = [task.due - now for task in self._tasks.values() if not task.running]
                    self._condition.wait(max(min(waiting, default=1.0), 0.01))
                    continue
            for task in due:
                self._hand_over(task)

    def _hand_over(self, task: Task) -> None:
        try:
            self._submit(lambda: self._do(task))
        except RuntimeError:  # the pool is shut down: so will this thread be
            self._done(task)

    def _do(self, task: Task) -> None:
        try:
            task.work()
        except JetbridgeError as error:  # it says all there is to say
            logger.error("Periodic task %s failed; it runs again in %g s: %s", task.name, task.seconds, error.message)
        except Exception:
            logger.exception("Periodic task %s failed; it runs again in %g s", task.name, task.seconds)
        finally:
            self._done(task)

    def _done(self, task: Task) -> None:
        with self._condition:
            task.running = False
            task.due = self._monotonic() + task.seconds
            self._condition.notify()

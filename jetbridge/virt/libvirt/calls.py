"""Blocking calls with deadlines: libvirt has no timeouts of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from jetbridge.errors import HypervisorError

T = TypeVar("T")


class CallPool:
    """At most ``threads`` calls at a time. Its threads are daemons: a call that never returns must not keep the process."""

    def __init__(self, host: str, threads: int) -> None:
        self._host = host
        self._limit = threads
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads = 0

    def run(self, operation: str, function: Callable[[], T], seconds: float) -> T:
        """``function()``, run by one of the threads; its errors are raised here.

        Raises ``HypervisorError`` naming ``operation`` after ``seconds``. A call that had not begun by then never will; one
        that had may still take effect.
        """
        future: Future[T] = Future()
        self._queue.put((future, function))
        self._add_thread()
        try:
            return future.result(seconds)
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()  # it ended just now, or the error is the call's own
            begun = not future.cancel()
            reason = f"no answer within {seconds:g} s" + (
                "; it may still be carried out"
                if begun
                else f": {self._limit} earlier calls are still waiting for theirs"
            )
            raise HypervisorError(operation=operation, host=self._host, reason=reason) from None

    def close(self) -> None:
        """Threads end after their present call; this doesn't wait for them."""
        with self._lock:
            for _ in range(self._threads):
                self._queue.put(None)

    def _add_thread(self) -> None:
        if self._idle.acquire(blocking=False):
            return
        with self._lock:
            if self._threads >= self._limit:
                return
            self._threads += 1
            name = f"libvirt-{self._host}-{self._threads}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, function = item
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del item, future, function
            self._idle.release()

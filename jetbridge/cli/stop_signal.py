"""What tells a service to stop."""

from __future__ import annotations

import logging
import os
import signal
import sys
from queue import Empty, SimpleQueue
from types import FrameType

LOOK_SECONDS = 1.0


class StopSignal:
    """Asked for by the first SIGTERM or SIGINT; a second one ends the process the hard way.

    A handler runs between any two instructions of the main thread, also where that holds the lock of a ``threading.Event``: ``set`` would
    wait for it for ever. ``SimpleQueue.put`` may be called anywhere (https://docs.python.org/3/library/queue.html#queue.SimpleQueue.put).
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._again = False
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def wait(self) -> None:
        """Until the first, which may have come before."""
        while True:
            try:
                # The handler runs when this thread moves: it does so also when another thread was given the signal.
                return self._asked.get(timeout=LOOK_SECONDS)
            except Empty:
                continue

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._again:
            raise KeyboardInterrupt
        self._again = True
        self._asked.put(None)


def leave(*, at_once: bool) -> None:
    """The last of a service that stopped. ``at_once``: with threads that still wait for something, for which Python would wait too."""
    if not at_once:
        return
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

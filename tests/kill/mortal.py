"""The command `jetbridge`, in a process that kills itself: ``python -m tests.kill.mortal STEP MOMENT SPARED jetbridge's words ...``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from jetbridge.cli.main import main
from jetbridge.service.process import Process
from tests.system import points
from tests.system.child import SENT


def doom(step: str, moment: str, spared: str) -> None:
    """Every service of this process watches itself from now on. ``spared``: how often it gets over it."""
    made = Process.__init__
    left = [int(spared)]

    def observe(name: str, when: str) -> None:
        if (name, when) == (step, moment):
            if left[0] > 0:
                left[0] -= 1
                return
            os.kill(os.getpid(), signal.SIGKILL)

    def make(self: Process, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self._observe = observe
        self._events = lambda event: observe(event.what, SENT)

    Process.__init__ = make  # type: ignore[method-assign]
    if moment in points.MOMENTS:
        points.watch(observe)


if __name__ == "__main__":
    doom(*sys.argv[1:4])
    sys.argv[1:] = sys.argv[4:]
    main()

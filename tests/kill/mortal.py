"""The command `jetbridge`, in a process that kills itself: ``python -m tests.kill.mortal STEP MOMENT jetbridge's words ...``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from jetbridge.cli.main import main
from jetbridge.service.process import Process
from tests.system import points
from tests.system.child import SENT


def doom(step: str, moment: str) -> None:
    """Every service of this process watches itself from now on."""
    made = Process.__init__

    def observe(name: str, when: str) -> None:
        if (name, when) == (step, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    def make(self: Process, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self._observe = observe
        self._events = lambda event: observe(event.what, SENT)

    Process.__init__ = make  # type: ignore[method-assign]
    if moment in points.MOMENTS:
        points.watch(observe)


if __name__ == "__main__":
    doom(*sys.argv[1:3])
    sys.argv[1:] = sys.argv[3:]
    main()

"""A Jetbridge in a process of its own that kills itself at one moment of one step:
``python -m tests.system.child FLEET STATE STEP MOMENT``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from jetbridge.config.fleet import load_fleet
from jetbridge.config.settings import Settings
from jetbridge.service.allinone import AllInOne
from jetbridge.steps.runtime import Moment


def main(fleet: str, state: str, step: str, moment: str) -> None:
    def observe(name: str, when: Moment) -> None:
        if (name, when) == (step, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    service = AllInOne(Settings(), load_fleet(Path(fleet)), Path(state), port=0, observe=observe)
    print(service.start(), flush=True)
    signal.sigwait({signal.SIGTERM})
    service.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

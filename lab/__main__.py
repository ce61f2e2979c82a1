"""python -m lab build | start | run COMMAND | console | stop: the lab by hand."""

from __future__ import annotations

import sys

from lab.cache import LabError
from lab.guest import guest_kernel
from lab.kernel import l1_kernel
from lab.machine import Machine, attach, start


def main(arguments: list[str]) -> int:
    match arguments:
        case ["build"]:
            print(l1_kernel().image, guest_kernel(), sep="\n")
        case ["start"]:
            machine = attach() or start()
            print(f"L1 runs (process {machine.pid}); its service port is 127.0.0.1:{machine.port}")
        case ["run", *words] if words:
            code, output = _running().attempt(" ".join(words), timeout=600)
            sys.stdout.write(output)
            return 1 if code < 0 else code
        case ["console"]:
            print(_running().console_tail(200))
        case ["stop"]:
            found = attach()
            if found is not None:
                found.stop()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def _running() -> Machine:
    machine = attach()
    if machine is None:
        raise LabError("no L1 runs: start one with `python -m lab start`")
    return machine


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        sys.exit(1)

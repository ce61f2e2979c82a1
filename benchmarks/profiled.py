"""Runs `jetbridge` and samples what its threads do: `python -m benchmarks.profiled FILE up ...`.

Every 5 ms the stack of every thread that isn't waiting is looked at. When the service ends, FILE gets, per function, in how many percent of the samples it was
at work itself, and in how many it or what it called was.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from jetbridge.cli.main import main as jetbridge

EVERY_SECONDS = 0.005
WAITS = frozenset(
    {
        "wait",
        "select",
        "accept",
        "acquire",
        "_wait_for_tstate_lock",
        "get",
        "poll",
        "run_forever",
        "_worker",
        "__enter__",
        "_try_wait",
        "sleep",
    }
)


class Sampler:
    def __init__(self) -> None:
        self.own: Counter[str] = Counter()
        self.with_callees: Counter[str] = Counter()
        self.samples = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        me = threading.get_ident()
        while not self._stop.is_set():
            time.sleep(EVERY_SECONDS)
            for thread, frame in sys._current_frames().items():
                if thread != me and frame.f_code.co_name not in WAITS:
                    self._count(frame)

    def _count(self, frame: FrameType) -> None:
        names = [_name(each) for each in _stack(frame)]
        self.samples += 1
        self.own[names[0]] += 1
        self.with_callees.update(set(names))

    def write(self, file: Path) -> None:
        total = max(self.samples, 1)
        lines = [f"{self.samples} samples", "", "own %  function"]
        lines += [f"{100 * count / total:5.1f}  {name}" for name, count in self.own.most_common(40)]
        lines += ["", "with callees %  function of ours"]
        ours = [(name, count) for name, count in self.with_callees.most_common(400) if name.startswith("jetbridge")]
        lines += [f"{100 * count / total:5.1f}  {name}" for name, count in ours[:60]]
        file.write_text("\n".join(lines) + "\n")


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def main() -> None:
    file, *arguments = sys.argv[1:]
    sys.argv = ["jetbridge", *arguments]
    with Sampler() as sampler:
        try:
            jetbridge()
        finally:
            sampler.write(Path(file))


if __name__ == "__main__":
    main()

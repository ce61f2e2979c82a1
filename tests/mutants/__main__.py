"""``python -m tests.mutants``: plant faults into ``pci/``, ``numa/`` and ``mdev/`` and see that their tests notice every one.

Nothing in the working tree is changed: each worker has a copy of the package and the tests in a temporary folder.
Changes that are proven to alter nothing are listed with the reason in ``equivalent.yaml`` and never planted. Exits 1 when a
fault survives, 2 when the tests fail without any.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import yaml
from rich.console import Console
from rich.table import Table

from tests.mutants.changes import Change, changes

ROOT = Path(__file__).parents[2]
ROOMS = ("pci", "numa", "mdev")
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
NEEDED = ("jetbridge", "tests/__init__.py", "tests/unit/__init__.py", "tests/cases")
TESTED_WITH = {
    **{f"jetbridge/pci/{module}.py": "fit" for module in ("eligible", "explain", "pool")},
    **{f"jetbridge/numa/{module}.py": "usage_and_serial" for module in ("serial", "topology", "usage")},
    "jetbridge/numa/cpulist.py": "request",
    "jetbridge/numa/order.py": "fit",
}
"""Modules that have no test file of their own name."""

CPU_SECONDS = 60
"""For the tests of one fault; an endless loop is noticed by it. Not by the clock, which runs on while others use the machine."""

CONFTEST = f"""
import resource

from hypothesis import Phase, settings

resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS + 5}))
settings.register_profile("mutants", database=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutants")
"""
"""For the copies: the same faults are noticed in every run, and no time is spent on the smallest example."""

TIMEOUT = 1800.0
"""Seconds by the clock, for tests that would wait for ever."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    every = [change for change in _all_changes(options.rooms) if not options.files or change.file in options.files]
    if unknown := sorted(set(options.files or ()) - {change.file for change in every}):
        parser.error(f"--files: nothing to change in {', '.join(unknown)}: give paths such as jetbridge/numa/fit.py")
    excluded = _equivalent(every)
    candidates = [change for change in every if _name(change) not in excluded]
    amount = len(candidates) if options.all else min(options.count, len(candidates))
    picked = candidates if options.all else random.Random(seed).sample(candidates, amount)
    console = Console(highlight=False, width=160)
    console.print(
        f"seed {seed}: {amount} of {len(candidates)} faults, {len(excluded)} changes alter nothing", markup=False
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [_copy(Path(folder, str(number))) for number in range(options.jobs)]
        unharmed = _run_tests(copies[0], [f"tests/unit/{room}" for room in ROOMS])
        if unharmed != "survived":
            console.print("the tests fail without any fault: mend them first")
            return 2
        results = _plant_all(picked, copies, console if options.all else None)
    table = Table("file", "line", "change", "noticed", box=None)
    for change, outcome in results:
        noticed = "NO" if outcome == "survived" else outcome
        table.add_row(change.file, f"{change.number}: {change.line[:80]}", change.what[:48], noticed)
    survivors = [change for change, outcome in results if outcome == "survived"]
    if not options.all:
        console.print(table, markup=False)
    for change in survivors:
        console.print(f"survived: {change.file}:{change.number}: {change.what}\n    {change.line}", markup=False)
    console.print(f"{amount - len(survivors)} of {amount} noticed (seed {seed})")
    return 1 if survivors else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="repeats a run; random otherwise")
    parser.add_argument("--count", type=int, default=20, help="how many faults (20)")
    parser.add_argument("--all", action="store_true", help="every fault there is: takes long")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="how many at once")
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--files", nargs="+", help="only these, such as jetbridge/numa/fit.py")
    return parser


def _all_changes(rooms: Sequence[str]) -> list[Change]:
    files = [file for room in rooms for file in sorted((ROOT / "jetbridge" / room).rglob("*.py"))]
    return [
        change
        for file in files
        for change in changes(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
    ]


def _name(change: Change) -> tuple[str, str, str]:
    return change.file, change.line, change.what


def _equivalent(every: Sequence[Change]) -> set[tuple[str, str, str]]:
    """The listed changes; one that matches nothing any more is told, so that the list doesn't rot."""
    entries = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or []
    listed = {(entry["file"], entry["line"], change) for entry in entries for change in entry["changes"]}
    files = {change.file for change in every}
    for file, line, what in sorted(listed - {_name(change) for change in every}):
        if file in files or not (ROOT / file).exists():
            print(f"equivalent.yaml lists what isn't there any more: {file}: {line!r}: {what}", file=sys.stderr)
    return listed & {_name(change) for change in every}


def _copy(folder: Path) -> Path:
    for name in (*NEEDED, *(f"tests/unit/{room}" for room in ROOMS)):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, target)
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    return folder


def _plant_all(picked: Sequence[Change], copies: Sequence[Path], progress: Console | None) -> list[tuple[Change, str]]:
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def plant(change: Change) -> tuple[Change, str]:
        copy = free.get()
        try:
            outcome = _plant(copy, change)
        finally:
            free.put(copy)
        if progress and outcome == "survived":
            progress.print(f"survived: {change.file}:{change.number}: {change.what}", markup=False)
        return change, outcome

    with ThreadPoolExecutor(max_workers=len(copies)) as pool:
        return list(pool.map(plant, picked))


def _plant(copy: Path, change: Change) -> str:
    target = copy / change.file
    original = target.read_text(encoding="utf-8")
    try:
        target.write_text(change.source, encoding="utf-8")
        return _run_tests(copy, _stages(copy, change.file))
    finally:
        target.write_text(original, encoding="utf-8")


def _stages(copy: Path, file: str) -> list[str]:
    """What to run, one after the other: the module's own tests notice soonest, then the room's, then all."""
    _, room, module = Path(file).with_suffix("").parts
    own = f"tests/unit/{room}/test_{TESTED_WITH.get(file, module)}.py"
    rooms = [f"tests/unit/{name}" for name in sorted(ROOMS, key=lambda name: name != room)]
    return [stage for stage in (own, *rooms) if (copy / stage).exists()]


def _run_tests(copy: Path, stages: Sequence[str]) -> str:
    """``survived``, or how the fault was noticed."""
    started = time.monotonic()
    for stage in stages:
        command = [
            sys.executable,
            "-B",
            "-m",
            "pytest",
            "-x",
            "-q",
            "--assert=plain",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            stage,
        ]
        try:
            ended = subprocess.run(
                command, cwd=copy, env=_environment(copy), capture_output=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            return "timeout"
        if ended.returncode == -signal.SIGXCPU:
            return "endless"
        if ended.returncode != 0:
            return f"failed after {time.monotonic() - started:.1f} s"
    return "survived"


def _environment(copy: Path) -> dict[str, str]:
    """Without .pyc files, so that a file written twice within a second is never mistaken for the first; without pytest's
    plugins, which take longer to load than the tests to run."""
    added = {
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return {**os.environ, **added}


if __name__ == "__main__":
    sys.exit(main())

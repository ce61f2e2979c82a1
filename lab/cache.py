"""What is built once and kept under ``.lab/`` until one of its inputs changes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
LAB = PROJECT / "lab"
CACHE = PROJECT / ".lab"


class LabError(Exception):
    """Something the lab needs failed; the text says what, with the tool's own words."""


def run(command: Sequence[str | Path], *, cwd: Path | None = None, input: bytes | None = None) -> bytes:
    """The command's standard output. Raises ``LabError`` with its standard error."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, input=input, capture_output=True, check=False)
    if done.returncode:
        text = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise LabError(f"{' '.join(map(str, command))} failed ({done.returncode}): {text}")
    return done.stdout


def fingerprint(files: Sequence[Path], *facts: str) -> str:
    digest = hashlib.sha256()
    for fact in facts:
        digest.update(f"{fact}\0".encode())
    for file in sorted(files):
        digest.update(f"{file.name}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def built(name: str, inputs: str, build: Callable[[Path], None]) -> Path:
    """The folder ``.lab/NAME`` made by ``build(folder)``; made anew when ``inputs`` isn't what it was made from.

    A build that fails leaves nothing that a later one takes for whole.
    """
    folder = CACHE / name
    stamp = folder / ".inputs"
    if stamp.is_file() and stamp.read_text() == inputs:
        return folder
    print(f"lab: building {name}", flush=True)
    fresh = CACHE / f"{name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    build(fresh)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    stamp.write_text(inputs)
    return folder
